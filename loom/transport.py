"""Captures in one archive, to travel from the GPU's machine to the authors'.

An archive holds `MANIFEST`, a digest of each file by name, and the files under the
paths that they have in the repository.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tangle
from loom import captures, keys
from loom.captures import PROJECT, Capture
from tangle import Book, BookError, Chapter, Problem

FORMAT = 1
MANIFEST = "captures.json"
MEMBER = re.compile(r"captures/(\w+)/([a-z0-9][a-z0-9-]*)\.json")
LARGEST = 64 * 2**20  # bytes of one file
MOST = 512 * 2**20  # bytes of all


@dataclass
class Unpacked:
    """What an archive brought: files by what became of them, and what was left out."""

    written: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)


def pack(root: Path, files: Sequence[Path], archive: Path) -> None:
    """Put captures of the book below `root` into an archive, atomically.

    An archive whose name ends in ``gz`` is compressed.
    """
    members = {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(files)}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    manifest = {"format": FORMAT, "project": PROJECT, "files": digests}
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    made = io.BytesIO()
    mode = "w:gz" if archive.name.endswith("gz") else "w"
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in {MANIFEST: text.encode(), **members}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    folder = archive.absolute().parent
    handle, spare = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(made.getvalue())
        os.chmod(spare, 0o644)
        os.replace(spare, archive)
    finally:
        Path(spare).unlink(missing_ok=True)


def unpack(root: Path, archive: Path) -> Unpacked:
    """Copy the captures of an archive into the book below `root`.

    An archive with a fault (no archive, a name outside ``captures/``, another
    project's, a wrong schema, a cell that is not there) is refused as a whole: raises
    BookError with every fault.  A capture whose key no longer fits the code is left
    out.  A file is written only if something but the date differs.
    """
    book = tangle.read_book(root)
    members = _members(archive)
    problems: list[Problem] = []
    found: list[tuple[str, Chapter, tangle.Cell, Capture]] = []
    for name, data in members.items():
        try:
            found.append((name, *_capture(book, name, data, f"{archive}/{name}")))
        except BookError as fault:
            problems += fault.problems
    if problems:
        raise BookError(problems)
    done, files = Unpacked(), {}
    sources = keys.Sources(root)
    for name, chapter, cell, made in found:
        changed = keys.stale_parts(sources, chapter, cell, made.key, made.parts)
        if changed:
            what = f"the capture '{cell.label}' in the archive no longer fits the code;"
            what += f" changed since: {', '.join(changed)}; capture it again"
            done.left_out.append(Problem(chapter.rel, cell.first, what))
        elif _same(root, chapter, made):
            done.same.append(name)
        else:
            done.written.append(name)
            files[captures.capture_path(root, chapter, cell.label)] = members[name]
    captures.write(files)
    return done


def _same(root: Path, chapter: Chapter, made: Capture) -> bool:
    path = captures.capture_path(root, chapter, made.label)
    try:
        return made.says_the_same(captures.load(path, root))
    except BookError:
        return False


def _capture(
    book: Book, name: str, data: bytes, rel: str
) -> tuple[Chapter, tangle.Cell, Capture]:
    """A member of an archive as the capture of a cell of this book."""
    match = MEMBER.fullmatch(name)
    assert match is not None
    module, label = match.groups()
    try:
        made = captures.parse(data.decode("utf-8"), rel, label)
    except UnicodeDecodeError:
        raise BookError([Problem(rel, 1, "not UTF-8 text")]) from None
    for chapter in book.chapters:
        for cell in captures.capture_cells(chapter):
            if chapter.name == module and cell.label == label:
                return chapter, cell, made
    what = f"no chapter of this book has a capture cell '{label}' in module '{module}'"
    raise BookError([Problem(rel, 1, what)])


def _members(archive: Path) -> dict[str, bytes]:
    """The files of an archive, checked against its manifest."""
    found: dict[str, bytes] = {}
    problems: list[Problem] = []
    size = 0

    def wrong(what: str) -> None:
        problems.append(Problem(str(archive), 1, what))

    try:
        with tarfile.open(archive, "r:*") as tar:
            for info in tar:
                if not info.isfile():
                    wrong(f"{info.name!r} is not a plain file")
                elif info.name in found:
                    wrong(f"{info.name!r} is there twice")
                elif info.name != MANIFEST and not MEMBER.fullmatch(info.name):
                    wrong(f"{info.name!r}; accepted: captures/MODULE/LABEL.json")
                elif info.size > LARGEST or (size := size + info.size) > MOST:
                    wrong(f"{info.name!r} is larger than captures are")
                    break
                else:
                    file = tar.extractfile(info)
                    found[info.name] = file.read() if file else b""
    except FileNotFoundError:
        wrong("no such file")
    except (tarfile.TarError, EOFError, OSError, ValueError) as fault:
        wrong(f"not an archive of captures, or cut off ({fault})")
    manifest = found.pop(MANIFEST, None)
    if not problems:
        for what in _disagreements(manifest, found):
            wrong(what)
    if problems:
        raise BookError(problems)
    return found


def _disagreements(text: bytes | None, found: dict[str, bytes]) -> list[str]:
    """What the manifest of an archive says otherwise than its files."""
    if text is None:
        return [f"it has no {MANIFEST}: made by `weave.py --capture --pack`?"]
    try:
        said: Any = json.loads(text)
        digests = dict(said["files"])
        project, number = said["project"], said["format"]
    except (ValueError, KeyError, TypeError):
        return [f"its {MANIFEST} is not a manifest of captures"]
    if (project, number) != (PROJECT, FORMAT):
        got = f"format {number!r} of the project {project!r}"
        return [f"got {got}, not {FORMAT} of {PROJECT!r}"]
    wrong = [f"{name!r} is missing" for name in sorted(digests.keys() - found.keys())]
    for name, data in found.items():
        if digests.get(name) != hashlib.sha256(data).hexdigest():
            wrong.append(f"{name!r} is not as it was packed")
    return wrong
