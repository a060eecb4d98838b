"""Every rule that is checked, in the order in which they may object."""

from __future__ import annotations

from tests.simulation.checks.directory import BottomUp, BoundedBuckets, DispatchedIsDurable, LeaseAsked
from tests.simulation.checks.finish import Finished, FrozenForAReason, NothingLeft
from tests.simulation.checks.order import NoCallTooMany, ReverseOrder
from tests.simulation.checks.owner import (
    OneOwner,
    OneRequestAKey,
    OnlyTheDead,
    OverItsLifetime,
    TakeoversWin,
    TerminalIsFinal,
    TrustedClocks,
)
from tests.simulation.checks.reach import ArmedFirst, Reachable, RegisteredInTime
from tests.simulation.checks.rule import Rule

RULES: tuple[type[Rule], ...] = (
    TrustedClocks,
    RegisteredInTime,
    ArmedFirst,
    DispatchedIsDurable,
    BottomUp,
    BoundedBuckets,
    LeaseAsked,
    TerminalIsFinal,
    OneOwner,
    TakeoversWin,
    ReverseOrder,
    OverItsLifetime,
    OneRequestAKey,
    OnlyTheDead,
    Reachable,
    Finished,
    FrozenForAReason,
    NothingLeft,
    NoCallTooMany,
)
