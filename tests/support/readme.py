"""The README's code blocks, by the file name or the heading they stand under."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file that the paragraph before it names."""

    language: str
    text: str
    file: str | None


def blocks() -> list[Block]:
    """All blocks in order."""
    found: list[Block] = []
    text = (ROOT / "README.md").read_text()
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
        names = re.findall(r"`(\w+\.py)`", before) if "```" not in before else []
        found.append(Block(match[1], match[2], names[-1] if names else None))
    return found


def write_files(folder: Path, *names: str) -> None:
    """Write the README's files of these names into a folder."""
    by_name = {block.file: block.text for block in blocks() if block.language == "python"}
    for name in names:
        (folder / name).write_text(by_name[name])


def block_of(language: str) -> Block:
    """The only block of a language."""
    (only,) = [block for block in blocks() if block.language == language]
    return only
