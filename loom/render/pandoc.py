"""Running the pandoc binary that the pypandoc_binary wheel carries."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

# Quarto's markdown is pandoc's, with bare addresses made into links.
READER = "markdown+autolink_bare_uris"


class PandocError(Exception):
    """pandoc failed; the message is what it said."""


@functools.cache
def binary() -> str:
    import pypandoc

    return str(pypandoc.get_pandoc_path())


@functools.cache
def version() -> str:
    """What identifies this pandoc: the binary's path, size and time."""
    stat = Path(binary()).stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def run(source: str, *arguments: str) -> tuple[str, str]:
    """pandoc's standard output and its warnings for `source`.

    Raises PandocError when pandoc fails.
    """
    done = subprocess.run(
        [binary(), *arguments],
        input=source.encode("utf-8"),
        capture_output=True,
        check=False,
    )
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode:
        raise PandocError(said or f"pandoc ended with exit code {done.returncode}")
    return done.stdout.decode("utf-8"), said


def parse(markdown: str) -> dict[str, Any]:
    """The syntax tree of `markdown`."""
    # A pipe table with a long line gets relative column widths past --columns.
    out, _ = run(markdown, "-f", READER, "-t", "json", "--columns=100000")
    tree: dict[str, Any] = json.loads(out)
    return tree


def cite(blocks: list[Any], bibliography: tuple[Path, ...]) -> list[Any]:
    """`blocks` with citations formatted and the list of references at the end."""
    tree = {"pandoc-api-version": api(), "meta": {}, "blocks": blocks}
    files = [f"--bibliography={path}" for path in bibliography]
    arguments = ("-f", "json", "-t", "json", "--citeproc", *files)
    out, _ = run(json.dumps(tree), *arguments, "-M", "link-citations=true")
    cited: list[Any] = json.loads(out)["blocks"]
    return cited


@functools.cache
def api() -> tuple[int, ...]:
    """The version of the syntax tree this pandoc speaks."""
    return tuple(parse("")["pandoc-api-version"])


def html(blocks: list[Any]) -> tuple[str, str]:
    """`blocks` as HTML with MathML, and pandoc's warnings."""
    tree = {"pandoc-api-version": list(api()), "meta": {}, "blocks": blocks}
    return run(
        json.dumps(tree),
        *("-f", "json", "-t", "html5", "--mathml", "--wrap=preserve"),
        *("--no-highlight", "--email-obfuscation=none"),
    )
