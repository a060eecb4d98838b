"""A shop made of real parts: ``python -m stacksaga_flask.demo``.

| file | holds |
|---|---|
| `shop.py` | the web application and its saga: the part to copy from |
| `participants.py` | stock, payments and shipping, and how they remember idempotency keys |
| `orders.py` | what is placed, and what must come of it |
| `timeline.py` | what the shop announces and how it is shown |
| `checks.py`, `report.py` | what came of it, against what should have |
| `processes.py`, `server.py`, `client.py` | child processes, gunicorn's settings, HTTP |
| `driver.py`, `__main__.py` | all of it in order; the command |
"""
