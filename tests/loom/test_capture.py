"""The capture run, on a machine without a GPU: a probe says what device there is."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import tangle
import weave
from loom import build, capture, captures, keys, transport
from loom.execute import ExecutionError, weave_chapters
from loom.progress import Progress
from loom.woven import CodeCell, Prose

ROOT = Path(__file__).resolve().parents[2]
DEVICE = {
    "device": "NVIDIA H200",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "numpy": "2.4.6",
    "python": "3.12.3",
}

BASE = '''\
# Base {#sec-base}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("base")
```

```{python}
#| label: double
#| tangle: true
def double(x):
    """Twice x."""
    return 2 * x
```
'''

GPU = '''\
# On the GPU {#sec-gpu}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("gpu")
```

Some prose.

```{python}
#| label: kernel
#| tangle: true
def kernel(x):
    """A docstring."""
    return x + 1
```

```{python}
#| label: helper
import os
import tempfile

size = 3
unused = 4
```

```{python}
#| label: fig-demo
#| fig-cap: "A caption."
#| fig-alt: "Nothing."
print("drawn", size)
```

```{python}
#| label: on-gpu
#| capture: gpu
# a comment
shown = loom.keep(ratio=kernel(size) / 2, names=["a"], where=os.getcwd())
print("ratio", shown["ratio"])
```

```{python}
#| label: twice
#| capture: gpu
from generated.base import double

loom.keep(double(21))
double(21)
```

```{python}
#| label: volatile
#| capture: gpu
class Thing:
    pass


print(Thing(), hex(0x7F12_3456_789A), "constant 0x3f800000, pid 4")
print(tempfile.mkdtemp(), os.path.abspath("loom.txt"), f"pid {os.getpid()}")
```

```{python}
#| label: refused
#| capture: gpu
#| error: true
raise ValueError("asked for")
```

```{python}
#| label: later
assert loom.captured("on-gpu")["ratio"] == 2.0 or not loom.captured("on-gpu")
```

It was `{python} f'{loom.captured("on-gpu")["ratio"]:.1f}'` times.
'''
LABELS = ["on-gpu", "twice", "volatile", "refused"]


class Said(Progress):
    """Progress that keeps what it says."""

    def __init__(self):
        super().__init__(io.StringIO())

    @property
    def text(self):
        return self.out.getvalue()


@pytest.fixture(scope="module", autouse=True)
def native():
    """The tests' own process runs the interpreter; a capture run must not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        yield


def run(root, names=(), **how):
    said = Said()
    files = capture.capture(root, names, said, probe=lambda: dict(DEVICE), **how)
    return [path.relative_to(root).as_posix() for path in files], said.text


@pytest.fixture(scope="module")
def done(make_book):
    """A book whose captures were made, with its archive."""
    book = make_book()
    book.write("book/00-base.qmd", BASE)
    book.write("book/01-gpu.qmd", GPU)
    book.files, book.said = run(book.root, pack=book.root.parent / "run.tar.gz")
    return book


@pytest.fixture
def copy(done, tmp_path):
    """That book again, to be changed."""
    root = tmp_path / "root"
    shutil.copytree(done.root, root)
    again = object.__new__(type(done))
    again.root, again.pages = root, list(done.pages)
    return again


def stored(book, label):
    path = book.root / "captures" / "gpu" / f"{label}.json"
    found = captures.load(path, book.root)
    assert found is not None
    return found


def streams(found):
    return "".join(o["text"] for o in found.outputs if o["output_type"] == "stream")


# ------------------------------------------------------------------------------ the run


def test_a_run_stores_every_capture_cell(done):
    assert done.files == [f"captures/gpu/{label}.json" for label in LABELS]
    assert "book/00-base.qmd: executing" not in done.said, "it has nothing to capture"
    found = stored(done, "on-gpu")
    assert found.kept == {"ratio": 2.0, "names": ["a"], "where": "."}
    assert streams(found) == "ratio 2.0\n"
    assert found.provenance.items() >= DEVICE.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.provenance["date"])
    assert stored(done, "twice").kept == 42
    assert stored(done, "twice").outputs[0]["data"] == {"text/plain": "42"}
    (error,) = stored(done, "refused").outputs
    assert (error["output_type"], error["evalue"]) == ("error", "asked for")
    assert build._captures(done.read()) == ([], [])


