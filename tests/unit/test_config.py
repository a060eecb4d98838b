"""Settings are read once and checked as a whole (design, section 8; R15)."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stacksaga_flask.config import SEED_PROPERTY_NAMES, Domain, Settings, read_settings
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.contract import ProtectionMode

SECOND = 1_000_000
CASSANDRA = {"STACKSAGA_STORE": "cassandra://db1/"}


def read(**settings: Any) -> Settings:
    return read_settings({f"STACKSAGA_{name}": value for name, value in settings.items()}, application_name="shop")


def problems(**settings: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        read(**settings)
    return [line.removeprefix("* ") for line in str(refused.value).splitlines()[1:]]


def test_the_defaults_are_those_of_the_design() -> None:
    settings = read()
    assert msgspec.structs.asdict(settings) == {
        "store": "sqlite:///stacksaga.db",
        "store_username": None,
        "store_password": None,
        "store_password_file": None,
        "store_tls": False,
        "store_ca_file": None,
        "store_certificate_file": None,
        "store_key_file": None,
        "service_name": "shop",
        "region": "default",
        "cluster": "default",
        "keyspace": "stacksaga_event_store",
        "read_consistency": "LOCAL_QUORUM",
        "write_consistency": "LOCAL_QUORUM",
        "write_protection_mode": ProtectionMode.RELAXED_WITH_DEDUP,
        "step_lease": 5 * SECOND,
        "transaction_lifetime": 86_400 * SECOND,
        "try_after_lifetime": False,
        "run_directory": str(Path(tempfile.gettempdir(), f"stacksaga-{os.getuid()}")),
        "compensate_after_windows": 0,
        "window_interval": 60 * SECOND,
        "clock_skew_margin": SECOND,
        "seal_delay": 10 * SECOND,
        "bucket_size": 50_000,
        "concurrency": 100,
        "lookback_days": 2,
        "retry_delay_windows": 1,
        "restore_delay_windows": 600,
        "backoff_cap_windows": 60,
        "step_attempts": 1,
        "step_budget": 10 * SECOND,
        "step_backoff": 200_000,
        "shutdown_grace": 30 * SECOND,
        "stop_at_sigterm": True,
        "request_timeout": 10 * SECOND,
        "claim_ttl": 30 * SECOND,
        "coordinator_lease": 30 * SECOND,
        "payload_limit": 1_048_576,
        "history_retention": 604_800 * SECOND,
        "start_index": True,
        "domains": {},
    }


def test_keys_of_others_are_ignored() -> None:
    mapping = {"SECRET_KEY": "x", "SQLALCHEMY_ECHO": 1, "stacksaga_region": 3, "STACKSAGA_REGION": "eu"}
    assert read_settings(mapping, application_name="shop").region == "eu"


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        ("24h", 86_400 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("1h 30m", 5_400 * SECOND),
        ("500ms", 500_000),
        ("1.5s", 1_500_000),
        ("7d", 604_800 * SECOND),
        (90, 90 * SECOND),
        (0.25, 250_000),
        (timedelta(minutes=2), 120 * SECOND),
    ],
)
def test_a_duration_is_a_text_a_number_of_seconds_or_a_timedelta(written: Any, microseconds: int) -> None:
    assert read(SHUTDOWN_GRACE=written).shutdown_grace == microseconds


@pytest.mark.parametrize(
    "written",
    ["", "soon", "30", "1h, 30m", "1h-30m", "5mm", "1y", True, None, float("nan"), float("inf"), [1], "1..5s"],
)
def test_what_is_no_duration_is_refused_with_the_way_to_write_one(written: Any) -> None:
    (problem,) = problems(SHUTDOWN_GRACE=written)
    assert problem.startswith("STACKSAGA_SHUTDOWN_GRACE is ")
    assert '"1h30m"' in problem


def test_numbers_and_booleans_may_come_from_the_environment_as_text() -> None:
    settings = read(BUCKET_SIZE="1000", START_INDEX="false")
    assert (settings.bucket_size, settings.start_index) == (1000, False)


@pytest.mark.parametrize("value", [1.5, "many", True, None, -1, 0, 50_001])
def test_a_bucket_size_that_is_no_number_up_to_50_000_is_refused(value: Any) -> None:
    (problem,) = problems(BUCKET_SIZE=value)
    assert problem.startswith("STACKSAGA_BUCKET_SIZE is ")


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert problems(WINDOW_INTERVL="60s") == [
        "STACKSAGA_WINDOW_INTERVL is unknown: did you mean STACKSAGA_WINDOW_INTERVAL?"
    ]


def test_every_problem_is_told_at_once() -> None:
    found = problems(STROE="x", BUCKET_SIZE=0, WINDOW_INTERVAL="7s", STEP_LEASE="2s", REGION="Zürich")
    assert [line.split(" ")[0] for line in found] == [
        "STACKSAGA_STROE",
        "STACKSAGA_BUCKET_SIZE",
        "STACKSAGA_REGION",
        "STACKSAGA_WINDOW_INTERVAL",
        "STACKSAGA_STEP_LEASE",
    ]


def test_a_value_that_cannot_be_read_is_told_once_and_not_by_the_rules_that_read_it() -> None:
    found = problems(CLOCK_SKEW_MARGIN="a lot", STEP_LEASE="1s")
    assert [line.split(" ")[0] for line in found] == ["STACKSAGA_CLOCK_SKEW_MARGIN"]


# -- rules of single settings and of several ------------------------------------------------------------------


@pytest.mark.parametrize("interval", ["7s", "4s", "60.5s", "90001s", "25h"])
def test_windows_are_whole_seconds_of_at_least_five_that_divide_the_day(interval: str) -> None:
    assert any("whole seconds that divide 86 400" in line for line in problems(WINDOW_INTERVAL=interval))


def test_a_window_is_at_least_four_skew_margins() -> None:
    assert read(WINDOW_INTERVAL="12s", CLOCK_SKEW_MARGIN="3s", STEP_LEASE="7s").window_interval == 12 * SECOND
    (problem,) = problems(WINDOW_INTERVAL="12s", CLOCK_SKEW_MARGIN="3.1s", STEP_LEASE="8s", SEAL_DELAY="7s")
    assert "four times STACKSAGA_CLOCK_SKEW_MARGIN (3.1s)" in problem


@pytest.mark.parametrize(
    ("interval", "margin", "seal_delay"),
    [("60s", "1s", 10), ("5s", "1s", 2), ("10s", "1s", 4), ("20s", "5s", 10), ("24s", "1s", 9.6)],
)
def test_the_seal_delay_fits_its_window_unless_set(interval: str, margin: str, seal_delay: float) -> None:
    settings = read(WINDOW_INTERVAL=interval, CLOCK_SKEW_MARGIN=margin, STEP_LEASE="11s")
    assert settings.seal_delay == seal_delay * SECOND


@pytest.mark.parametrize("seal_delay", ["1.9s", "61s"])
def test_a_seal_delay_is_at_least_two_skew_margins_and_at_most_one_window(seal_delay: str) -> None:
    (problem,) = problems(SEAL_DELAY=seal_delay)
    assert "at most STACKSAGA_WINDOW_INTERVAL (1m)" in problem


def test_a_watchdog_after_the_lifetime_is_refused() -> None:
    assert read(RESTORE_DELAY_WINDOWS=1439).restore_delay_windows == 1439
    (problem,) = problems(RESTORE_DELAY_WINDOWS=1440)
    assert problem.startswith("STACKSAGA_RESTORE_DELAY_WINDOWS is 1440: ")
    assert "must be under STACKSAGA_TRANSACTION_LIFETIME (24h)" in problem


def test_a_retry_after_the_lifetime_is_refused() -> None:
    (problem,) = problems(RETRY_DELAY_WINDOWS=1440)
    assert problem.startswith("STACKSAGA_RETRY_DELAY_WINDOWS is 1440: ")


def test_a_restore_delay_under_two_windows_is_refused() -> None:
    (problem,) = problems(RESTORE_DELAY_WINDOWS=1)
    assert "at least 2" in problem


def test_a_step_lease_outlives_twice_the_skew_margin_and_a_second() -> None:
    assert read(STEP_LEASE="3s").step_lease == 3 * SECOND
    (problem,) = problems(STEP_LEASE="2s")
    assert problem.startswith("STACKSAGA_STEP_LEASE is 2s: ")


@pytest.mark.parametrize("name", ["STEP_LEASE", "CLAIM_TTL", "HISTORY_RETENTION"])
def test_what_is_a_time_to_live_in_the_store_is_whole_seconds(name: str) -> None:
    (problem,) = problems(**{name: "45.5s"})
    assert "whole seconds" in problem


def test_a_step_budget_ends_before_the_watchdogs_fence() -> None:
    # Two windows ahead one whole window is sure: 49 s + 10 s + 1 s fill it.
    assert read(RESTORE_DELAY_WINDOWS=2, STEP_BUDGET="49s").step_budget == 49 * SECOND
    (problem,) = problems(RESTORE_DELAY_WINDOWS=2, STEP_BUDGET="49.1s")
    assert "only 1m are sure before the watchdog's fence (R6)" in problem


def test_a_claim_is_trusted_for_longer_than_a_request_takes() -> None:
    # 14 s - 1 s - 2 x 1 s leave 11 s.
    assert read(CLAIM_TTL="14s").claim_ttl == 14 * SECOND
    (problem,) = problems(CLAIM_TTL="13s")
    assert problem.startswith("STACKSAGA_CLAIM_TTL is 13s: ")


def test_a_ring_lease_outlives_twice_the_skew_margin() -> None:
    (problem,) = problems(COORDINATOR_LEASE="2s")
    assert problem.startswith("STACKSAGA_COORDINATOR_LEASE is 2s: ")


def test_reads_and_writes_use_one_of_two_consistency_levels_and_the_same() -> None:
    assert read(READ_CONSISTENCY="QUORUM", WRITE_CONSISTENCY="QUORUM").write_consistency == "QUORUM"
    (weak,) = problems(READ_CONSISTENCY="ONE")
    assert 'write "LOCAL_QUORUM" or "QUORUM"' in weak
    (mixed,) = problems(READ_CONSISTENCY="QUORUM")
    assert "make them the same" in mixed


@pytest.mark.parametrize("mode", ["STRICT", ProtectionMode.STRICT])
def test_strict_is_refused_and_never_run_as_something_weaker(mode: Any) -> None:
    for found in (
        problems(WRITE_PROTECTION_MODE=mode),
        problems(DOMAINS={"payment": {"write_protection_mode": mode}}),
    ):
        assert len(found) == 1
        assert "not in this version, and is never run as something weaker" in found[0]


# -- names and stores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " shop", "Grüße", "a\tb", None, 3])
def test_names_in_keys_are_printable_ascii(name: Any) -> None:
    for setting in ("SERVICE_NAME", "REGION", "CLUSTER"):
        (problem,) = problems(**{setting: name})
        assert problem.startswith(f"STACKSAGA_{setting} is ")
        assert "printable ASCII" in problem


def test_main_is_no_name_of_a_service_outside_the_embedded_store() -> None:
    with pytest.raises(ConfigurationError, match="STACKSAGA_SERVICE_NAME is '__main__'"):
        read_settings(CASSANDRA, application_name="__main__")
    for store in ("memory://", "sqlite:///shop.db", "sqlite+pysqlite:///shop.db"):
        settings = read_settings({"STACKSAGA_STORE": store}, application_name="__main__")
        assert (settings.service_name, settings.embedded) == ("__main__", True)


@pytest.mark.parametrize("value", ["", "event-store", "1st", "a" * 49, 'x"; DROP KEYSPACE y; --'])
def test_a_keyspace_is_a_plain_identifier(value: str) -> None:
    (problem,) = problems(KEYSPACE=value)
    assert problem.startswith("STACKSAGA_KEYSPACE is ")


def test_a_store_is_named_by_a_url() -> None:
    (problem,) = problems(STORE="shop.db")
    assert '"sqlite:///shop.db"' in problem


def test_a_password_in_the_stores_url_is_never_shown() -> None:
    assert "hunter2" not in repr(read(STORE="postgresql://shop:hunter2@db/shop"))
    (problem,) = problems(STORE="postgresql:/shop:hunter2@db/shop")
    assert problem.startswith("STACKSAGA_STORE is 'postgresql:***@db/shop': ")


# -- domains ---------------------------------------------------------------------------------------------------


def test_a_domain_has_what_it_does_not_set_from_the_settings() -> None:
    settings = read(
        RETRY_DELAY_WINDOWS=2, DOMAINS={"payment": {"restore_delay_windows": 300, "transaction_lifetime": "12h"}}
    )
    assert settings.domain("payment") == Domain(
        retry_delay_windows=2, restore_delay_windows=300, transaction_lifetime=43_200 * SECOND
    )
    assert settings.domain("order") == Domain(retry_delay_windows=2)


def test_rules_hold_for_each_domain_and_name_the_setting_that_is_its_own() -> None:
    found = problems(DOMAINS={"payment": {"restore_delay_windows": 600, "transaction_lifetime": "10h"}})
    assert found == [
        "STACKSAGA_DOMAINS['payment']['restore_delay_windows'] is 600: times STACKSAGA_WINDOW_INTERVAL (1m) it is 10h, "
        "which must be under STACKSAGA_DOMAINS['payment']['transaction_lifetime'] (10h), or a transaction would be too "
        "old when it is found (R12); lower the first or raise the last"
    ]
    (lease,) = problems(DOMAINS={"payment": {"step_lease": 2}})
    assert lease.startswith("STACKSAGA_DOMAINS['payment']['step_lease'] is 2s: ")
    (budget,) = problems(STEP_BUDGET="50s", DOMAINS={"payment": {"restore_delay_windows": 2}})
    assert "STACKSAGA_DOMAINS['payment']['restore_delay_windows'] (2)" in budget


def test_a_problem_of_the_settings_is_not_told_again_for_each_domain() -> None:
    assert len(problems(STEP_LEASE="1s", DOMAINS={"a": {"retry_delay_windows": 2}, "b": {}})) == 1


@pytest.mark.parametrize(
    ("domains", "told"),
    [
        (["payment"], "it is no dict"),
        ({"payment": 3}, "it is no dict"),
        ({"päyment": {}}, "printable ASCII"),
        ({3: {}}, "printable ASCII"),
        ({"default": {"retry_delay_windows": 2}}, "which no saga is"),
        ({"payment": {"restore_delay": 2}}, "did you mean STACKSAGA_DOMAINS['payment']['restore_delay_windows']?"),
        ({"payment": {"store": "memory://"}}, "is unknown"),
    ],
)
def test_domains_that_could_not_mean_anything_are_refused(domains: Any, told: str) -> None:
    (problem,) = problems(DOMAINS=domains)
    assert problem.startswith("STACKSAGA_DOMAINS")
    assert told in problem


# -- the seeds -------------------------------------------------------------------------------------------------


def test_every_setting_that_a_seeds_property_maps_to_exists() -> None:
    fields = {field.name for field in msgspec.structs.fields(Settings)}
    domain_fields = {field.name for field in msgspec.structs.fields(Domain)}
    for ours in SEED_PROPERTY_NAMES.values():
        names = re.findall(r"STACKSAGA_([A-Z_]+)", ours)
        assert names
        assert {name.lower() for name in names} <= fields
        assert set(re.findall(r"\['(\w+)'\]", ours)) <= domain_fields


def test_both_spellings_of_the_seeds_are_mapped() -> None:
    prefix = "stacksaga.cassandra."
    for one, other in [
        ("transaction.lifetime", "transaction-lifetime"),
        ("recovery.retry.lookback-days", "recovery.lookback-days"),
        ("recovery.restore.delay-windows", "recovery.restore.domains.default.delay-windows"),
    ]:
        assert SEED_PROPERTY_NAMES[prefix + one] == SEED_PROPERTY_NAMES[prefix + other]
