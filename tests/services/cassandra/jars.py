"""The jars of Cassandra, fetched once by Maven."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services import cache

POM = Path(__file__).with_name("pom.xml")
VERSION = "5.0.8"
LONGEST = 600


def jars() -> Path:
    """The folder of jars; the first call on a machine takes half a minute.

    Raises:
        FileNotFoundError: There is no Java or no Maven.
        subprocess.SubprocessError: Maven could not get them.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"{program} is not on PATH: install a JDK of version 17 and Maven")
    folder = cache() / f"cassandra-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "cassandra.lock").open("w") as lock:
        # Of two test runs the second one waits.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        shutil.copy(POM, work)
        command = ["mvn", "-B", "-ntp", "-q", "package", f"-Dlib.folder={work}/lib", f"-Dcassandra.version={VERSION}"]
        subprocess.run(command, cwd=work, check=True, timeout=LONGEST)
        # Whole or not at all.
        Path(work, "lib").rename(folder)