def test_the_badge_says_device_versions_and_date(done):
    found = stored(done, "on-gpu")
    assert found.badge == (
        "Captured on NVIDIA H200, driver 580.1, torch 2.11.0, triton 3.6.0, "
        + found.provenance["date"]
    )


def test_what_differs_from_run_to_run_is_not_stored(done):
    text = streams(stored(done, "volatile"))
    assert re.fullmatch(
        r"<__main__\.Thing object at 0x…> 0x… constant 0x3f800000, pid 4\n"
        r"<temporary> loom\.txt pid …\n",
        text,
    ), text
    every = "".join((done.root / rel).read_text() for rel in done.files)
    assert str(done.root) not in every and str(Path.home()) not in every


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("ipykernel_4711/12.py", "ipykernel/12.py"),
        ("========= 4711 =========", "=========…========="),
        ("==4711== x", "==…== x"),
        ("Process 4711 has 3 GiB", "Process … has 3 GiB"),
        ("program 4711, pid 300, 0x3FB99999A0000000", None),
        ("/tmp/tmpab12cd_x/a.py", "<temporary>/a.py"),
        ("/home/someone/x", "~/x"),
        ("mov.f32 %f1, 0x3f800000; 0d3FB999999999999A", None),
    ],
)
def test_scrubbing(tmp_path, said, kept):
    scrub = capture.Scrub((4711,), tmp_path)
    assert scrub.text(said) == (said if kept is None else kept)


def test_replayed_in_the_book(done):
    (woven,) = weave_chapters(done.read(), ["gpu"])
    cells = {p.cell.label: p for p in woven.parts if isinstance(p, CodeCell)}
    assert {cells[label].status for label in LABELS} == {"captured"}
    badge, shown = cells["on-gpu"].outputs
    assert badge["data"]["text/markdown"].endswith("]{.badge .badge-captured}")
    assert shown["text"] == "ratio 2.0\n"
    prose = "".join(p.text for p in woven.parts if isinstance(p, Prose))
    assert "It was 2.0 times." in prose


# ------------------------------------------------------------------------ what is stale


@pytest.mark.parametrize(
    ("rel", "old", "new", "stale"),
    [
        ("00-base", "2 * x", "x * 2", {"twice": ["generated/base.py"]}),
        ("01-gpu", "x + 1", "1 + x", dict.fromkeys(LABELS, ["cell kernel"])),
        ("01-gpu", "size = 3", "size = 4", {"on-gpu": ["cell helper"]}),
        ("01-gpu", "size) / 2", "size) / 3", {"on-gpu": ["cell on-gpu"]}),
        ("01-gpu", "unused = 4", "unused = 5", {}),
        ("01-gpu", "Some prose.", "Other prose.\nTwo lines.", {}),
        ("01-gpu", "# a comment", "# another", {}),
        ("01-gpu", "A docstring.", "Other words.", {}),
        ("00-base", "Twice x.", "The double.", {}),
        ("00-base", "2 * x", "(2  *  x)", {}),
        ("01-gpu", 'print("drawn", size)', 'print("blue", size)', {}),
        ("01-gpu", "A caption.", "Another.", {}),
        ("01-gpu", "label: fig-demo", "label: fig-two", {}),
    ],
)
def test_a_change_makes_the_right_captures_stale(copy, rel, old, new, stale):
    copy.edit(f"book/{rel}.qmd", old, new)
    late, missing = build._captures(copy.read())
    assert missing == []
    found = {}
    for problem in late:
        said = re.match(
            r"the capture '([\w-]+)' is stale; changed: (.*); run `python weave\.py"
            r" --capture --chapter gpu` on a GPU",
            problem.message,
        )
        found[said[1]] = said[2].split(", ")
    assert found == stale


