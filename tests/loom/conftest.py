"""A small book in a temporary folder, for tests of the workshop."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import tangle

INDEX = '''\
# Preface {#sec-preface .unnumbered}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("__init__")
```

```{python}
#| label: package
#| tangle: true
"""The package of a small book."""

EDITION = 1
```
'''


class LittleBook:
    """A book whose chapters are given as text; `{python}` cells as usual."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "book").mkdir(parents=True)
        self.pages = ["index.qmd"]
        self.write("index.qmd", INDEX)

    def write(self, rel: str, text: str) -> None:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        if rel.endswith(".qmd") and rel not in self.pages:
            self.pages.append(rel)
        listed = "".join(f"    - {page}\n" for page in self.pages)
        (self.root / "_quarto.yml").write_text(
            "project:\n  type: book\n  output-dir: _book\n  execute-dir: project\n"
            "  pre-render: python tangle.py\n"
            "book:\n  title: Little\n  author: Nobody\n  chapters:\n" + listed
        )

    def edit(self, rel: str, old: str, new: str) -> None:
        path = self.root / rel
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {rel}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def read(self) -> tangle.Book:
        """Tangle, and read the book."""
        tangle.tangle(self.root)
        return tangle.read_book(self.root)

    def line(self, rel: str, words: str) -> int:
        """The number of the one line that holds these words."""
        lines = (self.root / rel).read_text(encoding="utf-8").split("\n")
        (found,) = [n for n, line in enumerate(lines, 1) if words in line]
        return found


@pytest.fixture(scope="session")
def make_book(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], LittleBook]:
    return lambda: LittleBook(tmp_path_factory.mktemp("little") / "root")
