"""Text for Typst: escaping, string literals, and code lines that fit the page."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

COLUMNS = 88
"""Columns of code that fit between the margins of the printed page."""

TEXT_WIDTH = 399.6  # points between the margins, as book.typ sets them
CODE_SIZE = 7.3  # points
SMALLEST = 6.3  # points; below, lines are cut earlier instead
_ADVANCE = 0.6021  # width of a character of DejaVu Sans Mono, in ems
_PADDING = 12.0  # points left and right of the code in its block

_ESCAPE = re.compile(r"([!-/:-@\[-`{-~])")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_INVISIBLE = dict.fromkeys(
    [*range(0x00, 0x09), *range(0x0B, 0x20), 0x7F, 0xFE0E, 0xFE0F, 0xFEFF]
)
_BREAK_AFTER = re.compile(r"(?<=[\w)\]])([._/,=:(\[|])(?=[\w\"'(\[])")


class Wrapped(NamedTuple):
    """Lines that fit, and the 1-based numbers of those that continue another."""

    text: str
    continued: tuple[int, ...]


def clean(text: str) -> str:
    """The text without terminal colors, control characters and selectors."""
    return _ANSI.sub("", text).translate(_INVISIBLE)


def escape(text: str) -> str:
    """The text as Typst markup that sets exactly these characters."""
    return _ESCAPE.sub(r"\\\1", clean(text))


def string(text: str) -> str:
    """The text as a Typst string literal on one line."""
    quoted = clean(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + quoted.replace("\n", "\\n").replace("\t", "\\t") + '"'


def cells(char: str) -> int:
    """Columns that a character takes in a fixed-width font."""
    if unicodedata.combining(char) or unicodedata.category(char) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def wrap(text: str, columns: int = COLUMNS) -> Wrapped:
    """Cut lines longer than `columns`; a continued line keeps 2 for its mark.

    A cut falls after white space or a comma in the last third of the line where
    there is one, else at the last column.
    """
    lines: list[str] = []
    continued: list[int] = []
    for line in clean(text).expandtabs(4).rstrip("\n").split("\n"):
        room = columns
        while (cut := _cut(line, room)) < len(line):
            lines.append(line[:cut].rstrip())
            line = line[cut:].lstrip(" ")
            room = columns - 2
            continued.append(len(lines) + 1)
        lines.append(line)
    return Wrapped("\n".join(lines), tuple(continued))


def fit(text: str, inset: float) -> tuple[Wrapped, float]:
    """Code for a place `inset` points narrower than the text, and its font size.

    The size goes down as far as `SMALLEST` so that 88 columns still fit.
    """
    room = TEXT_WIDTH - inset - _PADDING
    longest = wrap(text, COLUMNS)
    columns = max(
        width(line) + 2 * (number in longest.continued)
        for number, line in enumerate(longest.text.split("\n"), 1)
    )
    size = min(CODE_SIZE, 0.998 * room / (max(columns, 1) * _ADVANCE))
    if size >= SMALLEST:
        return longest, size
    return wrap(text, max(int(0.998 * room / (SMALLEST * _ADVANCE)), 20)), SMALLEST


def width(line: str) -> int:
    """Columns that a line takes."""
    return sum(map(cells, line))


def _cut(line: str, room: int) -> int:
    """How many characters of the line go on this printed line."""
    taken = fitting = 0
    for char in line:
        taken += cells(char)
        if taken > room:
            break
        fitting += 1
    if fitting == len(line):
        return fitting
    for at in range(fitting, fitting - fitting // 3, -1):
        if line[at - 1] in " ," or line[at] == " ":
            return at
    return max(fitting, 1)


def pieces(code: str, longest: int = 18) -> list[str]:
    """Inline code in the pieces between which a line may break.

    A word of at most `longest` characters stays whole; a longer one may break after
    a dot, underscore, slash, comma, or an opening bracket. Spaces break anyway.
    """
    found = [""]
    for word in re.split(r"(?<= )", clean(code)):
        parts = _BREAK_AFTER.sub("\\1\0", word).split("\0")
        if len(word) <= longest:
            parts = [word]
        found[-1] += parts[0]
        for part in parts[1:]:
            if len(found[-1]) < 5 or len(part) < 4:
                found[-1] += part
            else:
                found.append(part)
    return [piece for piece in found if piece]
