from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, WindowGrid
from stacksaga_flask.directory.writer import DirectoryWriter, PointerKind, bucket_of
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import Path

GRID = WindowGrid(interval=60, skew_margin=SECOND)
WINDOW = Window("2026-11-30", 863)
LATER = Window("2026-11-30", 900)
TRANSACTION = uuid.UUID(int=1)


def writer(bucket_size: int = 50_000) -> DirectoryWriter:
    return DirectoryWriter(GRID, "host-1-abc", bucket_size=bucket_size)


@pytest.mark.parametrize(
    ("slot", "kind", "bucket"),
    [
        (0, PointerKind.RETRY, 0),
        (49_999, PointerKind.RETRY, 0),
        (50_000, PointerKind.RETRY, 2),
        (100_000, PointerKind.RETRY, 4),
        (0, PointerKind.WATCHDOG, 1),
        (49_999, PointerKind.WATCHDOG, 1),
        (50_000, PointerKind.WATCHDOG, 3),
    ],
)
def test_slot_n_goes_to_its_bucket(slot: int, kind: PointerKind, bucket: int) -> None:
    assert bucket_of(slot, kind, 50_000) == bucket


def test_each_window_and_kind_counts_by_itself() -> None:
    one = writer(bucket_size=2)
    retries = [one.path(WINDOW, PointerKind.RETRY).bucket for _ in range(5)]
    assert retries == [0, 0, 2, 2, 4]
    assert one.path(WINDOW, PointerKind.WATCHDOG).bucket == 1
    assert one.path(LATER, PointerKind.RETRY).bucket == 0


def test_a_bucket_is_never_overfull_however_many_threads_write() -> None:
    one = writer(bucket_size=10)
    with ThreadPoolExecutor(8) as threads:
        paths = list(threads.map(lambda _: one.path(WINDOW, PointerKind.RETRY), range(1000)))
    counts = [paths.count(Path(*WINDOW, "host-1-abc", bucket)) for bucket in range(0, 200, 2)]
    assert counts == [10] * 100


def test_all_tiers_are_written_until_they_were_acknowledged() -> None:
    one = writer()
    path = one.path(WINDOW, PointerKind.WATCHDOG)
    first = one.register(path, TRANSACTION)
    second = one.register(path, TRANSACTION)
    assert first.tiers == second.tiers == {1, 2, 3, 4, 5}
    one.acknowledged(first, GRID.opens(WINDOW) - 10 * SECOND)
    assert one.register(path, TRANSACTION).tiers == {5}
    other_bucket = one.path(WINDOW, PointerKind.RETRY)
    assert one.register(other_bucket, TRANSACTION).tiers == {4, 5}
    assert one.register(one.path(LATER, PointerKind.RETRY), TRANSACTION).tiers == {1, 2, 3, 4, 5}


def test_tiers_are_forgotten_at_the_fence() -> None:
    one = writer()
    path = one.path(WINDOW, PointerKind.WATCHDOG)
    one.acknowledged(one.register(path, TRANSACTION), GRID.fence(WINDOW) - 1)
    later = one.path(LATER, PointerKind.WATCHDOG)
    one.acknowledged(one.register(later, TRANSACTION), GRID.fence(WINDOW))
    assert one.register(path, TRANSACTION).tiers == {1, 2, 3, 4, 5}
    assert one.register(later, TRANSACTION).tiers == {5}


def test_an_acknowledgement_after_the_fence_is_not_remembered() -> None:
    one = writer()
    path = one.path(WINDOW, PointerKind.WATCHDOG)
    one.acknowledged(one.register(path, TRANSACTION), GRID.fence(WINDOW))
    assert one.register(path, TRANSACTION).tiers == {1, 2, 3, 4, 5}


def test_a_registration_carries_the_windows_timestamps_and_the_instances_token() -> None:
    registration = writer().register(Path(*WINDOW, "host-1-abc", 1), TRANSACTION)
    opens = 1_796_048_580 * SECOND  # 2026-11-30T14:23:00Z
    assert registration.timestamp == opens - 2
    assert registration.day_timestamp == 1_795_996_800 * SECOND
    assert registration.instance_token == token("host-1-abc")
    assert writer().delete(Path(*WINDOW, "host-1-abc", 1), TRANSACTION).timestamp == opens - 1