def test_check_fails_for_stale_captures_and_by_the_switch_for_missing_ones(
    copy, capsys, monkeypatch
):
    args = ["--root", str(copy.root), "--check"]
    assert weave.main(args) == 0
    (copy.root / "captures/gpu/twice.json").unlink()
    monkeypatch.setattr(build, "MISSING_IS_A_FAULT", False)
    assert weave.main(args) == 0
    line = copy.line("book/01-gpu.qmd", "label: twice") - 1
    words = f"book/01-gpu.qmd:{line}: 'twice' is not yet run on a GPU"
    assert words in capsys.readouterr().out
    monkeypatch.setattr(build, "MISSING_IS_A_FAULT", True)
    assert weave.main(args) == 1
    assert words in capsys.readouterr().err
    monkeypatch.setattr(build, "MISSING_IS_A_FAULT", False)
    copy.edit("book/01-gpu.qmd", "x + 1", "x + 2")
    tangle.tangle(copy.root)
    assert weave.main(args) == 1
    assert "'on-gpu' is stale; changed: cell kernel" in capsys.readouterr().err


def test_a_stale_capture_says_so_where_it_is_replayed(copy):
    copy.edit("book/01-gpu.qmd", "size = 3", "size = 2 + 1")
    (woven,) = weave_chapters(copy.read(), ["gpu"])
    cells = {p.cell.label: p for p in woven.parts if isinstance(p, CodeCell)}
    status = {label: cells[label].status for label in LABELS}
    assert status == dict.fromkeys(LABELS, "captured") | {"on-gpu": "stale"}
    words = cells["on-gpu"].outputs[0]["data"]["text/markdown"]
    assert words.startswith("[Stale: the code has changed since. Captured on")
    assert words.endswith("{.badge .badge-stale}")


# --------------------------------------------------------------------- damaged captures


def tampered(data):
    data["kept"]["ratio"] = 9.9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (tampered, "edited by hand or damaged"),
        (lambda d: d["provenance"].update(device="NVIDIA B200"), "edited by hand"),
        (lambda d: d["provenance"].update(date="2030-01-01"), "edited by hand"),
        (lambda d: d["outputs"].clear(), "edited by hand"),
        (lambda d: d.update(key="0"), "edited by hand"),
        (lambda d: d.pop("digest"), "edited by hand"),
        (lambda d: d.update(project="another"), "of the project 'another', not"),
        (lambda d: d.pop("outputs"), "got no list of outputs"),
    ],
)
def test_an_edited_capture_is_caught(copy, change, words):
    path = copy.root / "captures/gpu/on-gpu.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    problems, _ = build.check(copy.root)
    (problem,) = problems
    assert problem.path == "captures/gpu/on-gpu.json"
    assert words in problem.message and "capture the cell again" in problem.message


@pytest.mark.parametrize("size", [0, 20, -40])
def test_a_truncated_capture_is_caught(copy, size):
    path = copy.root / "captures/gpu/on-gpu.json"
    path.write_bytes(path.read_bytes()[:size])
    (problem,) = build.check(copy.root)[0]
    assert problem.path == "captures/gpu/on-gpu.json"
    assert problem.message.startswith("not JSON")


def test_captures_of_no_cell_are_named(copy):
    text = (copy.root / "captures/gpu/twice.json").read_text()
    for rel in ("gpu/gone.json", "other/a.json", "other/b.json", "gpu/notes.txt"):
        path = copy.root / "captures" / rel
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    problems, _ = build.check(copy.root)
    assert [p.path for p in problems] == [
        "captures/gpu/gone.json",
        "captures/gpu/notes.txt",
        "captures/other",
    ]
    assert "no capture cell has this label" in problems[0].message
    assert "another project" in problems[2].message


# ----------------------------------------------------------------- write on change only


