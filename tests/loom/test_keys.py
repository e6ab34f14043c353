"""Keys: what counts, what does not, and what is reached by imports."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loom import keys, scopes
from loom.parts import split

SAME = [
    ("x = 1", "x  =  1  # a comment"),
    ('def f():\n    "doc"\n    return 1', "def f():\n    return 1"),
    ("class A:\n    '''doc'''\n    y = 2", "class A:\n    y = 2"),
    ('x = u"a"', "x = 'a'"),
    ("f'a{x}' f'b'", "f'a{x}b'"),
    ("f(a,\n  b)", "f(a, b)"),
    ("%time x", "%time x"),
]
DIFFERENT = [
    ("x = 1", "x = 2"),
    ("x = 1", "x = 1.0"),
    ("x = 1", "x = True"),
    ("x = 'a'", "x = b'a'"),
    ("f(a, b)", "f(b, a)"),
    ("f(a=1)", "f(b=1)"),
    ("def f(): return 1", "def g(): return 1"),
    ("f'{x}'", "f'{x!r}'"),
    ("f'{x}'", "f'{x:.2f}'"),
    ("a + b", "a - b"),
    ("x: int", "x: float"),
    ("%time x", "%time y"),
    ("def f():\n    x = 'not doc'", "def f():\n    x = 'doc'"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_digest_of_code_passes_over(one, other):
    assert keys.code_digest(one) == keys.code_digest(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_the_digest_of_code_sees(one, other):
    assert keys.code_digest(one) != keys.code_digest(other)


# What the grammars and trees of Python 3.11 to 3.14 write down differently, if at all.
EVERY_PYTHON = """
from __future__ import annotations

def f(x: int = 1, /, y='é', *, z: list[int], **rest) -> str:
    'A docstring.'
    return f'{x:>{y}} {x!r} {z = } {x:}' 'a' f'{x:%H:%M}' f'' * 2

class A(B, metaclass=C):
    'A docstring.'
    y: int = 1
    n: 'text'

async def g(*a):
    async with a as b, c as d:
        return [await i async for i in b if i]

@decorated
def only_docstring(): 'text'

match x:
    case {'a': [1, *more], **rest} | None: pass
    case A(b=1, c=-2) as whole if whole: pass

try:
    x[1:2, ..., None] = -1e400, 1j, b'\\xff', 0x1F, 1_000, '\\ud800', "it's", not True
except* (E, F) as e:
    raise e from None
else:
    del x.y, z

with (a as b, c):
    (t := lambda *, k=1: (yield k))
    u: int
    i += [j for j in {k: v for k, v in pairs} if j for m in j]
