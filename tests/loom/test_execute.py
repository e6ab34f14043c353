"""Chapters executed in real kernels: outputs, failures, and the cache."""

from __future__ import annotations

import io
import json
import re

import pytest

from loom import captures, execute
from loom.progress import Progress
from loom.woven import CodeCell, Prose

ONE = """\
# One {#sec-one}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("one")
```

```{python}
#| label: invert
#| tangle: true
def invert(x):
    return 1 / x
```

A half is `{python} invert(2)`, a word is `{python} "word"`, shown is ``{python} no``.

~~~
`{python} in_a_fence`
~~~

```{python}
#| label: raises
#| error: true
invert(0)
```

```{python}
#| label: warns
import warnings

warnings.warn("careful")
```

```{python}
#| label: warns-quietly
#| warning: false
warnings.warn("unheard")
print("heard")
```

```{python}
#| label: source
import inspect

print(inspect.getsource(invert), inspect.getsourcelines(invert)[1])
```

```{python}
#| label: not-run
#| eval: false
this is no Python
```

```{python}
#| label: no-output
#| output: false
print("hidden")
```

```{python}
#| label: surroundings
import os

print(os.environ["PYTHONHASHSEED"], "PYTHONSTARTUP" in os.environ)
print("MAKEFLAGS" in os.environ, "MAKELEVEL" in os.environ)
print(os.path.exists("_quarto.yml"), get_ipython().history_manager.enabled)
```

```{python}
#| label: address
class Thing: ...

Thing()
```

```{python}
#| label: where
import loom.lines

print(os.path.join(os.getcwd(), "captures"), loom.lines.__file__)
```

```{python}
#| label: plot
import matplotlib.pyplot as plt

plt.plot([1, 2]);
```

```{python}
#| label: on-gpu
#| capture: gpu
loom.keep({"ratio": 2.5})
raise SystemExit("must not run here")
```

The ratio is `{python} f'{loom.captured("on-gpu")["ratio"]:.2f}'`.
"""

TWO = """\
# Two {#sec-two}

```{python}
#| label: uses
from generated.one import invert

invert(4)
```
"""


def outputs(woven, label):
    (cell,) = [
        part
        for part in woven.parts
        if isinstance(part, CodeCell) and part.cell.label == label
    ]
    return cell.outputs


def text(woven, label):
    found = outputs(woven, label)
    return "".join(o.get("text", "") or o["data"]["text/plain"] for o in found)


@pytest.fixture(scope="module")
def book(make_book):
    book = make_book()
    book.write("book/01-one.qmd", ONE)
    book.write("book/02-two.qmd", TWO)
    return book


@pytest.fixture(scope="module")
def said():
    return io.StringIO()


@pytest.fixture(scope="module")
def wovens(book, said):
    with pytest.MonkeyPatch.context() as patch:  # as if `make` wove it
        patch.setenv("MAKEFLAGS", "w")
        patch.setenv("MAKELEVEL", "1")
        found = execute.weave_chapters(book.read(), progress=Progress(said))
    return {woven.chapter.name: woven for woven in found}


def test_inline_expressions_become_values_outside_code(wovens):
    prose = "".join(p.text for p in wovens["one"].parts if isinstance(p, Prose))
    assert "A half is 0.5, a word is word, shown is ``{python} no``." in prose
    assert "`{python} in_a_fence`" in prose


def test_a_missing_capture_is_said_and_not_run(wovens):
    (output,) = outputs(wovens["one"], "on-gpu")
    assert output["data"]["text/markdown"].endswith("]{.badge .badge-missing}")
    prose = "".join(p.text for p in wovens["one"].parts if isinstance(p, Prose))
    assert "The ratio is (not yet run on a GPU)." in prose
    status = {p.cell.label: p.status for p in wovens["one"].parts if hasattr(p, "cell")}
    assert status["on-gpu"] == "missing"
    assert status["not-run"] == "not-evaluated"
    assert status["invert"] == "run"