def test_recapture_writes_on_change_only(copy):
    (chapter,) = [c for c in copy.read().chapters if c.name == "gpu"]
    path = copy.root / "captures/gpu/on-gpu.json"
    before = path.read_bytes()
    os.utime(path, (1, 1))
    found = stored(copy, "on-gpu")

    def again(**changes):
        made = dataclasses.replace(found, **changes)
        said = Said()
        assert capture.store(copy.root, chapter, [made], said) == [path]
        return said.text.strip().partition(": ")[2]

    tomorrow = found.provenance | {"date": "2030-01-01"}
    assert again(provenance=tomorrow) == "says the same; kept as it was"
    assert path.read_bytes() == before and path.stat().st_mtime == 1
    other = tomorrow | {"device": "NVIDIA B200"}
    assert again(provenance=other) == "stored"
    assert stored(copy, "on-gpu").provenance == other
    assert again(kept={"ratio": 2.5}) == "stored"
    path.write_text("{")
    assert again() == "stored"
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*")), "no temporary file stays"


def test_files_are_written_all_or_none(tmp_path):
    good, bad = tmp_path / "a", tmp_path / "file" / "b"
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError):
        captures.write({good: b"new", bad: b"new"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


# ---------------------------------------------------------------------- what goes wrong


def failing(name, code, option=""):
    return f'''\
# {name.title()} {{#sec-{name}}}

```{{python}}
#| label: setup
#| echo: false
import loom

loom.begin("{name}")
```

```{{python}}
#| label: first
#| capture: gpu
print("said before")
```

```{{python}}
#| label: second
{option}{code}
```
'''


def test_a_chapter_that_fails_leaves_its_captures(copy):
    oom = "import torch\n\nraise torch.OutOfMemoryError('CUDA out of memory. 9 GiB')"
    interpreted = "import os\n\nos.environ['TRITON_INTERPRET'] = '1'"
    interpreted += "\n```\n\n```{python}\n#| label: third\n#| capture: gpu\n1"
    cells = {
        "memory": failing("memory", oom, "#| capture: gpu\n"),
        "dies": failing("dies", "import os\n\nos._exit(3)"),
        "interprets": failing("interprets", interpreted),
        "edited": failing(
            "edited", "open('book/10-edited.qmd', 'a').write('\\nMore.\\n')"
        ),
        "well": failing("well", "2"),
    }
    for name, text in cells.items():
        copy.write(f"book/10-{name}.qmd", text)
    folder = copy.root / "captures/memory"
    folder.mkdir()
    (folder / "first.json").write_text("earlier")
    archive = copy.root.parent / "run.tar"
    names, said = ["memory", "dies", "interprets", "edited", "well"], Said()
    with pytest.raises(ExecutionError) as caught:
        capture.capture(copy.root, names, said, probe=lambda: DEVICE, pack=archive)
    problems = {Path(p.path).stem[3:]: p for p in caught.value.problems}
    assert problems.keys() == {"memory", "dies", "interprets", "edited"}
    line = copy.line("book/10-memory.qmd", "raise torch")
    assert str(problems["memory"]) == (
        f"book/10-memory.qmd:{line}: OutOfMemoryError: CUDA out of memory. 9 GiB"
    )
    assert "exit code 3" in problems["dies"].message
    assert problems["dies"].line == copy.line("book/10-dies.qmd", "import os")
    assert "Triton's interpreter" in problems["interprets"].message
    assert "has changed while the chapter ran" in problems["edited"].message
    made = {p.parent.name for p in copy.root.glob("captures/*/*.json")}
    assert made == {"gpu", "memory", "well"}
    assert (folder / "first.json").read_text() == "earlier"
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["captures.json", "captures/well/first.json"]


SLOW = failing("slow", "print('asleep', flush=True)\nimport time\n\ntime.sleep(60)")
DRIVER = """
import sys
from loom import capture
import weave
capture.find_device = lambda: {device!r}
sys.exit(weave.main(["--root", {root!r}, "--capture", "--chapter", "slow"]))
"""


def test_ctrl_c_leaves_the_captures_and_no_kernel(copy):
    copy.write("book/05-slow.qmd", SLOW)
    before = {p: p.read_bytes() for p in copy.root.glob("captures/*/*")}
    code = DRIVER.format(device=DEVICE, root=str(copy.root))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if "slow.qmd: first" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.startswith("stopped; ") and "Traceback" not in err
    assert {p: p.read_bytes() for p in copy.root.glob("captures/*/*")} == before
    assert not list((copy.root / ".weave/run").iterdir())


def test_no_gpu_and_the_interpreter_are_refused_at_once(copy, capsys, monkeypatch):
    args = ["--root", str(copy.root), "--capture"]
    (copy.root / "book/01-gpu.qmd").write_text("not even a chapter")
    monkeypatch.setattr(keys, "gpu_name", lambda: None)
    assert weave.main(args) == 1
    assert "no CUDA GPU here" in capsys.readouterr().err
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert weave.main(args) == 1
    assert "unset TRITON_INTERPRET" in capsys.readouterr().err
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(keys, "gpu_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(
        capture, "DEVICE", "raise SystemExit('torch is built for CPUs')"
    )
    assert weave.main(args) == 1
    said = capsys.readouterr().err
    assert "NVIDIA H200, but torch cannot use it: torch is built for CPUs" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--capture", "--check"], "give one of"),
        (["--pack", "x.tar"], "give both"),
        (["--capture", "--pack", "nowhere/x.tar"], "no such folder"),
        (["--unpack", "x.tar", "--chapter", "gpu"], "give no --chapter"),
    ],
)
def test_options_that_do_not_go_together(args, words, capsys):
    with pytest.raises(SystemExit):
        weave.main(args)
    assert words in capsys.readouterr().err


