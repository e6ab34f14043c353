"""Exercises: a test each, run on the reader's answer or on the printed one.

The test of an exercise is ``exercises/test_<chapter>_<name>.py``; ``<chapter>``
is the chapter's module name (``jit``) and ``<name>`` the exercise's, both in
snake_case.  The reader answers in ``exercises/<name>.py``; the chapter prints an
answer in the cell labelled ``solution-<name>`` (kebab-case).

A test takes the fixture ``attempt``, which is the answer as a module::

    def test_ends_exactly(attempt):
        assert attempt.programs(10, 4) == 3

``pytest exercises/test_jit_programs.py`` runs it on ``exercises/programs.py``;
``pytest exercises --solutions`` runs every test on the printed answers.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tangle

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--solutions",
        action="store_true",
        help="run the exercises' tests on the solutions printed in the book",
    )


@pytest.fixture(scope="session")
def book() -> tangle.Book:
    """The book beside this folder; every fault in it is printed at once."""
    try:
        return tangle.read_book(ROOT)
    except tangle.BookError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def attempt(request: pytest.FixtureRequest, book: tangle.Book) -> ModuleType:
    """The answer under test: the reader's file, or the printed solution."""
    chapter, name = _exercise(request.path, book)
    if request.config.getoption("--solutions"):
        return printed_solution(chapter, name)
    return _reader_file(request.path, chapter, name)


def _exercise(test: Path, book: tangle.Book) -> tuple[tangle.Chapter, str]:
    """The chapter and the exercise that ``test_<chapter>_<name>.py`` names."""
    stem = test.stem.removeprefix("test_")
    fits = [c for c in book.chapters if stem.startswith(f"{c.name}_")]
    if not fits:
        names = ", ".join(chapter.name for chapter in book.chapters)
        pytest.fail(
            f"exercises/{test.name}: the name names no chapter; accepted is "
            f"test_<chapter>_<name>.py with a chapter of: {names}",
            pytrace=False,
        )
    chapter = max(fits, key=lambda c: len(c.name))
    return chapter, stem[len(chapter.name) + 1 :]


def _reader_file(test: Path, chapter: tangle.Chapter, name: str) -> ModuleType:
    path = test.parent / f"{name}.py"
    if not path.exists():
        pytest.fail(
            f"no answer yet: write exercises/{name}.py (the exercise is in "
            f"{chapter.rel}), then run pytest exercises/{test.name} again; with "
            "--solutions the test runs on the printed solution",
            pytrace=False,
        )
    spec = importlib.util.spec_from_file_location(f"attempt_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def printed_solution(chapter: tangle.Chapter, name: str) -> ModuleType:
    """The cell ``solution-<name>``, run where the chapter has it.

    It sees the chapter's module and what the cells before it import, as in the
    book, and nothing else.  Its code stands at its true lines of the chapter, so
    a traceback names them and ``@triton.jit`` finds its source.
    """
    label = f"solution-{name.replace('_', '-')}"
    before: list[tangle.Cell] = []
    for cell in chapter.cells:
        if cell.label == label:
            break
        before.append(cell)
    else:
        pytest.fail(
            f"{chapter.rel}: no cell is labelled {label!r}, the solution of the "
            "exercise",
            pytrace=False,
        )
    module = ModuleType(f"solution_{name}")
    sys.modules[module.__name__] = module
    if chapter.module is not None:
        package = Path(chapter.module).with_suffix("").as_posix()
        package = package.replace("/", ".").removesuffix(".__init__")
        own = importlib.import_module(package)
        module.__dict__.update(
            {k: v for k, v in vars(own).items() if not k.startswith("__")}
        )
    path = str(chapter.path)
    for earlier in before:
        if not earlier.tangled and earlier.capture is None:
            exec(compile(_imports(earlier), path, "exec"), module.__dict__)
    exec(compile(_padded(cell), path, "exec"), module.__dict__)
    return module


def _imports(cell: tangle.Cell) -> ast.Module:
    """The top-level imports of a demonstration cell; none where it is not Python."""
    try:
        body = ast.parse(_padded(cell)).body
    except SyntaxError:  # a cell that shows a failure, or one with a magic
        body = []
    imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    return ast.Module(body=list(imports), type_ignores=[])


def _padded(cell: tangle.Cell) -> str:
    return "\n" * (cell.code_line - 1) + cell.code
