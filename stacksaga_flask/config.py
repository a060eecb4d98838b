"""Settings: ``STACKSAGA_*`` keys of a configuration, read once and checked as a whole before anything opens.

Each setting is documented where it is declared. Its key is the name in capitals after ``STACKSAGA_``. Durations
are microseconds here; in a configuration they are a text like ``"24h"``, a number of seconds, or a timedelta.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, get_type_hints

from msgspec import Struct, field, structs
from stacksaga_schema import SCHEMA_VERSION

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config_rules import PREFIX, broken_rules, domain_setting_name, setting_name
from stacksaga_flask.config_values import (
    BadValue,
    Read,
    boolean,
    consistency,
    directory,
    duration,
    keyspace,
    plain_name,
    protection_mode,
    store_url,
    text,
    whole,
    without_password,
)
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.contract import Grid, ProtectionMode, Scope

_MINUTE = 60 * SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_ONE_MIB = 1024 * 1024


def _run_directory() -> str:
    return os.path.join(tempfile.gettempdir(), f"stacksaga-{os.getuid()}")


class Domain(Struct, frozen=True, kw_only=True):
    """What may be set for one saga: its name is its domain."""

    retry_delay_windows: Annotated[int, whole(at_least=1)] = 1
    """How many windows ahead a retry pointer is written."""
    restore_delay_windows: Annotated[int, whole(at_least=2)] = 600
    """How many windows ahead a watchdog is written. With the window interval it says how soon a transaction is found
    whose process died."""
    backoff_cap_windows: Annotated[int, whole(at_least=1)] = 60
    """The most windows between two tries of a revert, or of a step after the pivot."""
    write_protection_mode: Annotated[ProtectionMode, protection_mode] = ProtectionMode.RELAXED_WITH_DEDUP
    """How a step is kept from being recorded twice (R16). A transaction keeps the mode that it started with."""
    step_lease: Annotated[int, duration(whole_seconds=True)] = 5 * SECOND
    """How long a step lease of STRICT lasts, in microseconds."""
    transaction_lifetime: Annotated[int, duration(at_least=SECOND)] = _DAY
    """How old a transaction before its pivot may be when it is found, in microseconds; older ones are frozen (R12)."""
    try_after_lifetime: Annotated[bool, boolean] = False
    """Whether a transaction over its lifetime is tried once more when it is found; it is frozen if that fails (R12)."""
    compensate_after_windows: Annotated[int, whole(at_least=0)] = 0
    """After how many windows since the start a passing failure before the pivot is compensated instead of tried again;
    0 for never."""


class Settings(Domain, frozen=True, kw_only=True, dict=True):
    """All settings; those of `Domain` hold for every saga that has none of its own in `domains`."""

    store: Annotated[str, store_url] = "sqlite:///stacksaga.db"
    """URL of the event store: ``memory://``, ``sqlite:///FILE``, ``postgresql://HOST/DATABASE`` or
    ``cassandra://HOST,HOST/KEYSPACE?local_datacenter=NAME``."""
    store_username: Annotated[str | None, text] = None
    """Who to log in as, unless the URL says it. This and the following six are read from the environment too."""
    store_password: Annotated[str | None, text] = None
    """Password; one in the URL works, with a warning."""
    store_password_file: Annotated[str | None, text] = None
    """File that holds the password, instead of it."""
    store_tls: Annotated[bool, boolean] = False
    """Whether to speak TLS to the store. Certificates and host names are checked."""
    store_ca_file: Annotated[str | None, text] = None
    """PEM file of the authorities that sign the store's certificates; the system's unless set."""
    store_certificate_file: Annotated[str | None, text] = None
    """PEM file of this client's certificate, where the store asks for one."""
    store_key_file: Annotated[str | None, text] = None
    """PEM file of that certificate's key."""
    service_name: Annotated[str, plain_name]
    """Name of this service, part of every key. The application's name unless set."""
    region: Annotated[str, plain_name] = "default"
    """Region, part of every key. Served from one data centre (R15)."""
    cluster: Annotated[str, plain_name] = "default"
    """Virtual cluster, part of every key: each has a recovery of its own."""
    keyspace: Annotated[str, keyspace] = "stacksaga_event_store"
    """Cassandra's keyspace, unless the URL names it."""
    read_consistency: Annotated[str, consistency] = "LOCAL_QUORUM"
    """Consistency level of Cassandra's reads: LOCAL_QUORUM or QUORUM."""
    write_consistency: Annotated[str, consistency] = "LOCAL_QUORUM"
    """Consistency level of Cassandra's writes; the same as of the reads."""

    window_interval: Annotated[int, duration(at_least=SECOND)] = _MINUTE
    """Length of a window in microseconds: whole seconds that divide 86 400, at least 5 s and four skew margins. Stored
    with the scope; every process must have the same (R15)."""
    clock_skew_margin: Annotated[int, duration()] = SECOND
    """δ in microseconds: no two clocks differ by more (R14). Stored with the scope, as the window interval is (R15)."""
    seal_delay: Annotated[int, duration()] = 10 * SECOND
    """Time between a window's opening and its sweep, in microseconds: at least two skew margins, at most one window.
    10 s, or two fifths of a window of less than 25 s, unless set."""
    bucket_size: Annotated[int, whole(at_least=1, at_most=50_000)] = 50_000
    """The most pointers in one bucket (R10)."""
    concurrency: Annotated[int, whole(at_least=1)] = 100
    """How many transactions a retry node re-invokes at once."""
    lookback_days: Annotated[int, whole(at_least=1)] = 2
    """How many days back a retry node re-invokes what it finds; older ones are frozen (R12)."""

    step_attempts: Annotated[int, whole(at_least=1)] = 1
    """How often a step is tried in the process before its transaction is parked."""
    step_budget: Annotated[int, duration(at_least=1000)] = 10 * SECOND
    """How long one attempt at a step may take, in microseconds."""
    step_backoff: Annotated[int, duration()] = SECOND // 5
    """Longest wait before the second attempt in the process, in microseconds; doubled for each further one."""
    request_timeout: Annotated[int, duration(at_least=1000)] = 10 * SECOND
    """How long a request to the event store may take, in microseconds; then its outcome is unknown."""
    shutdown_grace: Annotated[int, duration()] = 30 * SECOND
    """How long a daemon that was told to stop waits for running steps, in microseconds."""
    stop_at_sigterm: Annotated[bool, boolean] = True
    """Whether SIGTERM lets each run end the step it is in and parks it, before the server's own handler is called."""
    run_directory: Annotated[str, directory] = field(default_factory=_run_directory)
    """Directory of this host for the lock files by which the death of a process is noticed at once (R18); the workers
    and the node need the same. Empty for none. ``stacksaga-UID`` in the system's temporary directory unless set."""
    claim_ttl: Annotated[int, duration(whole_seconds=True)] = 30 * SECOND
    """How long a claim lasts, in microseconds (R6)."""
    coordinator_lease: Annotated[int, duration()] = 30 * SECOND
    """How long a ring lease lasts, in microseconds (R7)."""

    payload_limit: Annotated[int, whole(at_least=1)] = _ONE_MIB
    """The most bytes that a payload may have when stored."""
    history_retention: Annotated[int, duration(at_least=SECOND, whole_seconds=True)] = 7 * _DAY
    """How long a finished transaction and its start key are kept, in microseconds (R17)."""
    start_index: Annotated[bool, boolean] = True
    """Whether transactions are indexed by time of start, so that finished ones can be listed and purged."""
    domains: dict[str, Domain] = field(default_factory=dict)
    """Settings of single sagas, by name. In a configuration each is a dict that holds what differs."""

    @property
    def scope(self) -> Scope:
        """Region, cluster and service name."""
        return Scope(self.region, self.cluster, self.service_name)

    @property
    def grid(self) -> Grid:
        """What every process of the scope must agree on (R15)."""
        return Grid(
            schema_version=SCHEMA_VERSION,
            window_interval=self.window_interval // SECOND,
            clock_skew_margin=self.clock_skew_margin,
        )

    @property
    def embedded(self) -> bool:
        """Whether the store lives on this machine alone and needs no setting up."""
        return self.store.partition(":")[0].partition("+")[0] in ("memory", "sqlite")

    def domain(self, saga_name: str) -> Domain:
        """The settings of one saga."""
        return self.domains.get(saga_name) or self._any_domain

    @cached_property
    def _any_domain(self) -> Domain:
        return Domain(**{name: getattr(self, name) for name in _DOMAIN})

    def __repr__(self) -> str:
        hidden = None if self.store_password is None else "***"
        return Struct.__repr__(structs.replace(self, store=without_password(self.store), store_password=hidden))


