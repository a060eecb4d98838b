"""Commands that look at transactions and go on with them: ``show``, ``list``, ``retry``, ``restore``.

``flask stacksaga`` and ``stacksagad`` offer the same ones. Exit statuses: 0 as wanted, 1 not (the message says why), 2
wrong command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import click

from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.engine.listing import Listed
from stacksaga_flask.engine.operator import Operator, is_in_flight, is_paused
from stacksaga_flask.engine.restore import Answer, Verdict
from stacksaga_flask.errors import StackSagaError
from stacksaga_flask.extension.transactions_text import (
    ListTable,
    frozen_json,
    listed_json,
    plain,
    shown_json,
    shown_lines,
)

EngineOf = Callable[[], Engine]

_SHOWS_PROGRESS: Final = 20
"""From how many transactions on progress is shown."""
_IN_A_ROW: Final = 3
"""After how many failures one after the other no more are tried: the store is away, or this machine's clock is off."""
_TELL_EVERY: Final = 60 * SECOND


class _TransactionId(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic since click 8.5
    """A whole UUID."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        if isinstance(value, UUID):
            return value
        try:
            return UUID(value)
        except ValueError:
            self.fail(f"{value!r} is no transaction id: give the whole UUID, it cannot be abbreviated", param, ctx)


_id = click.argument("transaction_id", metavar="ID", type=_TransactionId())
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
_of_saga = click.option("--saga", "saga_name", metavar="NAME", help="Only those of this saga.")


def transaction_commands(engine_of: EngineOf) -> list[click.Command]:
    """The commands, for a group to add.

    Args:
        engine_of: The engine of the service; called once in each command.
    """
    return [_show(engine_of), _list(engine_of), _retry(engine_of), _restore(engine_of)]


@contextmanager
def _opened(engine_of: EngineOf) -> Iterator[Engine]:
    """The engine, whose store is closed afterwards; our errors become messages."""
    try:
        engine = engine_of()
        try:
            yield engine
        finally:
            engine.close()
    except StackSagaError as error:
        raise click.ClickException(str(error)) from error


# -- looking ---------------------------------------------------------------------------------------------------


def _show(engine_of: EngineOf) -> click.Command:
    @click.command("show")
    @_id
    @_as_json
    def show(transaction_id: UUID, as_json: bool) -> None:
        """Show one transaction.

        Its state, attempts, pointers and claim, and when it is tried next.
        """
        with _opened(engine_of) as engine:
            shown = Operator(engine).show(transaction_id)
        if shown is None:
            scope = "/".join(engine.scope)
            raise click.ClickException(
                f"there is no transaction {transaction_id} in {scope}: see whether it is another service's"
            )
        for line in [shown_json(shown)] if as_json else shown_lines(shown):
            click.echo(line)

    return show


def _list(engine_of: EngineOf) -> click.Command:
    @click.command("list")
    @click.option("--in-flight", "which", flag_value="in-flight", help="Only those that run, died running, or wait.")
    @click.option("--paused", "which", flag_value="paused", help="Only those that are paused.")
    @click.option("--frozen", "which", flag_value="frozen", help="Only those that are frozen.")
    @_of_saga
    @_as_json
    def list_(which: str | None, saga_name: str | None, as_json: bool) -> None:
        """List what is not finished.

        Transactions in flight, paused and frozen, or one of these. The first two are read from the recovery
        directory, the oldest windows first.
        """
        with _opened(engine_of) as engine:
            count = 0
            for line in _list_lines(engine, which, saga_name, as_json=as_json):
                if not as_json and count == 0:
                    click.echo(ListTable(engine.sagas).heading())
                click.echo(line)
                count += 1
        if count == 0 and not as_json:
            click.echo("There are none.")

    return list_


def _list_lines(engine: Engine, which: str | None, saga_name: str | None, *, as_json: bool) -> Iterator[str]:
    operator, table = Operator(engine), ListTable(engine.sagas)
    if which != "frozen":
        for listed in operator.listed():
            if _is_wanted(listed, which, saga_name):
                next_try = None if listed.row is None else operator.next_try(listed.row)
                yield listed_json(listed, next_try) if as_json else table.listed(listed, next_try)
    if which in (None, "frozen"):
        for frozen in operator.frozen(saga_name=saga_name):
            yield frozen_json(frozen) if as_json else table.frozen(frozen)


def _is_wanted(listed: Listed, which: str | None, saga_name: str | None) -> bool:
    if listed.row is None:
        return which is None and saga_name is None
    if saga_name is not None and listed.row.saga_name != saga_name:
        return False
    return which is None or (is_paused(listed) if which == "paused" else is_in_flight(listed))


# -- going on --------------------------------------------------------------------------------------------------


def _retry(engine_of: EngineOf) -> click.Command:
    @click.command("retry")
    @_id
    def retry(transaction_id: UUID) -> None:
        """Try a paused transaction now.

        It runs in this process, instead of in the window that it was put off to.
        """
        with _opened(engine_of) as engine:
            answer = Operator(engine).retry(transaction_id)
        _say(transaction_id, answer)
        if not answer.verdict.as_wanted:
            raise click.exceptions.Exit(1)

    return retry


def _restore(engine_of: EngineOf) -> click.Command:
    @click.command("restore")
    @click.argument("transaction_ids", metavar="[ID]...", nargs=-1, type=_TransactionId())
    @click.option("--reason", metavar="TEXT", help="All whose reason has this text in it.")
    @_of_saga
    @click.option("--all", "everything", is_flag=True, help="All that are frozen.")
    @click.option("--yes", is_flag=True, help="Do not ask before restoring by --reason, --saga or --all.")
    def restore(
        transaction_ids: tuple[UUID, ...], reason: str | None, saga_name: str | None, everything: bool, yes: bool
    ) -> None:
        """Let frozen transactions go on.

        Each is paused and tried in the next window, and its lifetime begins anew.
        Mend what they were frozen for first; where it still stands, they are frozen again.
        """
        by_filter = reason is not None or saga_name is not None
        if bool(transaction_ids) + by_filter + everything != 1:
            raise click.UsageError("say which: ids, or --reason and --saga, or --all")
        with _opened(engine_of) as engine:
            operator = Operator(engine)
            chosen = list(dict.fromkeys(transaction_ids))
            if not chosen:
                chosen = [one.transaction_id for one in operator.frozen(reason=reason, saga_name=saga_name)]
                if not chosen:
                    click.echo("There are none to restore.")
                    return
                if not yes:
                    click.confirm(f"Restore {len(chosen)} frozen transactions of {'/'.join(engine.scope)}?", abort=True)
            if not _restore_each(engine, operator, chosen):
                raise click.exceptions.Exit(1)

    return restore


def _restore_each(engine: Engine, operator: Operator, chosen: list[UUID]) -> bool:
    """Restore them one after the other, say what became of them, and tell whether all stand as wanted."""
    counts = dict.fromkeys(Verdict, 0)
    failed = 0
    for transaction_id in _with_progress(engine, chosen):
        answer = operator.restore(transaction_id)
        counts[answer.verdict] += 1
        if len(chosen) < _SHOWS_PROGRESS or not answer.verdict.as_wanted:
            _say(transaction_id, answer)
        failed = failed + 1 if answer.verdict is Verdict.FAILED else 0
        if failed == _IN_A_ROW:
            break
    left = len(chosen) - sum(counts.values())
    if len(chosen) > 1:
        click.echo(_summary(counts, left))
    return left == 0 and all(verdict.as_wanted or not count for verdict, count in counts.items())


def _with_progress(engine: Engine, chosen: list[UUID]) -> Iterator[UUID]:
    """The ids, with a bar on a terminal or a line a minute in a log where there are many."""
    if len(chosen) < _SHOWS_PROGRESS:
        yield from chosen
    elif sys.stderr.isatty():
        with click.progressbar(chosen, label="restoring", file=sys.stderr) as bar:
            yield from bar
    else:
        clock = engine.node().clock
        said = clock.boot()
        for number, transaction_id in enumerate(chosen):
            if clock.boot() - said >= _TELL_EVERY:
                said = clock.boot()
                click.echo(f"restored {number} of {len(chosen)}", err=True)
            yield transaction_id


def _say(transaction_id: UUID, answer: Answer) -> None:
    click.echo(f"{transaction_id}  {plain(answer.told)}", err=not answer.verdict.as_wanted)


def _summary(counts: dict[Verdict, int], left: int) -> str:
    parts = [
        f"restored {counts[Verdict.DONE]}",
        f"not frozen any more {counts[Verdict.NOTHING_TO_DO]}",
        f"refused {counts[Verdict.REFUSED]}",
        f"failed {counts[Verdict.FAILED]}",
        f"unknown {counts[Verdict.UNKNOWN]}",
    ]
    if left:
        parts.append(f"not tried after {_IN_A_ROW} failures in a row {left}: repeat the command once the cause is gone")
    return ", ".join(parts)