def test_chapters_are_checked_before_anything_runs(copy):
    with pytest.raises(tangle.BookError, match="no cell with `#| capture: gpu`"):
        run(copy.root, ["base"])
    with pytest.raises(tangle.BookError, match="no chapter 'nothing'"):
        run(copy.root, ["nothing"])
    copy.edit("book/01-gpu.qmd", "Some prose.", "Some prose. [x](nowhere.qmd) <b>")
    copy.edit("book/01-gpu.qmd", "print(Thing(),", "print(shown,")
    copy.edit(
        "book/01-gpu.qmd", 'assert loom.captured("on-gpu")["ratio"]', "assert shown"
    )
    with pytest.raises(tangle.BookError, match="'shown' is bound in the capture cell"):
        run(copy.root, ["gpu"])


# ---------------------------------------------------------------------------- transport


def test_an_archive_brings_captures_home(copy, done, capsys):
    archive = str(done.root.parent / "run.tar.gz")
    args = ["--root", str(copy.root), "--unpack", archive]
    folder = copy.root / "captures/gpu"
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    (folder / "twice.json").unlink()
    (folder / "on-gpu.json").write_text("{")
    assert weave.main(args) == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == whole
    out = capsys.readouterr().out
    assert "captures/gpu/twice.json: stored" in out
    assert "captures/gpu/volatile.json: says the same" in out
    copy.edit("book/01-gpu.qmd", "size = 3", "size = 4")
    (folder / "on-gpu.json").unlink()
    (folder / "twice.json").unlink()
    assert weave.main(args) == 1
    assert "'on-gpu' in the archive no longer fits" in capsys.readouterr().err
    assert not (folder / "on-gpu.json").exists()
    assert (folder / "twice.json").exists()


