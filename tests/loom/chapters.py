"""Chapters and books made for the tests of the tangler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import strategies as st

import tangle

ROOT = Path(tangle.__file__).parent
INDEX = '# Preface\n\n```{python}\n#| label: package\n#| tangle: true\n"""P."""\n```\n'


def cell(*code: str, label: str = "a", tangled: bool = True) -> str:
    """The text of a cell."""
    head = [f"#| label: {label}", *["#| tangle: true"] * tangled]
    return "\n".join(["```{python}", *head, *code, "```", ""])


class Folder:
    """A book in a folder: its preface, and one chapter unless told otherwise."""

    def __init__(self, root: Path, **chapters: str) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.write("index.qmd", INDEX)
        for stem, text in (chapters or {"jit": cell("x = 1")}).items():
            self.write(f"book/{stem}.qmd", text)
        self.list_pages()

    def list_pages(self, *rels: str) -> None:
        """Write ``_quarto.yml``; without names, all chapters there are."""
        found = sorted(
            p.relative_to(self.root) for p in self.root.glob("book/**/*.qmd")
        )
        rels = rels or ("index.qmd", *map(str, found))
        lines = ["book:", "  chapters:", *(f"    - {rel}" for rel in rels), ""]
        self.write("_quarto.yml", "\n".join(lines))

    def write(self, rel: str, text: str) -> None:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))

    def text(self, rel: str) -> str:
        return (self.root / rel).read_bytes().decode("utf-8", "surrogateescape")

    def edit(self, rel: str, old: str, new: str) -> None:
        assert old in self.text(rel)
        self.write(rel, self.text(rel).replace(old, new))

    def files(self) -> dict[str, bytes]:
        """What every file holds, but for what the tangler and git keep."""
        files = (p for p in self.root.rglob("*") if p.is_file())
        rels = {p.relative_to(self.root).as_posix(): p for p in files}
        return {
            rel: p.read_bytes()
            for rel, p in rels.items()
            if not rel.startswith((".git", ".tangle"))
        }

    def run(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        """``python tangle.py`` as a process of its own."""
        return subprocess.run(
            [sys.executable, str(ROOT / "tangle.py"), "--root", str(self.root), *args],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **more},
            check=False,
        )

    def git(self, *args: str) -> subprocess.CompletedProcess[str]:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", "-C", str(self.root), *who, *args],
            capture_output=True,
            text=True,
            check=True,
        )

    def commit(self, message: str = "all") -> None:
        if not (self.root / ".git").exists():
            self.git("init", "-q", "-b", "main")
            self.write(".gitignore", ".tangle/\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)


def faults(text: str, rel: str = "book/01-jit.qmd") -> list[tangle.Problem]:
    """The problems of a chapter with this text."""
    try:
        tangle.read_chapter(Path(rel), rel, text)
    except tangle.BookError as error:
        return error.problems
    return []


# What readers trip over, as lines of prose, of displayed blocks and of code.
PROSE = (
    "",
    "",
    "Prose with `code` and ``a ` b``.",
    "# Head {#sec-a}",
    "#| label: prose",
    "# # a comment",
    "    indented code",
    "> ```{python}",
    "> quoted",
    "::: {.callout-note}",
    ":::",
    "a `<!--` b",
    "<!-- note -->",
    "<!--",
    "-->",
    "$$",
    "a ```b``` c",
    "- item",
    "`{python} x`",
    "it's \"quoted\" '''thrice'''",
    "a\x0cb",
    "a\u2028b\x85c\x1dd\u2029e",
    "\x0cpage",
    "x" * 3000,
    "a\u2028```{python}",
    "é ∈ 漢 🙂",
    "\\",
    "# ```",
    '"""',
    "[x]{.y}",
)
FENCES = (
    "```",
    "````",
    "~~~",
    "~~~~",
    "~~~text",
    "```python",
    "  ```python",
    "  ```",
    "   ~~~",
    "```{python}",
    "``` {python}",
    "  ```{python}",
    "````{python}",
    "```{python3}",
    "```{{python}}",
    "~~~{python}",
    "- ```python",
    "1. ~~~",
    "```b``` c",
)
CODE = (
    "",
    "x = 1",
    "x = '''a'''",
    's = """',
    '"""',
    "'''",
    "# '''",
    '# a """comment"""',
    "def f(): ...",
    "#",
    "#comment",
    "    # ```",
    "    ```python",
    "% 3",
    "s = '\\\\' + \"it's\"",
    "s = 'a\\",
    "x\x0c = 1",
    "s = '\u2028\x85'",
    "~~~",
    "> ```",
    "# prose",
    "   ",
)
HEADERS = ("", "", "", "---\ntitle: a\n---\n", "---\nx: |\n  ~~~\n\n  y\n---\n")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts like chapters; many are valid, and many others nearly so."""
    lines = draw(st.sampled_from(HEADERS)).split("\n")[:-1]
    for k in range(draw(st.integers(0, 5))):
        kind = draw(st.integers(0, 9))
        if kind < 4:
            tangled = draw(st.booleans())
            code = draw(st.lists(st.sampled_from(CODE + FENCES[:1] * 2), max_size=4))
            lines += cell(*code, label=f"l-{k}", tangled=tangled).split("\n")[:-1]
        elif kind < 7:
            fence = draw(st.sampled_from(["~~~", "```text", "~~~~", "  ```text"]))
            shown = st.sampled_from(PROSE + FENCES + CODE)
            close = fence.replace("text", "")
            lines += [fence, *draw(st.lists(shown, max_size=3)), close]
        else:
            any_line = st.sampled_from(PROSE + FENCES + CODE[:1])
            lines += draw(st.lists(any_line, min_size=1, max_size=3))
    return "".join(line + "\n" for line in lines)
