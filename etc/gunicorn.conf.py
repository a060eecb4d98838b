"""Settings of gunicorn for an application with sagas: ``gunicorn -c etc/gunicorn.conf.py shop:app``."""

bind = "127.0.0.1:8000"
workers = 2
worker_class = "gthread"
threads = 8

# A worker that is told to stop may end the step that it is in: longer than the longest step budget
# (STACKSAGA_STEP_BUDGET, 10 s) and one write (STACKSAGA_REQUEST_TIMEOUT, 10 s).
graceful_timeout = 30

# A sync worker that is silent for this long is ended, in the middle of a step if need be: gunicorn sends SIGABRT, at
# which the step's transaction is parked as possibly done, and about a second later SIGKILL, which leaves it to its
# watchdog. So this is longer than the steps of one request may take.
timeout = 60


def post_worker_init(worker):
    # A worker that is told to stop parks its runs. Elsewhere the library sees to that by itself, but not where the
    # application is loaded before the fork (--preload) and its views run in other threads (gthread).
    from stacksaga_flask import stop_at_sigterm

    stop_at_sigterm()
