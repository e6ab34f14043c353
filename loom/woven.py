"""What execution hands to rendering: an executed chapter, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import tangle

Status = Literal["run", "not-evaluated", "captured", "stale", "missing"]


@dataclass
class Prose:
    """Markdown between two cells; inline expressions are already values."""

    text: str
    line: int


@dataclass
class CodeCell:
    """A cell with its options (parsed as YAML) and its nbformat v4 outputs."""

    cell: tangle.Cell
    options: dict[str, Any]
    outputs: list[dict[str, Any]]
    status: Status


@dataclass
class Woven:
    """An executed chapter: its YAML header and its parts in order."""

    chapter: tangle.Chapter
    meta: dict[str, Any]
    parts: list[Prose | CodeCell]
