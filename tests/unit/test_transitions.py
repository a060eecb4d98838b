"""Every transition by hand, and any sequence of outcomes by Hypothesis (R8, R9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksaga_flask.saga.outcome import FailedForNow, FailedUnexpectedly, Outcome, Succeeded, WasRejected
from stacksaga_flask.store.contract import ExecutionType, RunningStatus, TryoutStatus
from stacksaga_flask.transitions import Action, Plan, PlannedStep, Progress, StepKind, tryout_status

pytestmark = pytest.mark.varies_by_python

DONE = Succeeded(b"{}")
REFUSED = WasRejected("no")
BUSY = FailedForNow("503", None)
BROKEN = FailedUnexpectedly("KeyError: 'x'")

C, Q, P, R = StepKind.COMMAND, StepKind.QUERY, StepKind.PIVOT, StepKind.RETRIABLE


def plan(*kinds: StepKind, honours_keys: bool = True) -> Plan:
    return Plan(tuple(PlannedStep(f"s{n}", kind, honours_keys) for n, kind in enumerate(kinds)))


def test_a_plan_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a step"):
        Plan(())


def test_a_committed_step_leads_to_the_next_one() -> None:
    decision = plan(C, C).decide(Progress(attempt=3, possibly_done=True), DONE, attempts_left=False)
    assert decision.action is Action.RECORD
    assert decision.progress == Progress(committed_steps=("s0",))
    assert plan(C, C).next_execution(decision.progress).step.name == "s1"


def test_the_last_commit_completes_the_transaction() -> None:
    decision = plan(C, C).decide(Progress(committed_steps=("s0",)), DONE, attempts_left=False)
    assert decision.action is Action.END
    assert decision.progress.status is RunningStatus.PROCESS_COMPLETED
    assert decision.progress.committed_steps == ("s0", "s1")


def test_a_rejection_reverts_committed_command_steps_in_reverse_order_and_no_query() -> None:
    progress = Progress(committed_steps=("s0", "s1", "s2"))
    decision = plan(C, Q, C, C).decide(progress, REFUSED, attempts_left=True)
    assert decision.action is Action.RECORD
    assert decision.progress.status is RunningStatus.REVERTING
    assert decision.progress.reverts == ("s2", "s0")
    assert decision.progress.reason == "no"
    assert not decision.progress.possibly_done


def test_a_rejection_of_the_first_step_ends_the_transaction_at_once() -> None:
    decision = plan(C).decide(Progress(), REFUSED, attempts_left=False)
    assert decision.action is Action.END
    assert decision.progress.status is RunningStatus.REVERT_COMPLETED


def test_a_rejection_after_an_unknown_attempt_does_not_excuse_the_step() -> None:
    progress = Progress(committed_steps=("s0",), possibly_done=True, attempt=1)
    decision = plan(C, C).decide(progress, REFUSED, attempts_left=False)
    assert decision.progress.reverts == ("s1", "s0")
    assert decision.progress.possibly_done


def test_an_unexpected_exception_reverts_the_failing_step_first() -> None:
    decision = plan(C, C).decide(Progress(committed_steps=("s0",)), BROKEN, attempts_left=True)
    assert decision.progress.reverts == ("s1", "s0")
    assert decision.progress.reason == "the step 's1' failed unexpectedly"


def test_an_unexpected_exception_in_a_query_reverts_only_what_was_done_before() -> None:
    decision = plan(C, Q).decide(Progress(committed_steps=("s0",)), BROKEN, attempts_left=False)
    assert decision.progress.reverts == ("s0",)
    assert not decision.progress.possibly_done


@pytest.mark.parametrize(("attempts_left", "action"), [(True, Action.TRY_AGAIN), (False, Action.PAUSE)])
def test_a_passing_failure_is_tried_again_and_makes_the_step_possibly_done(attempts_left: bool, action: Action) -> None:
    decision = plan(C).decide(Progress(attempt=1), BUSY, attempts_left=attempts_left)
    assert decision.action is action
    assert decision.progress.possibly_done
    assert decision.progress.attempt == 2
    paused = action is Action.PAUSE
    assert decision.progress.status is (RunningStatus.PROCESS_PAUSED if paused else RunningStatus.PROCESSING)


@pytest.mark.parametrize("outcome", [BUSY, BROKEN])
def test_a_pivot_that_is_not_rejected_is_retried(outcome: Outcome) -> None:
    decision = plan(C, P).decide(Progress(committed_steps=("s0",)), outcome, attempts_left=False)
    assert decision.action is Action.PAUSE


def test_a_rejected_pivot_is_compensated_without_reverting_itself() -> None:
    decision = plan(C, P).decide(Progress(committed_steps=("s0",)), REFUSED, attempts_left=False)
    assert decision.progress.reverts == ("s0",)
    assert decision.note is None


def test_a_pivot_rejected_after_an_unknown_attempt_is_compensated_and_the_tryout_says_so() -> None:
    progress = Progress(committed_steps=("s0",), possibly_done=True, attempt=1)
    decision = plan(C, P).decide(progress, REFUSED, attempts_left=False)
    assert decision.progress.reverts == ("s0",)
    assert decision.note is not None
    assert "same key" in decision.note


def test_a_pivot_whose_participant_honours_no_keys_is_frozen_instead() -> None:
    progress = Progress(committed_steps=("s0",), possibly_done=True, attempt=1)
    decision = plan(C, P, honours_keys=False).decide(progress, REFUSED, attempts_left=False)
    assert decision.action is Action.FREEZE
    assert decision.progress.status is RunningStatus.FROZEN
    assert "find out at the participant" in (decision.progress.reason or "")


@pytest.mark.parametrize("outcome", [BUSY, BROKEN, REFUSED])
def test_after_the_pivot_every_failure_is_retried(outcome: Outcome) -> None:
    decision = plan(P, R).decide(Progress(committed_steps=("s0",)), outcome, attempts_left=False)
    assert decision.action is Action.PAUSE
    assert decision.progress.status is RunningStatus.PROCESS_PAUSED


def reverting(*reverts: str, committed: tuple[str, ...] = ("s0", "s1"), possibly_done: bool = False) -> Progress:
    return Progress(
        status=RunningStatus.REVERTING,
        committed_steps=committed,
        reverts=reverts,
        reason="no",
        possibly_done=possibly_done,
    )


def test_reverts_run_one_by_one_until_none_is_left() -> None:
    both = reverting("s1", "s0")
    execution = plan(C, C, C).next_execution(both)
    assert (execution.step.name, execution.execution_type) == ("s1", ExecutionType.REVERT)
    first = plan(C, C, C).decide(both, DONE, attempts_left=False)
    assert (first.action, first.progress) == (Action.RECORD, reverting("s0"))
    last = plan(C, C, C).decide(first.progress, DONE, attempts_left=False)
    assert (last.action, last.progress.status) == (Action.END, RunningStatus.REVERT_COMPLETED)
    assert last.progress.reason == "no"


def test_reverting_the_possibly_done_step_settles_what_it_did() -> None:
    decision = plan(C, C, C).decide(reverting("s2", "s1", possibly_done=True), DONE, attempts_left=False)
    assert not decision.progress.possibly_done


@pytest.mark.parametrize("outcome", [BUSY, BROKEN])
def test_a_failing_revert_is_paused_and_keeps_its_reason(outcome: Outcome) -> None:
    decision = plan(C, C).decide(reverting("s0"), outcome, attempts_left=False)
    assert decision.progress.status is RunningStatus.REVERT_PAUSED
    assert (decision.progress.reverts, decision.progress.reason) == (("s0",), "no")


def test_a_rejected_revert_freezes_the_transaction_and_says_what_is_left_to_undo() -> None:
    decision = plan(C, C).decide(reverting("s1", "s0"), REFUSED, attempts_left=True)
    assert decision.action is Action.FREEZE
    assert "undo s1, s0 by hand" in (decision.progress.reason or "")


@pytest.mark.parametrize("status", [s for s in RunningStatus if not s.running])
def test_nothing_runs_in_a_status_that_is_not_running(status: RunningStatus) -> None:
    with pytest.raises(ValueError, match="nothing is left to run"):
        plan(C).next_execution(Progress(status=status))


def test_each_outcome_has_its_tryout_status() -> None:
    statuses = [tryout_status(outcome) for outcome in (DONE, REFUSED, BUSY, BROKEN)]
    assert statuses == [TryoutStatus.SUCCEEDED, TryoutStatus.REJECTED, TryoutStatus.RETRYABLE, TryoutStatus.FAILED]


# -- any sequence of outcomes ----------------------------------------------------------------------------------

before_the_pivot = st.lists(st.sampled_from([C, Q]), max_size=4)
pivot_and_after = st.integers(-1, 2).map(lambda n: [P, *[R] * n] if n >= 0 else [])
kinds = st.tuples(before_the_pivot, pivot_and_after).map(lambda parts: parts[0] + parts[1]).filter(bool)
outcomes = st.lists(st.sampled_from([DONE, REFUSED, BUSY, BROKEN]), min_size=1, max_size=30)
RESUMED = {RunningStatus.PROCESS_PAUSED: RunningStatus.PROCESSING, RunningStatus.REVERT_PAUSED: RunningStatus.REVERTING}


@given(kinds=kinds, outcomes=outcomes, attempts_left=st.booleans(), honours_keys=st.booleans())
def test_any_sequence_of_outcomes_ends_in_a_legal_state(
    kinds: list[StepKind], outcomes: list[Outcome], attempts_left: bool, honours_keys: bool
) -> None:
    steps = plan(*kinds, honours_keys=honours_keys)
    progress = Progress()
    maybe_done: list[str] = []  # steps that were begun and not definitely refused, by our own count
    reverted: list[str] = []
    for outcome in outcomes:
        if progress.status is RunningStatus.FROZEN or progress.status.terminal:
            break
        execution = steps.next_execution(progress)
        name = execution.step.name
        if execution.execution_type is ExecutionType.PROCESS:
            assert not reverted, "a step was processed after a revert"
            if not isinstance(outcome, WasRejected) and name not in maybe_done:
                maybe_done.append(name)
        elif isinstance(outcome, Succeeded):
            reverted.append(name)
        progress = steps.decide(progress, outcome, attempts_left=attempts_left).progress
        resumed = RESUMED.get(progress.status, progress.status)
        progress = Progress(
            status=resumed,
            committed_steps=progress.committed_steps,
            possibly_done=progress.possibly_done,
            reverts=progress.reverts,
            attempt=progress.attempt,
            reason=progress.reason,
        )
    names = [step.name for step in steps.steps]
    assert list(progress.committed_steps) == names[: len(progress.committed_steps)]
    commands = [step.name for step in steps.steps if step.kind is C]
    owed = [name for name in reversed(maybe_done) if name in commands]
    if progress.status is RunningStatus.PROCESS_COMPLETED:
        assert list(progress.committed_steps) == names
        assert not reverted
    elif progress.status is RunningStatus.REVERT_COMPLETED:
        assert reverted == owed
        pivots = [step.name for step in steps.steps if step.kind is P]
        assert not set(pivots) & set(progress.committed_steps), "what lies behind the pivot was compensated"
    elif progress.status is RunningStatus.REVERTING:
        assert reverted + list(progress.reverts) == owed
