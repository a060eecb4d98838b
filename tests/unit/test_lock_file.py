"""The file that a process holds a lock on for life, and what stands in it (R18, H14)."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from uuid import uuid4

import pytest

from stacksaga_flask import Settings, read_settings
from stacksaga_flask.engine import lock_file
from stacksaga_flask.engine.lock_file import LockFile, NoLockFile, boot_id, lock_files_of, open_lock_file


def settings(run_directory: Path | str, store: str = "sqlite:///shop.db") -> Settings:
    config = {"STACKSAGA_RUN_DIRECTORY": str(run_directory), "STACKSAGA_STORE": store}
    return read_settings(config, application_name="shop")


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_it_lies_under_its_scope_locked_and_names_this_start_of_the_kernel(tmp_path: Path) -> None:
    opened = open_lock_file(settings(tmp_path), "web-1")
    assert isinstance(opened, LockFile)
    assert opened.path.relative_to(tmp_path).parts[:3] == ("default", "default", "shop")
    assert opened.path.name == "web-1"
    assert is_locked(opened.path)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert opened.path.read_text() == f"stacksaga 1 {boot} web-1 {os.getpid()}\n"
    assert stat.S_IMODE(opened.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in opened.path.parent.iterdir()] == ["web-1"]
    opened.close()
    assert not opened.path.exists()


def test_it_tells_what_was_begun_and_what_has_ended(tmp_path: Path) -> None:
    opened = LockFile(tmp_path, "web-1")
    one, other = uuid4(), uuid4()
    opened.started(one)
    opened.started(other)
    opened.ended(one)
    third = uuid4()
    opened.started(third)
    lines = opened.path.read_text().splitlines()[1:]
    assert lines == [f"+ {one.hex}", f"+ {other.hex}", f"- {one.hex}", f"+ {third.hex}"]
    opened.close()
    assert opened.path.exists(), "something was in flight, so it is left to a finder"
    assert not is_locked(opened.path)


def test_it_does_not_grow_without_bound_and_keeps_what_is_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_file, "LONGEST", 2_000)
    opened = LockFile(tmp_path, "web-1")
    long = uuid4()
    opened.started(long)
    sizes = []
    for _ in range(500):
        short = uuid4()
        opened.started(short)
        opened.ended(short)
        sizes.append(opened.path.stat().st_size)
        assert is_locked(opened.path)
    assert max(sizes) < 2_100
    lines = opened.path.read_text().splitlines()
    assert f"+ {long.hex}" in lines
    assert f"- {long.hex}" not in lines
    opened.close()


def test_processes_of_another_store_or_scope_have_another_place(tmp_path: Path) -> None:
    places = {
        lock_files_of(settings(tmp_path, store))
        for store in (
            "sqlite:///a.db",
            "sqlite:///b.db",
            "postgresql://db/shop",
            "cassandra://db/shop?local_datacenter=d",
        )
    }
    assert len(places) == 4
    with_password = settings(tmp_path, "postgresql://u:secret@db/shop")
    assert lock_files_of(with_password) == lock_files_of(settings(tmp_path, "postgresql://u:other@db/shop"))


def test_there_is_none_in_memory_and_where_it_is_switched_off(tmp_path: Path) -> None:
    assert isinstance(open_lock_file(settings(tmp_path, "memory://"), "web-1"), NoLockFile)
    assert isinstance(open_lock_file(settings(""), "web-1"), NoLockFile)


def test_where_it_cannot_be_made_the_process_goes_on_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    opened = open_lock_file(settings(tmp_path / "file"), "web-1")
    assert isinstance(opened, NoLockFile)
    assert "noticed by its watchdogs only" in caplog.text
    assert "STACKSAGA_RUN_DIRECTORY" in caplog.text


def test_a_file_system_that_other_hosts_share_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A network file system cannot be mounted here; what the kernel says of one is put in its place.
    device = tmp_path.stat().st_dev
    mounts = f"36 35 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - nfs4 server:/export rw\n"
    read_text = Path.read_text

    def told(path: Path, *args: str, **kwargs: str) -> str:
        return mounts if str(path) == "/proc/self/mountinfo" else read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", told)
    assert isinstance(open_lock_file(settings(tmp_path), "web-1"), NoLockFile)
    assert "nfs4" in caplog.text


def test_a_full_disk_is_told_once_and_the_lock_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = LockFile(tmp_path, "web-1")
    # A descriptor that takes no writes stands for a full disk.
    full = os.open("/dev/full", os.O_WRONLY)
    held = opened._descriptor
    assert held is not None
    spare = os.dup(held)
    os.dup2(full, held)
    os.close(full)
    for _ in range(3):
        opened.started(uuid4())
    assert caplog.text.count("cannot be written") == 1
    os.close(spare)
    opened.close()


def test_a_forked_child_keeps_no_lock(tmp_path: Path) -> None:
    opened = LockFile(tmp_path, "web-1")
    (go_on, wait), (is_there, say) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(say, b"x")
        os.read(go_on, 1)
        os._exit(0)
    try:
        opened.started(uuid4())
        assert os.read(is_there, 1) == b"x"
        opened.close()
        assert not is_locked(opened.path), "the child is alive, and has no copy of the lock"
    finally:
        os.write(wait, b"x")
        assert os.waitpid(child, 0)[1] == 0
        for descriptor in (go_on, wait, is_there, say):
            os.close(descriptor)


def test_the_kernel_tells_which_start_of_it_this_is() -> None:
    assert len(boot_id()) == 36
