"""Rendering with Quarto, where it is installed.

Quarto gets a *shadow project*: the same ``_quarto.yml`` over executed notebooks
instead of chapters, so that it renders both formats without executing anything.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from loom.woven import CodeCell, Prose, Woven
from tangle import Book, BookError, Problem

FORMATS = {"html": "html", "pdf": "typst"}
LINK = re.compile(r"(\]\(|href=\"|^\[[^\]]+\]:\s*)([\w./-]+)\.qmd\b", re.MULTILINE)
UNRESOLVED = re.compile(r"Unable to resolve (?:crossref|link target):?\s*(\S+)")
LEAST = (1, 4)


def find() -> str | None:
    """The ``quarto`` on the path, when it answers with a version that will do."""
    binary = shutil.which("quarto")
    if binary is None:
        return None
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"(\d+)\.(\d+)", done.stdout.strip())
    if done.returncode or match is None:
        return None
    return binary if (int(match[1]), int(match[2])) >= LEAST else None


def render(
    wovens: Sequence[Woven],
    book: Book,
    out: Path,
    formats: Sequence[str],
    binary: str,
) -> list[Path]:
    """Render executed chapters with Quarto into `out`; the files written.

    Raises BookError when Quarto fails or leaves a cross-reference unresolved.
    """
    shadow = book.root / ".weave" / "quarto"
    shutil.rmtree(shadow, ignore_errors=True)
    write_shadow(wovens, book, shadow)
    for name in formats:
        done = subprocess.run(
            [binary, "render", str(shadow), "--to", FORMATS[name]],
            capture_output=True,
            text=True,
            errors="replace",
        )
        said = done.stdout + done.stderr
        problems = list(_unresolved(said, book))
        if done.returncode:
            tail = "\n".join(said.strip().split("\n")[-15:]).replace(".ipynb", ".qmd")
            what = f"quarto render --to {FORMATS[name]} failed:\n{tail}"
            problems.append(Problem("_quarto.yml", 1, what))
        if problems:
            raise BookError(problems)
    made = shadow / _config(book.root).get("project", {}).get("output-dir", "_book")
    shutil.copytree(made, out, dirs_exist_ok=True)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _unresolved(said: str, book: Book) -> Iterator[Problem]:
    """The references that Quarto only warns about, each at its line."""
    for name in dict.fromkeys(UNRESOLVED.findall(said)):
        label = name.lstrip("@").replace(".ipynb", ".qmd")
        for chapter in book.chapters:
            for number, line in enumerate(chapter.text.split("\n"), 1):
                if f"@{label}" in line or f"({label}" in line:
                    what = f"@{label} is not defined anywhere"
                    yield Problem(chapter.rel, number, what)


def write_shadow(wovens: Sequence[Woven], book: Book, shadow: Path) -> None:
    """Write the shadow project: configuration, notebooks, and all they refer to."""
    shadow.mkdir(parents=True)
    config = shadow_config(_config(book.root))
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (shadow / "_quarto.yml").write_text(text, encoding="utf-8")
    for woven in wovens:
        path = (shadow / woven.chapter.rel).with_suffix(".ipynb")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook(woven), indent=1), encoding="utf-8")
    for path in resources(book.root, config):
        goal = shadow / path.relative_to(book.root)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, goal)


def _config(root: Path) -> dict[str, Any]:
    found = yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def shadow_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration over notebooks: nothing is executed, nothing runs before."""
    found = copy.deepcopy(config)
    found["book"] = _to_notebooks(found.get("book", {}))
    found.get("project", {}).pop("pre-render", None)
    found["execute"] = {**(found.get("execute") or {}), "enabled": False}
    return found


def _to_notebooks(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _to_notebooks(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_to_notebooks(value) for value in item]
    if isinstance(item, str) and item.endswith(".qmd"):
        return item.removesuffix(".qmd") + ".ipynb"
    return item


def resources(root: Path, config: dict[str, Any]) -> list[Path]:
    """Files that are not chapters: those under ``book/`` and those the
    configuration names."""
    found = {
        path
        for path in (root / "book").rglob("*")
        if path.is_file() and path.suffix not in (".qmd", ".ipynb")
    }
    stack: list[Any] = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, str) and "." in item and (root / item).is_file():
            found.add(root / item)
    return sorted(found)


def notebook(woven: Woven) -> dict[str, Any]:
    """An executed chapter as a notebook (nbformat 4.4)."""
    cells: list[dict[str, Any]] = []
    if woven.meta:
        header = yaml.safe_dump(woven.meta, sort_keys=False, allow_unicode=True)
        cells.append(
            {"cell_type": "raw", "metadata": {}, "source": f"---\n{header}---"}
        )
    for part in woven.parts:
        cells.append(_markdown(part) if isinstance(part, Prose) else _code(part))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    language = {"name": "python", "file_extension": ".py"}
    return {
        "nbformat": 4,
        "nbformat_minor": 4,
        "metadata": {"kernelspec": kernel, "language_info": language},
        "cells": cells,
    }


def _markdown(part: Prose) -> dict[str, Any]:
    text = LINK.sub(r"\1\2.ipynb", part.text.strip("\n"))
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(part: CodeCell) -> dict[str, Any]:
    """The cell as it stands in the chapter; no ``execution`` metadata, which Quarto
    would print as an attribute."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": part.outputs,
        "source": "\n".join(part.cell.lines),
    }