def test_a_traceback_names_the_lines_of_the_chapter(book, wovens):
    (output,) = outputs(wovens["one"], "raises")
    trace = "\n".join(output["traceback"])
    cell = book.line("book/01-one.qmd", "invert(0)")
    body = book.line("book/01-one.qmd", "return 1 / x")
    assert f"File generated/one.py:{cell}\n    invert(0)" in trace
    assert f"File generated/one.py:{body} in invert\n    return 1 / x" in trace
    assert "\x1b" not in trace


def test_warnings_and_sources_are_line_true(book, wovens):
    line = book.line("book/01-one.qmd", 'warnings.warn("careful")')
    assert text(wovens["one"], "warns").startswith(
        f"generated/one.py:{line}: UserWarning: careful\n"
    )
    first = book.line("book/01-one.qmd", "def invert")
    found = text(wovens["one"], "source")
    assert found == f"def invert(x):\n    return 1 / x\n {first}\n"


def test_options_decide_which_outputs_are_kept(wovens):
    assert text(wovens["one"], "warns-quietly") == "heard\n"
    assert outputs(wovens["one"], "no-output") == []
    assert outputs(wovens["one"], "not-run") == []


def test_the_kernel_starts_alike_everywhere(wovens):
    assert text(wovens["one"], "surroundings").split() == [
        *("0", "False"),
        *("False", "False"),
        *("True", "False"),
    ]


def test_outputs_hold_nothing_of_this_machine(book, wovens):
    assert re.search(r"Thing at 0x…>", text(wovens["one"], "address"))
    assert text(wovens["one"], "where") == "captures loom/lines.py\n"


def test_plots_are_svg_and_the_same_on_every_run(wovens):
    (output,) = outputs(wovens["one"], "plot")
    assert set(output["data"]) == {"image/svg+xml", "text/plain"}
    assert "<dc:date>" not in output["data"]["image/svg+xml"]


def test_the_evidence_line(wovens):
    (output,) = outputs(wovens["one"], "setup")
    words = output["data"]["text/markdown"]
    assert words.startswith("[Outputs on this page: Triton ")
    assert words.endswith("]{.evidence}")


def test_progress_is_plain_lines(wovens, said):
    lines = said.getvalue().split("\n")
    assert "book/02-two.qmd: executing 1 cells (not in the cache)" in lines
    assert any(re.fullmatch(r"book/02-two.qmd: uses \d+\.\d s", s) for s in lines)


def test_another_chapter_uses_the_package(wovens):
    assert text(wovens["two"], "uses") == "0.25"


def test_the_first_cell_is_enough_where_options_are_stripped(book, wovens):
    """As Quarto does it: cells without their ``#|`` lines, and no preparation."""
    from loom.notebook import Kernel

    cells = {cell.label: cell.code for cell in book.read().chapters[1].cells}
    kernel = Kernel(book.root)
    try:
        said = kernel.run(cells["setup"]).outputs[-1]["data"]["text/markdown"]
        assert said.endswith("{.evidence}")
        kernel.run(cells["invert"])
        trace = "\n".join(kernel.run(cells["raises"]).error["traceback"])
        line = book.line("book/01-one.qmd", "return 1 / x")
        assert f"File generated/one.py:{line} in invert" in trace
        (badge,) = kernel.run(cells["on-gpu"]).outputs
        assert "badge-missing" in badge["data"]["text/markdown"]
        asked = {"a": "__import__('numpy').float64(1.5)", "b": "'word'", "c": "nope"}
        values = kernel.run("", silent=True, values=asked).values
        assert values["a"]["data"]["text/markdown"] == "1.5"
        assert values["b"]["data"]["text/markdown"] == "word"
        assert values["c"]["ename"] == "NameError"
    finally:
        kernel.stop()


def executed(book, **options):
    """The chapters that a weave executes now."""
    said = io.StringIO()
    execute.weave_chapters(book.read(), progress=Progress(said), **options)
    return re.findall(r"^(\S+): executing", said.getvalue(), re.M)


