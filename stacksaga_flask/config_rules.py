"""Rules that a configuration must keep as a whole (design, section 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config_values import told

if TYPE_CHECKING:
    from stacksaga_flask.config import Domain, Settings

PREFIX = "STACKSAGA_"
_DAY = 24 * 3600 * SECOND

Name: TypeAlias = Callable[[str], str]
_Check: TypeAlias = "Callable[[Settings, Domain, Name], str | None]"


class _Rule(NamedTuple):
    fields: frozenset[str]
    """The settings that it reads: unless all of them could be read, it has nothing to say."""
    check: _Check


_RULES: list[_Rule] = []
_DOMAIN_RULES: list[_Rule] = []


def _rule(*fields: str) -> Callable[[_Check], _Check]:
    return _into(_RULES, fields)


def _domain_rule(*fields: str) -> Callable[[_Check], _Check]:
    return _into(_DOMAIN_RULES, fields)


def _into(rules: list[_Rule], fields: tuple[str, ...]) -> Callable[[_Check], _Check]:
    def register(check: _Check) -> _Check:
        rules.append(_Rule(frozenset(fields), check))
        return check

    return register


def broken_rules(settings: Settings, overrides: Mapping[str, frozenset[str]], unread: frozenset[str]) -> Iterator[str]:
    """What is wrong with the settings as a whole, one sentence each.

    Args:
        settings: The settings, with the default where a value could not be read.
        overrides: For each domain that is configured, the settings that it has of its own.
        unread: Settings whose value could not be read.
    """
    for rule in _RULES + _DOMAIN_RULES:
        if not rule.fields & unread and (problem := rule.check(settings, settings, setting_name)):
            yield problem
    for saga_name, own in overrides.items():
        names = _names(saga_name, own)
        for rule in _DOMAIN_RULES:
            # Without one of its own in it, the problem is told already.
            if rule.fields & own and not (rule.fields - own) & unread:
                problem = rule.check(settings, settings.domain(saga_name), names)
                if problem:
                    yield problem


def setting_name(field: str) -> str:
    """The key in the configuration."""
    return PREFIX + field.upper()


def domain_setting_name(saga_name: str, field: str) -> str:
    """Where a domain's setting stands in the configuration."""
    return f"{PREFIX}DOMAINS[{saga_name!r}][{field!r}]"


def _names(saga_name: str, own: frozenset[str]) -> Name:
    return lambda field: domain_setting_name(saga_name, field) if field in own else setting_name(field)


# -- time ------------------------------------------------------------------------------------------------------


@_rule("window_interval")
def _windows_divide_the_day(settings: Settings, _: Domain, name: Name) -> str | None:
    interval = settings.window_interval
    if interval >= 5 * SECOND and interval % SECOND == 0 and _DAY % interval == 0:
        return None
    return (
        f"{name('window_interval')} is {told(interval)}: windows are whole seconds that divide 86 400, at least 5 s; "
        f"write 60s, 30s, 15s or 5s, for example"
    )


@_rule("window_interval", "clock_skew_margin")
def _windows_are_longer_than_skew(settings: Settings, _: Domain, name: Name) -> str | None:
    interval, margin = settings.window_interval, settings.clock_skew_margin
    if interval >= 4 * margin:
        return None
    return (
        f"{name('window_interval')} is {told(interval)}: a window is at least four times "
        f"{name('clock_skew_margin')} ({told(margin)}); raise the first or lower the second"
    )


@_rule("seal_delay", "clock_skew_margin", "window_interval")
def _sealing_waits_for_skew(settings: Settings, _: Domain, name: Name) -> str | None:
    delay, margin, interval = settings.seal_delay, settings.clock_skew_margin, settings.window_interval
    if 2 * margin <= delay <= interval:
        return None
    return (
        f"{name('seal_delay')} is {told(delay)}: it is at least twice {name('clock_skew_margin')} ({told(margin)}) and "
        f"at most {name('window_interval')} ({told(interval)}); leave it out for a delay that fits"
    )


@_rule("claim_ttl", "clock_skew_margin", "request_timeout")
def _claims_outlive_a_request(settings: Settings, _: Domain, name: Name) -> str | None:
    trusted = settings.claim_ttl - SECOND - 2 * settings.clock_skew_margin
    if trusted > settings.request_timeout:
        return None
    return (
        f"{name('claim_ttl')} is {told(settings.claim_ttl)}: less 1 s and twice {name('clock_skew_margin')} "
        f"({told(settings.clock_skew_margin)}) it must be over {name('request_timeout')} "
        f"({told(settings.request_timeout)}), or nothing could be written under a claim (R6); raise the first"
    )


