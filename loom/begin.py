"""The hidden first cell of every chapter: ``loom.begin(name)``."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import tangle
from loom import captures, lines, reads


def begin(name: str) -> None:
    """Prepare the notebook of the chapter whose module is `name`, and say in one
    line where its outputs come from.

    Raises ValueError when no chapter has that name.
    """
    import generated  # noqa: F401  selects the interpreter before triton is imported

    prepare(name)
    _fix_formats()
    shell = _shell()
    if shell is None:
        return
    from IPython.display import Markdown, display

    display(Markdown(f"[{evidence()}]{{.evidence}}"))


def prepare(name: str, capturing: bool = False) -> None:
    """Install the hooks for a chapter; nothing heavy is imported or shown.

    With ``capturing``, capture cells run and are not replayed.
    """
    root = find_root()
    if captures.begun(root, name):
        return
    chapter = find_chapter(root, name)
    session = captures.start(root, chapter, capturing)
    shell = _shell()
    if shell is not None:
        lines.install(chapter, root, shell)
        captures.install(session, shell)
        _plain_tracebacks(shell)
    reads.record(root)


def find_root() -> Path:
    """The folder of ``_quarto.yml``: the working directory's, or this package's."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_quarto.yml").is_file():
            return folder
    return Path(__file__).resolve().parent.parent


def find_chapter(root: Path, name: str) -> tangle.Chapter:
    """Read the chapter with this module name; faults elsewhere do not count."""
    order, _ = tangle.page_order(root)
    for rel in order:
        if tangle.module_name(rel) == name:
            return tangle.read_chapter(root / rel, rel)
    known = ", ".join(tangle.module_name(rel) for rel in order)
    raise ValueError(f"loom.begin({name!r}): no such chapter; the chapters are {known}")


def evidence() -> str:
    """Where the outputs come from, with versions."""
    versions = ", ".join(f"{p} {version(p)}" for p in ("torch", "numpy"))
    python = ".".join(platform.python_version_tuple()[:2])
    return (
        f"Outputs on this page: Triton {version('triton')} {_runs_on()}, "
        f"{versions}, Python {python}"
    )


def version(package: str) -> str:
    """The installed version without its build tag (``2.13.0+cpu`` → ``2.13.0``)."""
    try:
        return metadata.version(package).split("+")[0]
    except metadata.PackageNotFoundError:
        return "not installed"


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


def _runs_on() -> str:
    if interpreted():
        return "interpreter on the CPU"
    import torch

    if torch.cuda.is_available():
        return f"on {torch.cuda.get_device_name()}"
    return "without a GPU"


def _shell() -> Any:
    """The running IPython shell, if there is one; IPython is not imported for it."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _plain_tracebacks(shell: Any) -> None:
    """The same traceback everywhere: no color codes, two lines a frame."""
    shell.colors = "nocolor"
    shell.InteractiveTB.set_mode("Plain")


def _fix_formats() -> None:
    """One look for tensors and plots, whatever shows them."""
    import numpy as np
    import torch

    np.set_printoptions(linewidth=80)
    torch.set_printoptions(linewidth=80)
    style = Path(__file__).with_name("matplotlibrc")
    if "matplotlib" in sys.modules:  # Quarto imports it before the first cell
        import matplotlib

        matplotlib.rc_file(style)
    os.environ["MATPLOTLIBRC"] = str(style)
    shell = _shell()
    if shell is None:
        return
    shell.config.InlineBackend.figure_formats = {"svg"}
    shell.config.InlineBackend.print_figure_kwargs = {
        "bbox_inches": "tight",
        "metadata": {"Date": None},
    }
    if "matplotlib_inline.backend_inline" in sys.modules:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        options = shell.config.InlineBackend.print_figure_kwargs
        set_matplotlib_formats("svg", **options)
