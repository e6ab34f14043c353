"""TeX formulas to Typst: one pandoc call for a book, kept between builds."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from loom.render import nodes, pandoc
from loom.render.document import write_changed

_MARK = "//loom-formula"
_SCALED = re.compile(r"#scale\(x: (\d+)%, y: \d+%\)\[(\\.|[\w.]+|.)\]")
_DELIMITERS = {"{": "\\{", "}": "\\}"}
Formula = tuple[str, str]
"""("InlineMath" or "DisplayMath", TeX)."""


class FormulaError(ValueError):
    """A formula that pandoc cannot read; `tex` holds it."""

    def __init__(self, tex: str) -> None:
        super().__init__(f"pandoc cannot read the formula {tex!r}")
        self.tex = tex


def convert(formulas: Iterable[Formula], store: Path) -> dict[Formula, str]:
    """Typst source `$…$` for each formula; `store` (JSON) keeps them between calls.

    Raises:
        FormulaError: the first formula that pandoc does not understand.
    """
    wanted = list(dict.fromkeys(formulas))
    known = _read(store)
    missing = [f for f in wanted if _key(f) not in known]
    if missing:
        for formula, typst in zip(missing, _pandoc(missing), strict=True):
            if not (typst.startswith("$") and typst.endswith("$")):
                raise FormulaError(formula[1])
            known[_key(formula)] = typst
        data = json.dumps(known, ensure_ascii=False).encode()
        write_changed(store, data)
    return {formula: known[_key(formula)] for formula in wanted}


def _pandoc(formulas: list[Formula]) -> list[str]:
    """The Typst source pandoc writes for each formula, in order."""
    blocks: list[nodes.Node] = []
    for kind, tex in formulas:
        blocks.append(nodes.para([{"t": "Math", "c": [{"t": kind}, tex]}]))
        blocks.append(nodes.raw_block("typst", _MARK))
    tree = {"pandoc-api-version": pandoc.api(), "meta": {}, "blocks": blocks}
    out, _ = pandoc.run(json.dumps(tree), "-f", "json", "-t", "typst", "--wrap=none")
    return [_mended(part.strip()) for part in out.split(_MARK)[:-1]]


def _mended(typst: str) -> str:
    """Delimiters of a given size, which pandoc writes as scaled text."""
    return _SCALED.sub(
        lambda m: f"stretch({_DELIMITERS.get(m[2], m[2])}, size: #{m[1]}%)", typst
    )


def _key(formula: Formula) -> str:
    return f"{_version()} {formula[0]} {formula[1]}"


@functools.cache
def _version() -> str:
    """What a kept formula depends on: pandoc, and this module."""
    own = Path(__file__).read_bytes() + pandoc.version().encode()
    return hashlib.sha256(own).hexdigest()[:12]


def _read(store: Path) -> dict[str, str]:
    try:
        found = json.loads(store.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
