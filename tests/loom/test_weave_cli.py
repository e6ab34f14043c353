"""``weave.py`` from the command line, on a small book."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ONE = """\
# One {#sec-one}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("one")
```

The chapter begins here.

```{python}
#| label: invert
#| tangle: true
def invert(x):
    return 1 / x
```

```{python}
#| label: half
print(invert(2), "said by the kernel")
```

```{python}
#| label: on-gpu
#| capture: gpu
loom.keep(1)
```
"""

TWO = """\
# Two {#sec-two}

```{python}
#| label: setup
#| echo: false
import loom

loom.begin("two")
```

See @sec-one.

```{python}
#| label: quarter
from generated.one import invert

print(invert(4), "of two")
```
"""


def weave(root, *args, **env):
    return subprocess.run(
        [sys.executable, ROOT / "weave.py", "--root", root, *args],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def book(make_book):
    book = make_book()
    book.write("book/01-one.qmd", ONE)
    book.write("book/02-two.qmd", TWO)
    return book


@pytest.fixture(scope="module")
def first(book):
    done = weave(book.root)
    assert done.returncode == 0, done.stderr
    return done


def executed(done):
    return re.findall(r"^(\S+): executing", done.stdout, re.M)


def page(book, name="book/01-one"):
    return (book.root / "_book" / f"{name}.html").read_text()


def test_one_command_leaves_both_formats_and_says_where(book, first):
    assert "said by the kernel" in page(book)
    assert list((book.root / "_book").glob("*.pdf"))
    assert re.search(r"^woven \(\d+\.\d s\)\n  _book/index.html\n", first.stdout, re.M)
    assert "seconds per chapter:\n" in first.stdout
    assert (book.root / "generated/one.py").exists(), "it tangles first"


def test_again_does_nothing_and_is_quick(book, first):
    begun = time.monotonic()
    done = weave(book.root)
    spent = time.monotonic() - begun
    assert (done.returncode, executed(done)) == (0, [])
    assert "nothing has changed" in done.stdout
    assert spent < 5, "two commands in a row must not cost a weave"


def test_a_sentence_is_rewoven_without_executing(book, first):
    book.edit("book/01-one.qmd", "begins here", "begins right here")
    done = weave(book.root)
    assert (done.returncode, executed(done)) == (0, [])
    assert "woven (" in done.stdout
    assert "begins right here" in page(book)


def test_a_lost_page_is_made_again(book, first):
    (book.root / "_book/book/02-two.html").unlink()
    assert "woven (" in weave(book.root).stdout
    assert "of two" in page(book, "book/02-two")


def test_a_failing_cell_leaves_the_old_book(book, first):
    weave(book.root)
    before = {p: p.read_bytes() for p in (book.root / "_book").rglob("*.html")}
    book.edit("book/02-two.qmd", "invert(4)", "invert(0)")
    try:
        done = weave(book.root)
    finally:
        book.edit("book/02-two.qmd", "invert(0)", "invert(4)")
    line = book.line("book/02-two.qmd", "invert(4)")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"book/02-two.qmd:{line}: ZeroDivisionError: division by zero\n"
        '    print(invert(0), "of two")\n'
    )
    deep = book.line("book/01-one.qmd", "return 1 / x")
    assert f"File generated/one.py:{deep} in invert\n" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert {p: p.read_bytes() for p in (book.root / "_book").rglob("*.html")} == before


def test_check_names_each_fault(book, first):
    done = weave(book.root, "--check")
    line = book.line("book/01-one.qmd", "label: on-gpu") - 1
    assert done.returncode == 1 and done.stdout == ""
    missing = f"book/01-one.qmd:{line}: 'on-gpu' is not yet run on a GPU; "
    assert done.stderr.startswith(missing) and done.stderr.count("\n") == 1
    book.edit("book/02-two.qmd", "@sec-one", "@sec-nowhere")
    book.edit("generated/one.py", "return 1 / x", "return 2 / x")
    try:
        done = weave(book.root, "--check")
    finally:
        book.edit("book/02-two.qmd", "@sec-nowhere", "@sec-one")
        book.edit("generated/one.py", "return 2 / x", "return 1 / x")
    assert done.returncode == 1
    deep = book.line("book/01-one.qmd", "return 1 / x")
    assert f"generated/one.py:{deep}: " in done.stderr
    book.edit("book/02-two.qmd", "@sec-one", "@sec-nowhere")
    book.read()
    try:
        done = weave(book.root, "--check")
    finally:
        book.edit("book/02-two.qmd", "@sec-nowhere", "@sec-one")
        book.read()
    assert re.search(r"^book/02-two.qmd:11: .*sec-nowhere", done.stderr, re.M)
    assert executed(done) == []


def test_a_fault_that_the_lint_sees_costs_no_execution(book, first):
    book.edit("book/02-two.qmd", "print(invert(4)", f"print(invert(4) + {'0 + ' * 20}0")
    try:
        done = weave(book.root)
    finally:
        book.edit("book/02-two.qmd", f" + {'0 + ' * 20}0", "")
    line = book.line("book/02-two.qmd", "invert(4)")
    assert (done.returncode, executed(done)) == (1, [])
    assert done.stderr.startswith(f"book/02-two.qmd:{line}: code of ")


def test_an_edited_module_is_not_overwritten(book, first):
    book.edit("generated/one.py", "return 1 / x", "return 2 / x")
    try:
        done = weave(book.root)
        assert done.returncode == 1
        deep = book.line("book/01-one.qmd", "return 1 / x")
        assert f"generated/one.py:{deep}: " in done.stderr
        assert "return 2 / x" in (book.root / "generated/one.py").read_text()
    finally:
        book.edit("generated/one.py", "return 2 / x", "return 1 / x")


def test_one_chapter_alone(book, first):
    book.edit("book/01-one.qmd", "invert(2)", "invert(8)")
    book.edit("book/02-two.qmd", "invert(4)", "invert(16)")
    done = weave(book.root, "--chapter", "01-one")
    assert executed(done) == ["book/01-one.qmd"]
    assert "only one was woven, as HTML" in done.stdout
    assert "0.125 said by the kernel" in page(book)
    assert "0.25 of two" in page(book, "book/02-two"), "the old page stands"
    done = weave(book.root, "--chapter", "two", "--to", "html")
    assert executed(done) == ["book/02-two.qmd"]
    assert "0.0625 of two" in page(book, "book/02-two")
    done = weave(book.root, "--chapter", "three")
    assert done.returncode == 1
    assert "no chapter 'three'; known: __init__, one, two" in done.stderr


def test_no_cache_executes_all(book, first):
    assert len(executed(weave(book.root, "--no-cache", "--to", "html"))) == 3


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--jobs", "0"], 2, "--jobs 0: at least 1"),
        (["--check", "--serve"], 2, "--check looks at the whole book"),
        (["--renderer", "quarto"], 1, "no working quarto"),
        (["--to", "docx"], 2, "invalid choice"),
    ],
)
def test_wrong_arguments_are_named(book, args, code, words):
    done = weave(book.root, *args, PATH="/nowhere")
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def alive(pid):
    """Whether a process runs (a zombie that nobody has waited for does not)."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_weave_stops_its_kernels_and_leaves_the_book(book, first, sign):
    weave(book.root)
    before = page(book)
    note = book.root / "pid"
    note.unlink(missing_ok=True)
    slow = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open('pid', 'w').write(f'{os.getpid()} {child.pid}')\n"
    )
    book.edit("book/01-one.qmd", "loom.begin(", slow + "time.sleep(60)\nloom.begin(")
    running = subprocess.Popen(
        [sys.executable, ROOT / "weave.py", "--root", book.root],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and running.poll() is None:
            if note.exists() and note.read_text():
                break
            time.sleep(0.1)
        assert note.exists(), running.poll()
        pids = [int(word) for word in note.read_text().split()]
        running.send_signal(sign)
        _, said = running.communicate(timeout=30)
    finally:
        running.kill()
        book.edit("book/01-one.qmd", slow + "time.sleep(60)\n", "")
    assert running.returncode == 130
    assert said == "stopped; the old book is as it was\n"
    assert not any(map(alive, pids))
    assert page(book) == before
    assert not list((book.root / ".weave" / "run").iterdir())


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def test_serve_reloads_survives_faults_and_injects_only_on_the_way(book, first):
    running = subprocess.Popen(
        [sys.executable, "-u", ROOT / "weave.py", "--root", book.root, "--serve"]
        + ["--port", "0", "--to", "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.match(r"(http://127\.0\.0\.1:\d+/)", running.stdout.readline())[1]
        threading.Thread(target=running.stdout.read, daemon=True).start()
        events = f"{url}.loom/events?seen="
        news = json.loads(fetch(events + "0"))
        assert news == {"state": 1, "faults": ""}
        served = fetch(f"{url}book/01-one.html")
        assert "/.loom/events" in served and "/.loom/events" not in page(book)
        assert "loom-faults" in fetch(url)

        book.edit("book/02-two.qmd", "See @sec-one.", "Now see @sec-nowhere.")
        news = json.loads(fetch(events + "1"))
        assert re.match(r"book/02-two\.qmd:\d+: ", news["faults"])
        assert "sec-nowhere" in fetch(f"{url}book/01-one.html"), "faults on the page"

        book.edit("book/02-two.qmd", "@sec-nowhere.", "@sec-one.")
        news = json.loads(fetch(f"{events}{news['state']}"))
        assert news["faults"] == ""
        assert "Now see" in fetch(f"{url}book/02-two.html")
        with pytest.raises(urllib.error.HTTPError):
            fetch(f"{url}../weave.py")
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
        running.stderr.close()