"""


def test_the_digest_is_the_same_on_every_python():
    # Written down on 3.11: a change here makes every stored capture stale.
    assert keys.code_digest(EVERY_PYTHON)[:16] == "24ee3fa1df95b7af"
    found = scopes.of(ast.parse(EVERY_PYTHON).body)
    text = repr({k: sorted(v) for k, v in vars(found).items()})
    assert keys.digest(text)[:16] == "4d892abca24bdc43"


def other_pythons():
    home = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = [*home.glob("versions/3.1[1-9].*/bin/python")]
    on_path = (shutil.which(f"python3.{minor}") for minor in range(11, 20))
    every = [str(path) for path in [*found, *filter(None, on_path)]]
    tried = [
        (one, subprocess.run([one, "-c", ""], capture_output=True)) for one in every
    ]
    return [one for one, done in tried if not done.returncode]


def test_keys_agree_with_the_other_pythons_here():
    import yaml

    root = Path(keys.__file__).parents[1]
    code = (
        "import sys; from pathlib import Path; import tangle; from loom import keys\n"
        "root = Path(sys.argv[1]); sources = keys.Sources(root)\n"
        "for chapter in tangle.read_book(root).chapters:\n"
        "    for cell in (cell for cell in chapter.cells if cell.capture):\n"
        "        print(keys.capture_key(sources, chapter, cell).parts)\n"
    )
    env = {"PATH": os.environ["PATH"]}
    env["PYTHONPATH"] = f"{root}:{Path(yaml.__file__).parents[1]}"
    said = {}
    for python in [sys.executable, *other_pythons()]:
        command = [python, "-c", code, str(root)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said[done.stdout] = python
    assert len(said) == 1, list(said.values())


def test_what_a_later_python_adds_to_the_tree_does_not_count():
    """Fields known to have come, or to be coming, after 3.11; and ``kind``,
    ``type_comment`` and ``ctx``, which say nothing."""

    def with_more(tree, **added):
        for node in ast.walk(tree):
            if not node._fields:  # operators: one object for all trees
                continue
            more = {k: v for k, v in added.items() if k not in node._fields}
            kind = type(node)
            fields = (*node._fields, *more)
            node.__class__ = type(kind.__name__, (kind,), {"_fields": fields})
            vars(node).update(more)
        return tree

    before = keys.canonical(ast.parse(EVERY_PYTHON))
    added = {
        "type_params": [],
        "is_lazy": 0,
        "default_value": None,
        "type_comment": "x",
    }
    assert keys.canonical(with_more(ast.parse(EVERY_PYTHON), **added)) == before
    tree = ast.parse(EVERY_PYTHON)
    for node in ast.walk(tree):
        node.lineno, node.kind = 77, "u"
        if "ctx" in node._fields:
            node.ctx = None
    assert keys.canonical(tree) == before


@pytest.mark.parametrize(
    ("code", "bound", "reads"),
    [
        ("x = y", {"x"}, {"y"}),
        ("import a.b, c as d", {"a", "d"}, set()),
        ("def f(a):\n    local = a\n    return g(local)", {"f"}, {"g"}),
        ("for i in range(3): pass", {"i"}, {"range"}),
        ("[j for j in items]", set(), {"items"}),
        ("def f():\n    global z\n    z = 1", {"f", "z"}, set()),
        ("with a as b: pass", {"b"}, {"a"}),
        ("%time x", set(), set()),
    ],
)
def test_names_that_a_cell_binds_and_reads(code, bound, reads):
    assert keys.names(code) == (bound, reads)


FILES = {
    "generated/__init__.py": (
        "# ```{python}\n#| label: a\n#| tangle: true\n"
        'OPS = {"matmul": "backward", "add": "generated.jit"}\n'
        'BY_MODULE: dict = {"other": ("ewma", "topk")}\n'
        "KNOWN = 1\n__version__ = '1'\n"
        "if TYPE_CHECKING:\n    from generated.other import ewma as ewma\n"
        "else:\n    import generated.tuned\n"
        "# ```\n# # A title\n"
    ),
    "generated/jit.py": "# prose\n# ```{python}\n#| tangle: true\nx = 1\n# ```\n",
    "generated/backward.py": (
        "# ```{python}\n#| tangle: true\nfrom .jit import x\n# ```\n"
    ),
    "generated/other.py": "# ```{python}\n#| tangle: true\nz = 1\n# ```\n",
    "generated/tuned/gpu.json": "{}",
    "benchmarks/__init__.py": "",
    "benchmarks/peers.py": 'WORKER = "worker.py"\nimport generated.other\n',
    "benchmarks/worker.py": "",
    "Makefile": "all:\n",
}


@pytest.fixture
def sources(tmp_path):
    for rel, text in FILES.items():
        path = tmp_path / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return keys.Sources(tmp_path)


INIT = {"generated/__init__.py", "generated/tuned/gpu.json"}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch", set()),
        ("import generated", INIT),
        ("import generated as g\ng.KNOWN", INIT),
        ("from generated import jit", INIT | {"generated/jit.py"}),
        ("import generated.jit as j", INIT | {"generated/jit.py"}),
        (
            "from generated import matmul",
            INIT | {"generated/backward.py", "generated/jit.py"},
        ),
        ("from generated import topk", INIT | {"generated/other.py"}),
        ("import generated\ngenerated.add", INIT | {"generated/jit.py"}),
        ("def f():\n    from generated.jit import x", INIT | {"generated/jit.py"}),
        (
            "import benchmarks.peers",
            INIT
            | {"benchmarks/__init__.py", "benchmarks/peers.py"}
            | {"benchmarks/worker.py", "generated/other.py"},
        ),
        ("run('python -m generated.other')", INIT | {"generated/other.py"}),
        ("run('python -c \"from generated import add\"')", INIT | {"generated/jit.py"}),
        ("run('make')", {"Makefile"}),
        ("open('generated/tuned/gpu.json')", {"generated/tuned/gpu.json"}),
        ("!python -m generated.jit", INIT | {"generated/jit.py"}),
        (
            "from generated import nobody_knows",
            INIT | {f"generated/{n}.py" for n in ("jit", "backward", "other")},
        ),
    ],
)
def test_code_reaches(sources, code, found):
    tree, rest = keys.parse(code)
    assert sources.closure(sources.direct(tree, "", rest)) == found


def chapter(sources, text):
    import tangle

    path = sources.root / "book" / "01-c.qmd"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return tangle.read_chapter(path, "book/01-c.qmd")


CHAPTER = """\
# C {#sec-c}