def archived(path, members, manifest=None):
    """An archive with these members, its manifest right unless given."""
    import hashlib

    files = {n: hashlib.sha256(d).hexdigest() for n, d in members.items()}
    said = {"format": 1, "project": captures.PROJECT, "files": files} | (manifest or {})
    with tarfile.open(path, "w") as tar:
        for name, data in {
            "captures.json": json.dumps(said).encode(),
            **members,
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("name", "manifest", "words"),
    [
        ("../captures/gpu/twice.json", {}, "accepted: captures/MODULE/LABEL.json"),
        ("captures/../../twice.json", {}, "accepted: captures/MODULE/LABEL.json"),
        ("/captures/gpu/twice.json", {}, "accepted: captures/MODULE/LABEL.json"),
        ("captures/gpu/on-gpu.json", {}, "got label 'twice' in the file of"),
        ("captures/base/twice.json", {}, "no chapter of this book has a capture cell"),
        ("captures/gpu/twice.json", {"project": "x"}, "of the project 'x'"),
        ("captures/gpu/twice.json", {"files": {}}, "is not as it was packed"),
        ("captures/gpu/twice.json", {"files": {"a": "b"}}, "'a' is missing"),
    ],
)
def test_a_strange_archive_is_refused(copy, tmp_path, name, manifest, words):
    path = copy.root / "captures/gpu/twice.json"
    members = {name: path.read_bytes()}
    path.unlink()
    archive = archived(tmp_path / "a.tar", members, manifest)
    with pytest.raises(tangle.BookError, match=re.escape(words)):
        transport.unpack(copy.root, archive)
    assert not path.exists()


def test_links_cut_and_other_files_are_refused(copy, done, tmp_path, capsys):
    link = tarfile.TarInfo("captures/gpu/twice.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "link.tar", "w") as tar:
        tar.addfile(link)
    whole = (done.root.parent / "run.tar.gz").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.tar").write_text("hello")
    for name, words in {
        "link.tar": "is not a plain file",
        "cut.tar": "cut off",
        "text.tar": "not an archive",
        "none.tar": "no such file",
    }.items():
        args = ["--root", str(copy.root), "--unpack", str(tmp_path / name)]
        assert weave.main(args) == 1
        assert words in capsys.readouterr().err


# --------------------------------------------------------------------- other front ends


SHELL = """
import os, re, sys
from IPython.core.interactiveshell import InteractiveShell

os.chdir({root!r})
sys.path[:0] = [{root!r}, {home!r}]
shell = InteractiveShell.instance()
for source in {sources!r}:
    shell.run_cell(source, store_history=True).raise_error()
print("names", "shown" in shell.user_ns, "double" in shell.user_ns)
"""


def cell_sources(book, options):
    text = (book.root / "book/01-gpu.qmd").read_text()
    found = re.findall(r"^```\{python\}\n(.*?)^```$", text, re.M | re.S)
    if options:  # Jupyter, VS Code
        return found
    return [re.sub(r"^#\|.*\n", "", one, flags=re.M) for one in found]  # Quarto


def test_replayed_in_an_ipython_shell(done):
    code = SHELL.format(
        root=str(done.root), home=str(ROOT), sources=cell_sources(done, options=True)
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stderr
    assert "ratio 2.0\n" in said.stdout
    assert said.stdout.endswith("names False False\n")


def test_replayed_under_quarto(done, monkeypatch):
    """Quarto hands cells over without their options, by nbclient."""
    import nbformat
    from nbclient import NotebookClient

    path = os.pathsep.join([str(done.root), str(ROOT)])
    monkeypatch.setenv("PYTHONPATH", path)
    cells = map(nbformat.v4.new_code_cell, cell_sources(done, options=False))
    notebook = nbformat.v4.new_notebook(cells=list(cells))
    NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": done.root}}
    ).execute()
    said = {c.source.split("\n")[0]: c.outputs for c in notebook.cells}
    badge, text = said["# a comment"]
    assert badge["data"]["text/markdown"].endswith("]{.badge .badge-captured}")
    assert text["text"] == "ratio 2.0\n"
    badge, text = said["from generated.base import double"]
    assert text["data"] == {"text/plain": "42"}


def test_values_that_json_has_not(tmp_path):
    value = [float("inf"), -float("inf"), 1.5]
    text = json.dumps(captures.encode({"v": value}), allow_nan=False)
    assert captures.decode(json.loads(text)) == {"v": value}
    assert str(captures.decode(captures.encode(float("nan")))) == "nan"
