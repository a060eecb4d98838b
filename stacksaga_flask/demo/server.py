"""Settings of the gunicorn that serves the shop: ``gunicorn -c python:stacksaga_flask.demo.server``."""

from __future__ import annotations

workers = 2
worker_class = "gthread"
threads = 4
loglevel = "warning"
# Seconds that requests under way get once it is told to stop.
graceful_timeout = 2
# Newer versions would leave a socket file in the user's directory.
control_socket_disable = True
