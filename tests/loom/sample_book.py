"""The sample book as execution would hand it over, without executing it."""

from __future__ import annotations

import base64
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import yaml

import tangle
from loom.render.document import unexecuted
from loom.woven import CodeCell, Woven

SAMPLE = Path(__file__).parent / "fixtures" / "sample"

SVG = """<svg xmlns="http://www.w3.org/2000/svg" class="loom-svg" viewBox="0 0 440 96"
 width="440" height="96" role="img"><defs><pattern id="hatch" width="6" height="6"
 patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6"
 class="hatch" stroke="#555" stroke-width="2"/></pattern></defs><rect class="paper"
 width="440" height="96" fill="#fff"/><text class="muted" x="10" y="20" font-size="12"
 fill="#666">program 0, 1, 2</text><rect class="p0" x="10" y="30" width="130"
 height="40" fill="#8ecae6"/><rect class="p1" x="150" y="30" width="130"
 height="40" fill="#ffd166"/><rect class="p2" x="290" y="30" width="65"
 height="40" fill="#a7c957"/><rect x="365"
 y="30" width="65" height="40" fill="url(#hatch)"/><text class="ink" x="20" y="55"
 font-size="14" fill="#111">0 1 2 3</text></svg>"""

TABLE = """| program | operation | pointer | elements |
|--:|---|---|---|
| 0 | load | `x_ptr` | 0 1 2 3 |
| 2 | load | `x_ptr` | 8 9 ~~10~~ ~~11~~ |
"""


def png(width: int = 4, height: int = 2) -> str:
    """A small gray picture, base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    body = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def display(**data: str) -> dict[str, Any]:
    data = {key.replace("__", "/").replace("_plus_", "+"): v for key, v in data.items()}
    return {"output_type": "display_data", "data": data, "metadata": {}}


OUTPUTS: dict[str, list[dict[str, Any]]] = {
    "setup": [
        display(text__markdown="[Outputs on this page: a stand-in, no run.]{.evidence}")
    ],
    "fig-trace": [display(image__svg_plus_xml=SVG, text__plain="<Drawing>")],
    "by-hand": [
        stream("three lines\n"),
        stream("of text\nand <html> & more\n"),
        display(text__plain="[9, 8, 7]"),
    ],
    "warned": [stream("UserWarning: \x1b[31mcareful\x1b[0m\n", "stderr")],
    "boom": [
        {
            "output_type": "error",
            "ename": "ZeroDivisionError",
            "evalue": "division by zero",
            "traceback": [
                "Traceback (most recent call last):\n"
                '  File "generated/sample.py", line 83, in <module>\n    1 / 0\n',
                "\x1b[31mZeroDivisionError\x1b[0m: division by zero",
            ],
        }
    ],
    "tbl-trace": [display(text__markdown=TABLE, text__plain="<Table>")],
    "h200": [
        display(text__markdown="[NVIDIA H200, 2026-01-02]{.badge .badge-captured}"),
        stream("copy 3.9 TB/s\n"),
    ],
    "h200-missing": [display(text__markdown="[Not yet run]{.badge .badge-missing}")],
    "h200-stale": [
        display(text__markdown="[Stale: the code has changed]{.badge .badge-stale}"),
        stream("3.9 TB/s\n"),
    ],
    "in-callout": [stream("inside\n")],
}
STATUS = {
    "h200": "captured",
    "h200-missing": "missing",
    "h200-stale": "stale",
    "not-run": "not-evaluated",
}


def copy_sample(folder: Path) -> Path:
    """A copy of the sample that a test may change."""
    root = folder / "sample"
    shutil.copytree(SAMPLE, root)
    return root


def weave(book: tangle.Book) -> list[Woven]:
    """Every chapter with the outputs above."""
    wovens = [unexecuted(chapter) for chapter in book.chapters]
    for woven in wovens:
        for part in woven.parts:
            if isinstance(part, CodeCell):
                label = part.cell.label
                part.outputs = OUTPUTS.get(label, [])
                part.status = STATUS.get(label, "run")  # type: ignore[assignment]
                part.options = {
                    key: yaml.safe_load(text) for key, text in part.cell.options.items()
                }
    return wovens