def test_what_makes_a_chapter_run_again(book, wovens):
    assert executed(book) == []
    book.edit("book/01-one.qmd", "A half is", "One half is")
    assert executed(book) == [], "prose"
    book.edit("book/02-two.qmd", "# Two", "Text above.\n\n# Two")
    assert executed(book) == [], "lines moved where no output shows them"
    book.edit("book/01-one.qmd", "One half is", "Here is a line more.\nOne half is")
    assert executed(book) == ["book/01-one.qmd"], "lines moved where outputs show them"
    book.edit("book/01-one.qmd", "return 1 / x", "return 1.0 / x")
    assert sorted(executed(book)) == ["book/01-one.qmd", "book/02-two.qmd"]
    book.edit("book/01-one.qmd", "return 1.0 / x", "return 1 / x")
    assert executed(book) == [], "the entry of before"
    folder = book.root / ".weave" / "chapters" / "two"
    for path in folder.glob("*.json"):
        path.write_text(path.read_text()[:-20])
    assert executed(book) == ["book/02-two.qmd"], "a corrupt cache is made again"
    assert executed(book, names=["two"], use_cache=False) == ["book/02-two.qmd"]


def test_a_chapter_runs_again_when_a_file_it_read_changes(make_book):
    book = make_book()
    book.write("index.qmd", INDEX_READER)
    book.write("book/01-plain.qmd", "# Plain {#sec-plain}\n\nText.\n")
    assert executed(book) == ["index.qmd"]
    book.edit("book/01-plain.qmd", "Text.", "Other text.")
    assert executed(book) == [], "prose of the chapter that was read"
    book.edit("book/01-plain.qmd", "# Plain", "# Plainer")
    assert executed(book) == ["index.qmd"], "a heading of it"


INDEX_READER = """\
# Preface {#sec-preface .unnumbered}

```{python}
#| label: package
#| tangle: true
import math
```

```{python}
#| label: lists
from pathlib import Path

[p.read_text().split("\\n")[0] for p in Path("book").glob("*.qmd")]
```
"""


def chapter(name, cell, options=""):
    head = f"# {name} {{#sec-{name}}}\n\nText.\n\n"
    return f"{head}```{{python}}\n#| label: {name}\n{options}{cell}\n```\n"


def test_a_chapter_that_is_edited_while_it_runs_is_not_kept(make_book):
    book = make_book()
    book.write("index.qmd", INDEX_READER)
    edit = "open('book/01-edits.qmd', 'a').write('More.\\n')"
    book.write("book/01-edits.qmd", chapter("edits", edit))
    changed = "book/01-edits.qmd:1: book/01-edits.qmd changed while the chapter ran"
    with pytest.raises(execute.ExecutionError, match=changed):
        execute.weave_chapters(book.read())
    assert not (book.root / ".weave" / "chapters" / "edits").exists()


def test_every_failing_chapter_is_reported_at_its_line(make_book):
    book = make_book()
    book.write("index.qmd", INDEX_READER)  # a first cell that imports torch is slow
    book.write("book/01-good.qmd", chapter("good", "1 + 1"))
    book.write(
        "book/02-raises.qmd",
        chapter("raises", "def f():\n    raise ValueError('no')\n\n\nf()"),
    )
    book.write("book/03-syntax.qmd", chapter("syntax", "x = 1\ny = = 2"))
    book.write(
        "book/04-html.qmd",
        chapter("html", "from IPython.display import HTML\nHTML('<b>b</b>')"),
    )
    book.write("book/05-inline.qmd", "# I {#sec-i}\n\nLook: `{python} unknown + 1`.\n")
    book.write("book/06-dies.qmd", chapter("dies", "import os\nos.abort()"))
    with pytest.raises(execute.ExecutionError) as caught:
        execute.weave_chapters(book.read(), jobs=4)
    problems = [str(problem) for problem in caught.value.problems]
    assert problems == [
        "book/02-raises.qmd:8: ValueError: no",
        "book/03-syntax.qmd:8: SyntaxError: invalid syntax (03-syntax.qmd, line 8)",
        "book/04-html.qmd:7: cell 'html' shows text/html; accepted are PNG, SVG,"
        " Markdown, LaTeX and plain text (for a table, display(Markdown(…)))",
        "book/05-inline.qmd:3: NameError: name 'unknown' is not defined"
        " (in `{python} unknown + 1`)",
        "book/06-dies.qmd:7: the kernel died (signal 6) while this cell ran",
    ]
    words = str(caught.value)
    assert "\n    raise ValueError('no')\n" in words
    assert "File book/02-raises.qmd:11\n" in words
    assert executed_good(book) == []


