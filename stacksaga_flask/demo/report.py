"""The tables at the end."""

from __future__ import annotations

from stacksaga_flask.demo.checks import Check
from stacksaga_flask.demo.screen import Screen


def show_table(screen: Screen, title: str, checks: list[Check]) -> None:
    """Show what should be, what is, and whether the two agree."""
    screen.heading(title)
    first = max(len("what"), *(len(check.what) for check in checks))
    second = max(len("expected"), *(len(check.expected) for check in checks))
    third = max(len("got"), *(len(check.got) for check in checks))
    screen.line(f"  {'what':<{first}}  {'expected':<{second}}  got")
    for check in checks:
        verdict = screen.paint("ok", "green") if check.passed else screen.paint("WRONG", "red")
        screen.line(f"  {check.what:<{first}}  {check.expected:<{second}}  {check.got:<{third}}  {verdict}")


def show_verdict(screen: Screen, checks: list[Check]) -> bool:
    """Show whether all is as it should be, and what is not; tell which."""
    wrong = [check for check in checks if not check.passed]
    screen.line()
    if not wrong:
        screen.line(screen.paint("Every order ended as it should.", "green"))
        return True
    screen.line(screen.paint(f"{len(wrong)} of {len(checks)} checks are WRONG:", "red"))
    for check in wrong:
        screen.line(f"  {check.what}: expected {check.expected}, got {check.got}")
    return False