Some prose.

```{python}
#| label: helper
def helper():
    "A docstring."
    return 1
```

```{python}
#| label: other
unused = 1
```

```{python}
#| label: size
n = helper()
```

```{python}
#| label: kernel
#| tangle: true
def kernel():
    return 2
```

```{python}
#| label: fig-one
#| fig-cap: "A caption."
1 + 1
```

```{python}
#| label: on-gpu
#| capture: gpu
from benchmarks import peers

peers.run(n)
```

A value: `{python} n + 1`.
"""


def key(sources, text):
    return keys.execution_key(keys.Sources(sources.root), split(chapter(sources, text)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Some prose.", "Other prose."),
        ("A caption.", "Another caption."),
        ("# C {", "# Chapter C {"),
        ("A value:", "Values:"),
        ("Some prose.", "Some prose.\nOne line more."),
    ],
)
def test_the_execution_key_passes_over(sources, old, new):
    assert key(sources, CHAPTER).value == key(sources, CHAPTER.replace(old, new)).value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 1", "return 3"),
        ("n + 1", "n + 2"),
        ("#| label: other", "#| label: another"),
        ("#| label: other", "#| label: other\n#| error: true"),
        ("#| label: other", "#| label: other\n#| eval: false"),
        ("import peers", "import peers as peers, worker"),
    ],
)
def test_the_execution_key_sees(sources, old, new):
    assert key(sources, CHAPTER).value != key(sources, CHAPTER.replace(old, new)).value


def test_the_execution_key_follows_imports(sources, monkeypatch):
    before = key(sources, CHAPTER)
    other = sources.root / "generated/other.py"
    other.write_text(other.read_text().replace("z = 1", "z = 2"))
    assert key(sources, CHAPTER).changed(before.parts) == ["generated/other.py"]
    other.write_text("# more prose\n" + FILES["generated/other.py"])
    assert key(sources, CHAPTER).changed(before.parts) == []
    lines = key(sources, CHAPTER).lines
    assert lines["generated/other.py"] != before.lines["generated/other.py"]
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert key(sources, CHAPTER).changed(before.parts) == ["machine"]


def test_the_execution_key_sees_a_capture(sources):
    before = key(sources, CHAPTER)
    path = sources.root / "captures" / "c" / "on-gpu.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert key(sources, CHAPTER).changed(before.parts) == ["captures"]


def capture_key(sources, text):
    read = chapter(sources, text)
    (cell,) = [cell for cell in read.cells if cell.capture]
    return keys.capture_key(keys.Sources(sources.root), read, cell)


def test_the_capture_key_covers_what_the_cell_uses(sources):
    assert set(capture_key(sources, CHAPTER).parts) == {
        "cell helper",
        "cell size",
        "cell kernel",
        "cell on-gpu",
        "benchmarks/__init__.py",
        "benchmarks/peers.py",
        "benchmarks/worker.py",
        "generated/__init__.py",
        "generated/other.py",
    }


USES = """\
# D {{#sec-d}}

```{{python}}
#| label: one
{one}
```

```{{python}}
#| label: two
{two}
```