def test_a_cell_has_limited_time(make_book):
    book = make_book()
    book.write("book/01-late.qmd", chapter("late", "import time\ntime.sleep(60)"))
    late = "book/01-late.qmd:7: the cell ran longer than 2 s; make it smaller"
    with pytest.raises(execute.ExecutionError, match=late):
        execute.weave_chapters(book.read(), ["late"], seconds=2)


def executed_good(book):
    return executed(book, names=["good", "__init__"])


def test_a_stored_capture_is_replayed(make_book):
    book = make_book()
    book.write("book/01-gpu.qmd", GPU)
    parsed = book.read()
    stored = capture()
    captures.store(stored, book.root, parsed.chapters[1])
    (woven,) = execute.weave_chapters(parsed, ["gpu"])
    badge, stream, shown = outputs(woven, "on-gpu")
    assert "H200" in badge["data"]["text/markdown"]
    assert badge["data"]["text/markdown"].endswith("{.badge .badge-stale}")
    assert stream["text"] == "said by the GPU\n"
    assert shown["data"] == {"text/plain": "42"}
    prose = "".join(p.text for p in woven.parts if isinstance(p, Prose))
    assert "It was 2.50 times." in prose


GPU = """\
# GPU {#sec-gpu}

```{python}
#| label: on-gpu
#| capture: gpu
import loom

loom.keep({"ratio": 1 / 0})
```

```{python}
#| label: again
import loom
```

It was `{python} f'{loom.captured("on-gpu")["ratio"]:.2f}'` times.
"""


def capture(**changes):
    said = dict.fromkeys(captures.PROVENANCE, "1") | {"device": "NVIDIA H200"}
    fields = {
        "label": "on-gpu",
        "chapter": "book/01-gpu.qmd",
        "key": "0",
        "parts": {"cell on-gpu": "0"},
        "provenance": said,
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": "said by the GPU\n"},
            {"output_type": "display_data", "data": {"text/plain": "42"}},
        ],
        "kept": {"ratio": 2.5},
    }
    return captures.Capture(**(fields | changes))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format=9), "got format 9, not 1"),
        (lambda d: d.update(label="other"), "got label 'other' in the file of"),
        (lambda d: d.pop("key"), "got no key"),
        (lambda d: d["provenance"].pop("driver"), "the provenance lacks driver"),
        (
            lambda d: d["outputs"].append(
                {"output_type": "display_data", "data": {"text/html": "<b>"}}
            ),
            "output 3 holds text/html",
        ),
    ],
)
def test_a_faulty_capture_is_named(make_book, change, words):
    book = make_book()
    book.write("book/01-gpu.qmd", GPU)
    parsed = book.read()
    path = captures.store(capture(), book.root, parsed.chapters[1])
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(execute.BookError, match=re.escape(words)) as caught:
        captures.load(path, book.root)
    assert str(caught.value).startswith("captures/gpu/on-gpu.json:1: ")


def test_a_missing_value_reads_the_same_whatever_is_asked_of_it():
    missing = captures.Missing()
    assert f"{missing.ratio('a', 'b') / 2:.2f}" == captures.NOT_RUN
    assert not missing and list(missing["rows"]) == []
    with pytest.raises(TypeError, match="not yet run on a GPU"):
        assert missing.ratio > 1


def test_kept_values_survive_the_file_and_others_are_refused():
    import numpy as np

    value = {"rows": [1, 2.5, None, "x"], "array": np.arange(3), "pair": (1, 2)}
    assert captures.decode(json.loads(json.dumps(captures.encode(value)))) == {
        "rows": [1, 2.5, None, "x"],
        "array": [0, 1, 2],
        "pair": [1, 2],
    }
    with pytest.raises(TypeError, match="got a set"):
        captures.encode({1, 2})
    with pytest.raises(ValueError, match="only ours"):
        captures.decode({"$type": "subprocess:Popen", "data": []})
