"""Room for a step: its budget and a write must end before the right to write does (R6)."""

from __future__ import annotations

from msgspec.structs import replace

from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.owned import Owned
from stacksaga_flask.engine.takeover import arm, drop_superseded
from stacksaga_flask.errors import RightEnded


def has_room(owned: Owned, budget: int) -> bool:
    """Whether a step with this budget, in microseconds, may begin now."""
    return owned.right.left() >= budget + owned.node.write_timeout


def make_room(owned: Owned, budget: int) -> None:
    """See that a step with this budget may begin: if it may not yet, arm again or renew the claim first.

    Raises:
        RightEnded: It may not begin.
        StoreError: The store did not say so in time, so it may not begin.
        ClockSkew: This machine's clock is off, so nothing may be armed (R14).
    """
    if has_room(owned, budget):
        return
    if owned.claim is not None:
        _renew(owned, owned.claim)
    else:
        owned.repeated(lambda: _arm_again(owned))
    if not has_room(owned, budget):
        raise RightEnded(f"a step of {budget} µs does not fit before the right to write ends (R6)")


def _renew(owned: Owned, claim: Claim) -> None:
    renewed = owned.repeated(lambda: owned.node.claims.renew(claim, trust=owned.trust()))
    if renewed is None:
        raise RightEnded("the claim was lost (R6)")
    owned.claim = renewed
    owned.right.extend(renewed.trusted_until)


def _arm_again(owned: Owned) -> None:
    """New pointer → row naming it, both before the old fence → right extended → old pointer deleted."""
    node, old = owned.node, owned.row.watchdog
    path, registration = arm(node, owned.row.transaction_id, owned.row.saga_name)
    if old is None or node.grid.opens(path) <= node.grid.opens(old):
        return
    row = replace(owned.row, watchdog=path, updated_at=node.clock.now())
    owned.in_order((registration,), lambda: owned.batch(row))
    owned.row = row
    owned.right.extend(node.grid.fence(path))
    drop_superseded(node, old, row)
