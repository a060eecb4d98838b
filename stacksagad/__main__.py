"""``python -m stacksagad``, the same as the command ``stacksagad``."""

from __future__ import annotations

from stacksagad.cli import main

if __name__ == "__main__":
    main()
