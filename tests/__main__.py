"""``python -m tests [PYTEST ARGUMENTS]``: the suite with the workers that STACKSAGA_TEST_WORKERS names.

``gevent`` patches before anything else is imported; ``sync`` (the default) runs on threads.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    if os.environ.get("STACKSAGA_TEST_WORKERS", "sync") == "gevent":
        from gevent import monkey

        monkey.patch_all()
    import pytest

    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
