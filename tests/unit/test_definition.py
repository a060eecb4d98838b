"""What a declaration refuses, before any transaction exists."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stacksaga_flask import DefinitionError, Engine, Saga, StepContext, read_settings

pytestmark = pytest.mark.varies_by_python


@dataclass
class Order:
    sku: str = "book"


def do(order: Order, context: StepContext[Order]) -> None: ...


def saga(name: str = "place-order") -> Saga[Order, None]:
    return Saga(name, payload=Order)


def engine(**settings: object) -> Engine:
    return Engine(read_settings({"STACKSAGA_STORE": "memory://", **settings}, application_name="shop"))


def test_a_saga_with_no_step_is_refused() -> None:
    with pytest.raises(DefinitionError, match="place-order: the saga has no step"):
        engine().register(saga())


def test_two_pivots_are_refused() -> None:
    one = saga()
    one.pivot(name="ship")(do)
    with pytest.raises(DefinitionError, match="'ship' and 'deliver' are both pivots"):
        one.pivot(name="deliver")(do)


@pytest.mark.parametrize("declare", ["step", "query"])
def test_a_revert_after_the_pivot_is_refused(declare: str) -> None:
    one = saga()
    one.pivot(name="ship")(do)
    step = getattr(one, declare)(name="notify")(do)
    with pytest.raises(DefinitionError, match="'notify' is a retriable step, which is never reverted"):
        step.revert(do)


def test_a_revert_of_the_pivot_or_of_a_query_is_refused() -> None:
    one = saga()
    with pytest.raises(DefinitionError, match=r"'look' is a query step, .* since it only reads"):
        one.query(name="look")(do).revert(do)
    with pytest.raises(DefinitionError, match=r"'ship' is a pivot step, .* the point of no return"):
        one.pivot(name="ship")(do).revert(do)


def test_two_steps_of_one_name_are_refused() -> None:
    one = saga()
    one.step(name="reserve")(do)
    with pytest.raises(DefinitionError, match="two steps are named 'reserve'"):
        one.query(name="reserve")(do)


def test_two_reverts_of_one_step_are_refused() -> None:
    step = saga().step(name="reserve")(do)
    step.revert(do)
    with pytest.raises(DefinitionError, match="'reserve' has two reverts"):
        step.revert(do)


def test_a_command_step_without_a_revert_is_refused() -> None:
    one = saga()
    one.step(name="reserve")(do)
    with pytest.raises(DefinitionError, match="the command step 'reserve' has no revert"):
        engine().register(one)


def test_a_step_declared_after_registration_is_refused() -> None:
    one = saga()
    one.pivot(name="ship")(do)
    engine().register(one)
    with pytest.raises(DefinitionError, match="comes after the saga was registered"):
        one.step(name="late")(do)


@pytest.mark.parametrize("name", ["", "bücher", "a\nb", " a"])
def test_a_name_that_is_not_plain_ascii_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"the saga name .* printable ASCII"):
        saga(name)
    if name:
        with pytest.raises(DefinitionError, match=r"the step name .* printable ASCII"):
            saga().step(name=name)(do)


def test_a_step_annotated_to_return_no_payload_is_refused() -> None:
    def wrong(order: Order, context: StepContext[Order]) -> str:
        return "done"

    with pytest.raises(DefinitionError, match=r"'wrong' is declared to return .*str.*, which is not the payload"):
        saga().step(typing.cast("Callable[[Order, StepContext[Order]], None]", wrong))


def test_steps_may_return_the_payload_none_or_either() -> None:
    def returns_it(order: Order, context: StepContext[Order]) -> Order:
        return order

    def may_return_it(order: Order, context: StepContext[Order]) -> Order | None:
        return None

    one = saga()
    one.query(returns_it)
    one.query(may_return_it)
    one.query(do)
    assert [step.name for step in one.plan.steps] == ["returns_it", "may_return_it", "do"]


def test_steps_of_plain_dicts_may_be_annotated_as_such() -> None:
    def step(order: dict[str, object], context: StepContext[dict[str, object]]) -> dict[str, object]:
        return order

    one: Saga[dict[str, object], None] = Saga("place-order", payload=dict)
    one.query(step)
    assert [planned.name for planned in one.plan.steps] == ["step"]


@pytest.mark.parametrize("options", [{"budget": 0}, {"budget": "soon"}, {"backoff": -1}, {"attempts": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="do: "):
        saga().step(**options)(do)  # type: ignore[call-overload]


async def coroutine(order: Order, context: StepContext[Order]) -> None: ...


def generator(order: Order, context: StepContext[Order]) -> typing.Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda order: None, "cannot be called with a payload and a context"),
        (lambda order, context, more: None, "cannot be called with a payload and a context"),
        (coroutine, "'coroutine' is a coroutine or a generator function"),
        (generator, "'generator' is a coroutine or a generator function"),
        ("reserve", "'reserve' is no function"),
        (functools.partial(do), "is no function"),
    ],
)
@pytest.mark.parametrize("declare", ["step", "query", "pivot"])
def test_what_cannot_be_called_as_a_step_is_refused(declare: str, function: typing.Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        getattr(saga(), declare)(function)


@pytest.mark.parametrize("version", [0, -1, "two", 1.5, 2**70])
def test_a_version_that_is_no_whole_number_from_1_on_is_refused(version: typing.Any) -> None:
    with pytest.raises(DefinitionError, match="version="):
        Saga("place-order", payload=Order, version=version)
    with pytest.raises(DefinitionError, match="payload_version="):
        Saga("place-order", payload=Order, payload_version=version)


def test_a_budget_that_does_not_fit_before_the_watchdogs_fence_is_refused() -> None:
    one = saga()
    one.pivot(name="ship", budget="60s")(do)
    with pytest.raises(DefinitionError, match=r"budget of 'do' \(60 s\) and a write \(10 s\) do not fit"):
        engine(STACKSAGA_RESTORE_DELAY_WINDOWS=2).register(one)


def test_two_sagas_of_one_name_are_refused_and_one_may_be_registered_twice() -> None:
    one, other = saga(), saga()
    one.pivot(do)
    other.pivot(do)
    registry = engine()
    registry.register(one)
    registry.register(one)
    with pytest.raises(DefinitionError, match="two sagas are named 'place-order'"):
        registry.register(other)


def test_a_payload_type_that_cannot_be_stored_is_refused() -> None:
    @dataclass
    class Holds:
        connection: object

    with pytest.raises(DefinitionError, match="connection"):
        Saga("place-order", payload=Holds)


def test_a_result_that_cannot_be_json_is_refused() -> None:
    def result(order: Order) -> Callable[[], None]:
        return lambda: None

    with pytest.raises(DefinitionError, match="public result cannot be JSON"):
        Saga("place-order", payload=Order, result=result)


def test_a_declared_step_can_be_called_as_the_function_it_is() -> None:
    calls: list[str] = []
    one = saga()

    @one.step
    def reserve(order: Order, context: StepContext[Order]) -> None:
        calls.append(order.sku)

    reserve(Order("pen"), None)  # type: ignore[arg-type]
    assert calls == ["pen"]