def read_settings(
    mapping: Mapping[str, Any], *, application_name: str, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read the ``STACKSAGA_*`` keys of a configuration; others are ignored.

    Args:
        mapping: A configuration, Flask's for example.
        application_name: Names the service if ``STACKSAGA_SERVICE_NAME`` does not.
        environment: Where credentials and TLS are looked for if the configuration does not have them.

    Raises:
        ConfigurationError: A key is unknown, or a value breaks a rule. The message lists every problem.
    """
    given = {key.removeprefix(PREFIX): mapping[key] for key in mapping if str(key).startswith(PREFIX)}
    given.setdefault("SERVICE_NAME", application_name)
    for name in FROM_ENVIRONMENT:
        if setting_name(name) in environment:
            given.setdefault(name.upper(), environment[setting_name(name)])
    reading = _Reading()
    values = reading.values(given, {name.upper(): name for name in (*_SETTINGS, "domains")}, PREFIX.__add__)
    own: dict[str, dict[str, Any]] = values.pop("domains", {})
    unread = frozenset(name for name in _SETTINGS if name.upper() in given and name not in values)
    # What could not be read has a problem of its own; the default stands in, and rules that read it say nothing.
    values.setdefault("service_name", application_name)
    values.setdefault("seal_delay", _fitting_seal_delay(values))
    settings = Settings(**values)
    domains = {saga_name: structs.replace(settings.domain(saga_name), **own[saga_name]) for saga_name in own}
    settings = structs.replace(settings, domains=domains)
    overrides = {saga_name: frozenset(own[saga_name]) for saga_name in own}
    problems = [*reading.problems, *broken_rules(settings, overrides, unread)]
    if problems:
        raise ConfigurationError("the configuration is refused:\n" + "\n".join(f"* {problem}" for problem in problems))
    return settings


def _fitting_seal_delay(values: Mapping[str, Any]) -> int:
    interval: int = values.get("window_interval", _MINUTE)
    margin: int = values.get("clock_skew_margin", SECOND)
    return min(10 * SECOND, max(2 * margin, interval * 2 // 5))


class _Reading:
    """Reads values one by one and gathers what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def values(self, given: Mapping[str, Any], known: Mapping[str, str], label: Callable[[str], str]) -> dict[str, Any]:
        """The values that could be read, by setting.

        Args:
            given: Values as they were given.
            known: The setting that each key stands for.
            label: A key as a message names it.
        """
        values = {}
        for key, value in given.items():
            if key not in known:
                self.problems.append(f"{label(key)} is unknown: {_nearest(key, known, label)}")
            elif key == "DOMAINS":
                values[known[key]] = self._domains(value)
            else:
                self._read(label(key), known[key], value, values)
        return values

    def _read(self, label: str, setting: str, value: Any, values: dict[str, Any]) -> None:
        try:
            values[setting] = _READ[setting](value)
        except BadValue as problem:
            shown = "hidden here" if setting == "store_password" else _shown(value)
            self.problems.append(f"{label} is {shown}: {problem}")

    def _domains(self, given: Any) -> dict[str, dict[str, Any]]:
        """For each saga the values that it has of its own and that could be read."""
        if isinstance(given, Mapping):
            return {saga_name: self._domain(saga_name, own) for saga_name, own in given.items()}
        self.problems.append(
            f"{setting_name('domains')} is {_shown(given)}: it is no dict; write "
            f"{{'saga name': {{'restore_delay_windows': 60}}}}"
        )
        return {}

    def _domain(self, saga_name: Any, given: Any) -> dict[str, Any]:
        key = setting_name("domains")
        if saga_name == "default":
            self.problems.append(
                f"{key} has 'default', which no saga is: set {setting_name('restore_delay_windows')} and the like, "
                f"which hold for every saga without settings of its own"
            )
            return {}
        try:
            plain_name(saga_name)
        except BadValue as problem:
            self.problems.append(f"{key} has the saga name {saga_name!r}: {problem}")
            return {}
        if not isinstance(given, Mapping):
            self.problems.append(
                f"{key}[{saga_name!r}] is {_shown(given)}: it is no dict; write one with {', '.join(_DOMAIN)}"
            )
            return {}
        known = {name: name for name in _DOMAIN}
        return self.values(given, known, lambda name: domain_setting_name(saga_name, name))


def _nearest(key: Any, known: Mapping[str, str], label: Callable[[str], str]) -> str:
    nearest = get_close_matches(str(key), known, n=1, cutoff=0.4)
    return f"did you mean {label(nearest[0])}?" if nearest else f"remove it; there are {', '.join(known)}"


def _shown(value: object) -> str:
    if value is None:
        return "None (leave it out for the default)"
    text = repr(without_password(value) if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:79] + "…"


def _reads(cls: type[Domain]) -> dict[str, Read]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


_DOMAIN = tuple(_reads(Domain))
_READ = _reads(Settings)
FROM_ENVIRONMENT = (
    "store_username",
    "store_password",
    "store_password_file",
    "store_tls",
    "store_ca_file",
    "store_certificate_file",
    "store_key_file",
)
"""Settings that are read from the environment too: secrets, and what differs between machines."""
_SETTINGS = tuple(_READ)

SEED_PROPERTY_NAMES: Mapping[str, str] = {
    "spring.application.name": "STACKSAGA_SERVICE_NAME",
    "stacksaga.instance.region": "STACKSAGA_REGION",
    "stacksaga.instance.cluster": "STACKSAGA_CLUSTER",
    "stacksaga.cassandra.config": "STACKSAGA_STORE and STACKSAGA_KEYSPACE",
    "stacksaga.cassandra.read-consistency-level": "STACKSAGA_READ_CONSISTENCY",
    "stacksaga.cassandra.write-consistency-level": "STACKSAGA_WRITE_CONSISTENCY",
    "stacksaga.cassandra.write-protection.default-mode": "STACKSAGA_WRITE_PROTECTION_MODE",
    "stacksaga.cassandra.write-protection.default-lease-duration": "STACKSAGA_STEP_LEASE",
    "stacksaga.cassandra.write-protection.domains.<name>.mode": "STACKSAGA_DOMAINS[name]['write_protection_mode']",
    "stacksaga.cassandra.write-protection.domains.<name>.lease-duration": "STACKSAGA_DOMAINS[name]['step_lease']",
    "stacksaga.cassandra.transaction.lifetime": "STACKSAGA_TRANSACTION_LIFETIME",
    "stacksaga.cassandra.transaction-lifetime": "STACKSAGA_TRANSACTION_LIFETIME",
    "stacksaga.cassandra.recovery.window-interval-minutes": "STACKSAGA_WINDOW_INTERVAL (a duration: 1 is '1m')",
    "stacksaga.cassandra.recovery.bucket-size": "STACKSAGA_BUCKET_SIZE",
    "stacksaga.cassandra.recovery.concurrency": "STACKSAGA_CONCURRENCY",
    "stacksaga.cassandra.recovery.lookback-days": "STACKSAGA_LOOKBACK_DAYS",
    "stacksaga.cassandra.recovery.retry.lookback-days": "STACKSAGA_LOOKBACK_DAYS",
    "stacksaga.cassandra.recovery.retry.domains.default.delay-windows": "STACKSAGA_RETRY_DELAY_WINDOWS",
    "stacksaga.cassandra.recovery.retry.domains.<name>.delay-windows": "STACKSAGA_DOMAINS[name]['retry_delay_windows']",
    "stacksaga.cassandra.recovery.restore.delay-windows": "STACKSAGA_RESTORE_DELAY_WINDOWS",
    "stacksaga.cassandra.recovery.restore.domains.default.delay-windows": "STACKSAGA_RESTORE_DELAY_WINDOWS",
    "stacksaga.cassandra.recovery.restore.domains.<name>.delay-windows": (
        "STACKSAGA_DOMAINS[name]['restore_delay_windows']"
    ),
}
"""The names of the properties that the seeds use, both spellings of each, and where they are set here."""
