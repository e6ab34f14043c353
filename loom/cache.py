"""The cache of executed chapters in ``.weave/``: by name and execution key.

A file that is not what it should be counts as absent and is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from loom.keys import Key, Sources, read_digest
from loom.parts import Code, Parts

FORMAT = 1
KEPT = 3  # entries a chapter; the oldest are removed
# Outputs that show line numbers hold only while the lines stay where they are.
PLACE = re.compile(r"([\w.-]+\.(?:py|qmd))[\"']?(?::\s*|, line |, )\d")
NUMBER = re.compile(
    r"(?i)\bline \d|\.loc\s|\bloc\(|\blineno\b|^\s*\d+:|^\s*\d+ \|", re.M
)
ASKS_LINES = re.compile(
    r"lineno|getsource|findsource|co_lines|co_positions|traceback|getframe"
    r"|currentframe|inspect\.(?:stack|trace)|format_exc|print_exc|\.loc\b"
)


def folder(root: Path, name: str) -> Path:
    return root / ".weave" / "chapters" / name


def load(sources: Sources, name: str, key: Key) -> dict[str, Any] | None:
    """The entry of a key: ``outputs``, ``values`` and ``seconds``; None without one.

    The files that cells have read must say the same, and the lines that outputs
    show must be where they were.
    """
    path = folder(sources.root, name) / f"{key.value[:32]}.json"
    entry = _read(path)
    if not entry or entry["parts"] != key.parts or _moved(sources, entry, key):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    results: dict[str, Any] = entry["results"]
    return results


def _moved(sources: Sources, entry: dict[str, Any], key: Key) -> list[str]:
    """The files read that have changed, and those whose lines have moved."""
    moved = []
    for rel, (said, lines) in entry["read"].items():
        now = read_digest(sources, rel)
        if now[0] != said or (lines and now[1] != lines):
            moved.append(rel)
    for rel, lines in entry["lines"].items():
        if key.lines.get(rel) != lines:
            moved.append(f"the lines of {rel}")
    return moved


def _read(path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(path.read_bytes())
        results = entry["results"]
        sound = (
            entry["format"] == FORMAT
            and all(isinstance(entry[k], dict) for k in ("parts", "lines", "read"))
            and all(len(pair) == 2 for pair in entry["read"].values())
            and all(isinstance(o, list) for o in results["outputs"].values())
            and all(isinstance(value, str) for value in results["values"])
            and isinstance(results["seconds"], float)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if sound else None


def why(sources: Sources, name: str, key: Key) -> str:
    """Why a chapter has to run: what changed since the newest entry."""
    entries = sorted(folder(sources.root, name).glob("*.json"), key=_age)
    for path in reversed(entries):
        if entry := _read(path):
            changed = key.changed(entry["parts"]) or _moved(sources, entry, key)
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            return f"changed: {', '.join(changed[:3])}{more}"
    return "not in the cache"


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def store(
    sources: Sources,
    key: Key,
    parts: Parts,
    results: dict[str, Any],
    read: Iterable[str],
) -> None:
    """Write an entry atomically and prune the oldest.

    ``read`` are the repository's files that the chapter's cells have opened.
    """
    name = parts.chapter.name
    count = lines_that_count(parts, results)
    seen: dict[str, list[str]] = {}
    for rel in sorted(set(read) - key.lines.keys() - key.parts.keys()):
        said, lines = read_digest(sources, rel)
        seen[rel] = [said, lines if count(rel) else ""]
    entry = {
        "format": FORMAT,
        "parts": key.parts,
        "lines": {rel: said for rel, said in key.lines.items() if count(rel)},
        "read": seen,
        "results": results,
    }
    home = folder(sources.root, name)
    home.mkdir(parents=True, exist_ok=True)
    handle, spare = tempfile.mkstemp(dir=home, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(entry, file)
        os.replace(spare, home / f"{key.value[:32]}.json")
    finally:
        Path(spare).unlink(missing_ok=True)
    for old in sorted(home.glob("*.json"), key=_age)[:-KEPT]:
        old.unlink(missing_ok=True)


def lines_that_count(parts: Parts, results: dict[str, Any]) -> Callable[[str], bool]:
    """Whether the line numbers of a file can show in a chapter's outputs.

    A number without a file's name beside it (``.loc``, "line 12"), or a cell that
    asks for line numbers, can be of the chapter itself and of all code it imports.
    """
    chapter = parts.chapter
    text = "\n".join(_texts(results))
    named = {place.rpartition("/")[2] for place in PLACE.findall(text)}
    codes = [p.cell.code for p in parts.parts if isinstance(p, Code) and p.runs]
    asked = any(ASKS_LINES.search(code) for code in codes)
    anywhere = asked or bool(NUMBER.search(text))

    def count(rel: str) -> bool:
        base = rel.rpartition("/")[2]
        if rel == chapter.rel:
            own = (chapter.module or rel).rpartition("/")[2]
            return anywhere or base in named or own in named
        if rel.endswith(".qmd"):
            return base in named or (anywhere and base in text)
        return anywhere or base in named

    return count


def _texts(results: dict[str, Any]) -> Iterator[str]:
    yield from results["values"]
    for outputs in results["outputs"].values():
        for output in outputs:
            yield output.get("text", "")
            yield from output.get("traceback", [])
            for key, value in output.get("data", {}).items():
                if key != "image/png":
                    yield value
