"""The wheel: what is in it, and that it installs and imports on its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Import names of what only the workshop needs, and of the workshop itself.
WORKSHOP = (
    "loom tangle weave nbformat nbclient jupytext jupyter_client jupyter_core"
    " ipykernel IPython pypandoc typst yaml matplotlib rich pytest hypothesis"
    " pypdf mypy ruff build hatchling playwright axe_playwright_python"
).split()

PRELUDE = f"""
import sys

class Blocked:
    '''Refuses the workshop's packages, as on a machine that has none of them.'''

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WORKSHOP!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
"""

NO_DRIVER = """
import ctypes

class CDLL(ctypes.CDLL):
    def __init__(self, name, *args, **kwargs):
        if name and str(name).startswith(("libcuda.", "libnvidia-ml.")):
            raise OSError(f"{name}: cannot open shared object file")
        super().__init__(name, *args, **kwargs)

ctypes.CDLL = CDLL
"""

DRIVER = """
import ctypes, types

def answer(*arguments):
    for argument in arguments:
        argument._obj.value = 1  # one device
    return 0

class Library:
    def __init__(self, name, *args, **kwargs):
        assert name.startswith(("libcuda.", "libnvidia-ml.")), name

    def __getattr__(self, name):
        return answer

ctypes.CDLL = Library
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree as `make wheel` builds it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*command, "--outdir", out, ROOT], check=True, capture_output=True)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed and nothing else."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "--target", target, wheel]
    subprocess.run(command, check=True, capture_output=True)
    return target


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        message = Parser().parsestr(archive.read(name).decode("utf-8"))
    return {key: message.get_all(key, []) for key in message}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    modules = {f"generated/{p.name}" for p in (ROOT / "generated").glob("*.py")}
    tables = {f"generated/tuned/{p.name}" for p in ROOT.glob("generated/tuned/*.json")}
    info = "triton_from_first_principles-0.1.0.dist-info"
    files = {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}
    expected = modules | tables | {"generated/py.typed"}
    assert names(wheel) == expected | {f"{info}/{name}" for name in files}
    assert "generated/__init__.py" in modules


def test_the_wheel_is_for_every_platform(wheel: Path) -> None:
    assert wheel.name == "triton_from_first_principles-0.1.0-py3-none-any.whl"


def test_the_wheel_requires_no_package_of_the_workshop(wheel: Path) -> None:
    required = metadata(wheel)["Requires-Dist"]
    plain = [line for line in required if "extra ==" not in line]
    assert sorted(re.match(r"[\w-]+", line)[0] for line in plain) == [
        "numpy",
        "torch",
        "triton",
    ]
    (triton,) = (line for line in plain if line.startswith("triton"))
    assert re.search(r"platform_system == .Linux.", triton)
    assert metadata(wheel)["Provides-Extra"] == ["book", "quarto", "test"]


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    text = (ROOT / "generated/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    assert version and metadata(wheel)["Version"] == [version[1]]


def python(site: Path, folder: Path, code: str, **environment: str) -> str:
    """What a clean process in an unrelated folder prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    clean |= {"PYTHONPATH": str(site), **environment}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SELECTED = """
import os, generated
assert not {"torch", "triton", "numpy"} & set(sys.modules)
print(generated.__file__, os.environ.get("TRITON_INTERPRET"))
"""


def test_without_a_driver_it_runs_in_the_interpreter(
    site: Path, tmp_path: Path
) -> None:
    code = """
import torch
from generated import vector_add
print(vector_add(torch.ones(5), torch.arange(5.0)).tolist())
"""
    code = NO_DRIVER + SELECTED + code
    first, result = python(site, tmp_path, code, CUDA_VISIBLE_DEVICES="").splitlines()
    place, told = first.rsplit(" ", 1)
    assert place == str(site / "generated/__init__.py")
    assert told == "1"
    assert result == "[1.0, 2.0, 3.0, 4.0, 5.0]"


def test_with_a_driver_kernels_are_compiled(site: Path, tmp_path: Path) -> None:
    torch = tmp_path / "cuda/torch"  # stands for a CUDA build of PyTorch
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    (torch / "version.py").write_text("cuda = '13.0'\nhip = None\n")
    path = os.pathsep.join([str(torch.parent), str(site)])
    clean = {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "0"}
    printed = python(site, tmp_path, DRIVER + SELECTED, **clean)
    assert printed.split() == [str(site / "generated/__init__.py"), "None"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_choice_of_the_reader_is_respected(
    site: Path, tmp_path: Path, value: str
) -> None:
    code = NO_DRIVER + SELECTED
    printed = python(site, tmp_path, code, TRITON_INTERPRET=value)
    assert printed.split()[1] == value


def test_every_module_imports_without_the_workshop(site: Path, tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, generated
for module in pkgutil.iter_modules(generated.__path__):
    importlib.import_module(f"generated.{module.name}")
    print(module.name)
"""
    printed = python(site, tmp_path, NO_DRIVER + code, CUDA_VISIBLE_DEVICES="")
    modules = {p.stem for p in (ROOT / "generated").glob("*.py")} - {"__init__"}
    assert set(printed.split()) == modules


def test_the_workshop_is_what_is_blocked() -> None:
    """A package added to an extra is added to the list above, or is not blocked."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    imported = {"pyyaml": "yaml", "pypandoc-binary": "pypandoc"}
    shared = {"mpmath"}  # PyTorch needs it, through sympy
    commands = {"pytest-xdist", "playwright"}
    for requirement in [*extras["book"], *extras["test"]]:
        name = re.match(r"[\w-]+", requirement)[0]
        if name not in shared | commands:
            assert imported.get(name, name.replace("-", "_")) in WORKSHOP


def test_every_requirement_is_pinned() -> None:
    """constraints.txt pins all of pyproject.toml, exactly, with public versions."""
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[\w.-]+==\d+(\.\d+)*(\.?(post|rc|a|b)\d+)?", line), (
                line
            )
            name, _, version = line.partition("==")
            pins[normal(name)] = version
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [*project["dependencies"]]
    for requirements in project["optional-dependencies"].values():
        wanted += requirements
    missing = [w for w in wanted if normal(re.match(r"[\w-]+", w)[0]) not in pins]
    assert missing == []
    assert (pins["torch"], pins["triton"]) == ("2.13.0", "3.7.1")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