@_rule("coordinator_lease", "clock_skew_margin")
def _leases_outlive_skew(settings: Settings, _: Domain, name: Name) -> str | None:
    if settings.coordinator_lease > 2 * settings.clock_skew_margin:
        return None
    return (
        f"{name('coordinator_lease')} is {told(settings.coordinator_lease)}: it must be over twice "
        f"{name('clock_skew_margin')} ({told(settings.clock_skew_margin)}), or no lease could be trusted (R7); raise it"
    )


# -- stores ----------------------------------------------------------------------------------------------------


@_rule("read_consistency", "write_consistency")
def _reads_see_writes(settings: Settings, _: Domain, name: Name) -> str | None:
    if settings.read_consistency == settings.write_consistency:
        return None
    return (
        f"{name('read_consistency')} is {settings.read_consistency} and {name('write_consistency')} is "
        f"{settings.write_consistency}: with more than one data centre a read of the one need not see a write of the "
        f"other (R1); make them the same"
    )


@_rule("service_name", "store")
def _services_have_names(settings: Settings, _: Domain, name: Name) -> str | None:
    if settings.embedded or settings.service_name != "__main__":
        return None
    return (
        f"{name('service_name')} is '__main__', the name of any application that is run as a script: outside the "
        f"embedded store such applications would share their transactions; set it to the service's name"
    )


# -- domains ---------------------------------------------------------------------------------------------------


@_domain_rule("retry_delay_windows", "window_interval", "transaction_lifetime")
def _retries_come_in_time(settings: Settings, domain: Domain, name: Name) -> str | None:
    return _within_lifetime(settings, domain, name, "retry_delay_windows", domain.retry_delay_windows)


@_domain_rule("restore_delay_windows", "window_interval", "transaction_lifetime")
def _watchdogs_come_in_time(settings: Settings, domain: Domain, name: Name) -> str | None:
    return _within_lifetime(settings, domain, name, "restore_delay_windows", domain.restore_delay_windows)


def _within_lifetime(settings: Settings, domain: Domain, name: Name, field: str, windows: int) -> str | None:
    delay = windows * settings.window_interval
    if delay < domain.transaction_lifetime:
        return None
    return (
        f"{name(field)} is {windows}: times {name('window_interval')} ({told(settings.window_interval)}) it is "
        f"{told(delay)}, which must be under {name('transaction_lifetime')} ({told(domain.transaction_lifetime)}), or "
        f"a transaction would be too old when it is found (R12); lower the first or raise the last"
    )


@_domain_rule("step_lease", "clock_skew_margin")
def _step_leases_outlive_skew(settings: Settings, domain: Domain, name: Name) -> str | None:
    least = 2 * settings.clock_skew_margin + SECOND
    if domain.step_lease >= least:
        return None
    return (
        f"{name('step_lease')} is {told(domain.step_lease)}: it must be at least twice {name('clock_skew_margin')} "
        f"({told(settings.clock_skew_margin)}) and 1 s, so {told(least)}; raise it"
    )


@_domain_rule("step_budget", "request_timeout", "clock_skew_margin", "restore_delay_windows", "window_interval")
def _steps_end_before_the_fence(settings: Settings, domain: Domain, name: Name) -> str | None:
    needed = settings.step_budget + settings.request_timeout + settings.clock_skew_margin
    # A watchdog lies in the n-th window from now, of which the present one may be nearly over.
    sure = (domain.restore_delay_windows - 1) * settings.window_interval
    if needed <= sure:
        return None
    return (
        f"{name('step_budget')} is {told(settings.step_budget)}: with {name('request_timeout')} "
        f"({told(settings.request_timeout)}) and {name('clock_skew_margin')} ({told(settings.clock_skew_margin)}) it "
        f"is {told(needed)}, and only {told(sure)} are sure before the watchdog's fence (R6), by "
        f"{name('restore_delay_windows')} ({domain.restore_delay_windows}) and {name('window_interval')} "
        f"({told(settings.window_interval)}); lower the first or raise restore_delay_windows"
    )