```{{python}}
#| label: on-gpu
#| capture: gpu
{gpu}
```
"""


@pytest.mark.parametrize(
    ("one", "two", "gpu", "used"),
    [
        ("x = 1", "y = 2", "print(x)", "one"),
        ("x = 1", "x = 2", "print(x)", "two"),
        ("x = 1", "x += 2", "print(x)", "one two"),
        ("x = 1", "if c: x = 2", "print(x)", "one two"),
        ("x = 1", "for x in c: pass", "print(x)", "one two"),
        ("x = 1", "try:\n    x = 2\nexcept E:\n    x = 3", "print(x)", "two"),
        ("x = 1", "y = 2", "x = 3\nprint(x)", ""),
        ("def f(): return n", "n = 2", "f()", "one two"),
        ("def f(n): return n", "n = 2", "f(1)", "one"),
        ("n = 1\ndef f(a=n): return a", "n = 2", "f()", "one"),
        ("x = []", "x.append(1)", "print(x)", "one two"),
        ("x = {}", "x['a'].b = 1", "print(x)", "one two"),
        ("x = t()", "x.zero_()", "print(x)", "one two"),
        ("x = t()", "x.sum()", "print(x)", "one"),
        ("import torch", "torch.ones(1)", "torch", "one"),
        ("import torch", "torch.backends.x = 1", "torch", "one two"),
        ("x = 1", "def g(): global x; x = 2", "print(x)", "one two"),
        ("x = 1", "class A:\n    x = 2", "print(x)", "one"),
        ("x = 1", "[x for x in c]", "[x for x in range(2)]", ""),
        ("x = 1", "x = 2", "[x for x in x]", "two"),
        ("x = 1", "[(x := i) for i in c]", "print(x)", "two"),
        ("x, z = 1, 2", "match c:\n    case [x, *_]: pass", "print(x)", "one two"),
        ("x = 1", "with c as (x, y): pass", "print(x)", "two"),
        ("x = 1", "import x.y", "print(x)", "two"),
        ("x = 1", "del x", "f'{x}'", "one"),
        ("x = 1", "y = lambda: x", "y()", "one two"),
    ],
)
def test_what_a_capture_uses(sources, one, two, gpu, used):
    parts = capture_key(sources, USES.format(one=one, two=two, gpu=gpu)).parts
    assert parts.keys() - {"cell on-gpu"} == {f"cell {name}" for name in used.split()}


def test_of_a_cell_only_the_statements_count_that_are_used(sources):
    text = USES.format(one="x = 1\nplot(x)", two="y = 2", gpu="print(x)")
    before = capture_key(sources, text)
    assert capture_key(sources, text.replace("plot(x)", "plot(2 * x)")) == before
    assert capture_key(sources, text.replace("x = 1", "x = 2")) != before


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Some prose.", "Other prose.", []),
        ("A docstring.", "Other words.", []),
        ("unused = 1", "unused = 2", []),
        ("n = helper()", "n = helper()  # why", []),
        ("peers.run(n)", "peers.run( n )", []),
        ("return 1", "return 3", ["cell helper"]),
        ("return 2", "return 3", ["cell kernel"]),
        ("peers.run(n)", "peers.run(2 * n)", ["cell on-gpu"]),
    ],
)
def test_a_stale_capture_says_what_changed(sources, old, new, changed):
    stored = capture_key(sources, CHAPTER)
    read = chapter(sources, CHAPTER.replace(old, new))
    (cell,) = [cell for cell in read.cells if cell.capture]
    fresh = keys.Sources(sources.root)
    assert keys.stale_parts(fresh, read, cell, stored.value, stored.parts) == changed


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        ("'1'", "'2'", True),
        ('"topk"', '"topk", "sort"', True),
        ("other import ewma as ewma", "jit import x as x", True),
        ("KNOWN = 1", "KNOWN = 2", False),
    ],
)
def test_a_capture_outlives_new_names_and_versions(sources, old, new, holds):
    stored = capture_key(sources, CHAPTER)
    path = sources.root / "generated/__init__.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    changed = capture_key(sources, CHAPTER).changed(stored.parts)
    assert changed == ([] if holds else ["generated/__init__.py"])


def test_of_a_chapter_that_was_read_headings_and_cells_count(sources):
    def digests(text):
        chapter(sources, text)
        return keys.read_digest(keys.Sources(sources.root), "book/01-c.qmd")

    before = digests(CHAPTER)
    assert digests(CHAPTER.replace("Some prose.", "Other.")) == before
    assert digests(CHAPTER.replace("return 1", "return 7"))[0] != before[0]
    assert digests(CHAPTER.replace("# C {", "# D {"))[0] != before[0]
    moved = digests(CHAPTER.replace("Some prose.", "Two\nlines."))
    assert moved[0] == before[0] and moved[1] != before[1]
