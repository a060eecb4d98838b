"""``python -m tests [--workers sync|gevent] [--store memory|sqlite] [PYTEST ARGUMENTS]``: the suite.

``--workers gevent`` patches before anything else is imported. ``--store`` runs the tests of the matrix on one store;
without it the conformance suites of all stores run.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests", add_help=False)
    parser.add_argument("--workers", choices=["sync", "gevent"], default="sync")
    parser.add_argument("--store", choices=["memory", "sqlite"])
    options, arguments = parser.parse_known_args()
    if options.workers == "gevent":
        from gevent import monkey

        monkey.patch_all()
    if options.store:
        os.environ["STACKSAGA_TEST_STORE"] = options.store
    import pytest

    return int(pytest.main(["-p", "no:cacheprovider", *arguments]))


if __name__ == "__main__":
    sys.exit(main())
