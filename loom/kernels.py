"""Turn a kernel object into something that another process can load.

A kernel that was imported from a tangled module (``generated.reductions``) travels as
the module's name. Any other kernel, one defined in a chapter's cell or in a test,
travels as its source text with its true path and line numbers, together with the
helper functions and constants that it names, recursively. `pack` runs in the calling
process, `unpack` in the worker.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import linecache
import pickle
import re
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CARRIED_OPTIONS = (
    "noinline",
    "do_not_specialize",
    "do_not_specialize_on_alignment",
    "debug",
)
COMPILE_OPTIONS = {
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "launch_pdl",
    "launch_cooperative_grid",
    "ptx_options",
    "schedule_hint",
}
_EMPTY = inspect.Parameter.empty


class KernelError(ValueError):
    """A kernel, or an argument for it, that cannot be used as given."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    constexpr: bool
    default: Any = _EMPTY

    @property
    def required(self) -> bool:
        return self.default is _EMPTY


@dataclass(frozen=True)
class Kernel:
    """A kernel as the calling process sees it."""

    name: str
    path: str
    line: int
    jitted: Any
    parameters: tuple[Parameter, ...]
    configuration: dict[str, Any]
    heuristics: dict[str, Callable[[dict[str, Any]], Any]]

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def names(self) -> list[str]:
        return [p.name for p in self.parameters]


def describe(kernel: Any) -> Kernel:
    """Say what a kernel is and where it stands.

    An autotuned kernel brings its first configuration along, and a kernel with
    heuristics brings those. Raises `KernelError` if `kernel` is not jitted.
    """
    configuration: dict[str, Any] = {}
    heuristics: dict[str, Any] = {}
    jitted = kernel
    while True:
        kind = type(jitted).__name__
        if kind == "Autotuner" and jitted.configs:
            configuration = _first_configuration(jitted.configs[0]) | configuration
        elif kind == "Heuristics":
            heuristics = dict(jitted.values) | heuristics
        else:
            break
        jitted = jitted.fn
    if not is_jitted(jitted):
        got = getattr(kernel, "__name__", None) or type(kernel).__name__
        raise KernelError(
            f"got {got!r} ({type(kernel).__name__}), which is no kernel; "
            "accepted is a function decorated with @triton.jit"
        )
    fn = jitted.fn
    lines, first = source_lines(fn)
    parameters = tuple(
        Parameter(p.name, "constexpr" in str(p.annotation), p.default)
        for p in inspect.signature(fn).parameters.values()
    )
    line = first + _definition_offset(lines)
    path = public_path(fn.__code__.co_filename)
    return Kernel(
        fn.__name__, path, line, jitted, parameters, configuration, heuristics
    )


def is_jitted(value: Any) -> bool:
    """Whether `value` is what @triton.jit makes, compiled or interpreted."""
    names = {base.__name__ for base in type(value).__mro__}
    wrapped = inspect.isfunction(getattr(value, "fn", None))
    return wrapped and bool(names & {"JITFunction", "InterpretedFunction"})


def public_path(path: str) -> str:
    """A path as the book may print it: no machine folder, no temporary name."""
    if path.startswith("<") or re.search(r"ipykernel_\d+", path):
        return "cell.py"
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            return path.rpartition(marker)[2]
    candidate = Path(path)
    if not candidate.is_absolute():
        return candidate.as_posix()
    triton = sys.modules.get("triton")
    if triton is not None and triton.__file__:
        installed = Path(triton.__file__).parent.parent
        if candidate.is_relative_to(installed / "triton"):
            return candidate.relative_to(installed).as_posix()
    for root in (ROOT, Path.cwd()):
        if candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    return candidate.name


def source_lines(fn: Callable[..., Any]) -> tuple[list[str], int]:
    """A function's source lines and the number of the first; raises KernelError."""
    try:
        return inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise KernelError(
            f"{public_path(fn.__code__.co_filename)}: the source of {fn.__name__!r} "
            "cannot be read; define the kernel in a file or in a notebook cell"
        ) from error


def _definition_offset(lines: list[str]) -> int:
    for offset, line in enumerate(lines):
        if line.lstrip().startswith(("def ", "async def ")):
            return offset
    return 0


def _first_configuration(config: Any) -> dict[str, Any]:
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return options | dict(config.kwargs)


# --- packing, in the calling process -------------------------------------------------


def pack(jitted: Any) -> dict[str, Any]:
    """Everything a worker needs to load `jitted`, as plain picklable data."""
    packer = _Packer()
    entry = packer.encode(jitted, "the kernel")
    return {"entry": entry, "functions": packer.functions}


def pack_value(value: Any, where: str) -> dict[str, Any]:
    """Pack a compile-time value: a number, a dtype, a helper function, a tuple."""
    packer = _Packer()
    return {"entry": packer.encode(value, where), "functions": packer.functions}


class _Packer:
    def __init__(self) -> None:
        self.functions: dict[str, dict[str, Any]] = {}

    def encode(self, value: Any, where: str) -> tuple[Any, ...]:
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return ("value", value)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if type(value).__name__ == "constexpr" and hasattr(value, "value"):
            return ("constexpr", self.encode(value.value, where))
        if type(value).__name__ in ("Autotuner", "Heuristics"):
            return self.encode(value.fn, where)
        if inspect.isfunction(getattr(value, "fn", None)):
            return _attribute(value, value.fn) or self._function(value.fn, value)
        if isinstance(value, (tuple, list)):
            if hasattr(value, "_fields"):
                items = tuple(self.encode(item, where) for item in value)
                return ("namedtuple", type(value).__name__, value._fields, items)
            items = tuple(self.encode(item, where) for item in value)
            return ("tuple" if isinstance(value, tuple) else "list", items)
        if isinstance(value, dict):
            items = tuple((k, self.encode(v, where)) for k, v in value.items())
            return ("dict", items)
        if inspect.isfunction(value):
            return _attribute(value, value) or self._function(value, None)
        if inspect.isclass(value) or callable(value):
            found = _attribute(value, value)
            if found:
                return found
        elif type(value).__module__.partition(".")[0] in ("triton", "torch", "numpy"):
            if not hasattr(value, "data_ptr"):
                return ("pickle", pickle.dumps(value))
        raise KernelError(
            f"{where} uses a {type(value).__name__}, which a kernel cannot see; "
            "accepted are numbers, strings, tuples, tl.constexpr, dtypes, modules "
            "and jitted functions"
        )

    def _function(self, fn: Callable[..., Any], wrapper: Any) -> tuple[str, str]:
        lines, first = source_lines(fn)
        key = f"{fn.__code__.co_filename}:{first}:{fn.__qualname__}:{id(fn)}"
        if key in self.functions:
            return ("function", key)
        path = public_path(fn.__code__.co_filename)
        record: dict[str, Any] = {
            "kind": _wrapper_kind(wrapper),
            "name": fn.__name__,
            "module": _module_name(fn, path),
            "path": path,
            "first": first,
            "lines": lines,
            "options": _options(wrapper),
            "names": {},
        }
        self.functions[key] = record
        for name, value in sorted(_names_used(fn, lines).items()):
            where = f"{path}:{first}: {fn.__name__!r} names {name!r}, and it"
            record["names"][name] = self.encode(value, where)
        return ("function", key)


def _wrapper_kind(wrapper: Any) -> str:
    if wrapper is None:
        return "plain"
    if type(wrapper).__name__ == "ConstexprFunction":
        return "constexpr_function"
    if is_jitted(wrapper):
        return "jit"
    raise KernelError(f"a {type(wrapper).__name__} cannot be carried to the worker")


def _options(wrapper: Any) -> dict[str, Any]:
    stored = getattr(wrapper, "kwargs", None) or {}
    options = {}
    for name in CARRIED_OPTIONS:
        value = stored.get(name, getattr(wrapper, name, None))
        if value:
            options[name] = value
    return options


def _module_name(fn: Callable[..., Any], path: str) -> str:
    """The module a reader would name: that of the path, for a line-true cell."""
    if re.fullmatch(r"(\w+/)+\w+\.py", path):
        return path.removesuffix(".py").replace("/", ".")
    return fn.__module__ or "__main__"


def _attribute(value: Any, named: Any) -> tuple[str, str, str] | None:
    """`value` as (module, name), if a fresh process finds the same thing there."""
    module = getattr(named, "__module__", None) or ""
    name = getattr(named, "__qualname__", "")
    if module not in sys.modules or not name or not _importable(sys.modules[module]):
        return None
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    while found is not None and found is not value:
        found = getattr(found, "fn", None)
    return ("attribute", module, name) if found is value else None


def _importable(module: types.ModuleType) -> bool:
    """Whether the worker can import this very module by its name."""
    if module.__name__ == "__main__":
        return False
    if module.__name__ in sys.builtin_module_names or module is builtins:
        return True
    file = getattr(module, "__file__", None)
    if not file:
        return False
    paths = sysconfig.get_paths()
    installed = {paths["stdlib"], paths["platstdlib"], paths["purelib"]}
    installed |= {paths["platlib"]}
    if any(Path(file).is_relative_to(folder) for folder in installed):
        return True
    if module.__name__.partition(".")[0] in ("triton", "torch", "numpy"):
        return True
    expected = ROOT.joinpath(*module.__name__.split("."))
    inside = expected.relative_to(ROOT).parts[0] in ("generated", "benchmarks", "loom")
    return inside and Path(file) in (
        expected.with_suffix(".py"),
        expected / "__init__.py",
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names_used(fn: Callable[..., Any], lines: list[str]) -> dict[str, Any]:
    """The globals and closure variables that a function's text names."""
    tree = _definition("".join(lines))
    outside = set(fn.__code__.co_freevars)
    for code in _codes(fn.__code__):
        outside |= set(code.co_names)
    tree.decorator_list = []
    header = ast.Module([ast.Expr(n) for n in _header_nodes(tree)], [])
    outside |= {n.id for n in ast.walk(header) if isinstance(n, ast.Name)}
    named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    named |= {n.id for n in ast.walk(header) if isinstance(n, ast.Name)}
    scope = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return {name: scope[name] for name in named & outside if name in scope}


def _definition(text: str) -> ast.FunctionDef:
    for node in ast.parse(textwrap.dedent(text)).body:
        if isinstance(node, ast.FunctionDef):
            return node
    raise KernelError(f"got a kernel whose source is no function: {text[:60]!r}")


def _header_nodes(tree: ast.FunctionDef) -> Iterator[ast.expr]:
    """Defaults and annotations, strings among the annotations parsed."""
    arguments = tree.args
    yield from arguments.defaults
    yield from (d for d in arguments.kw_defaults if d is not None)
    every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    notes = [a.annotation for a in every] + [tree.returns]
    for note in notes:
        if isinstance(note, ast.Constant) and isinstance(note.value, str):
            try:
                yield ast.parse(note.value, mode="eval").body
            except SyntaxError:
                continue
        elif note is not None:
            yield note


# --- unpacking, in the worker --------------------------------------------------------


def unpack(packed: dict[str, Any]) -> Any:
    """Load what `pack` made. Needs triton to be importable."""
    return _Unpacker(packed["functions"]).decode(packed["entry"])


class _Unpacker:
    def __init__(self, functions: dict[str, dict[str, Any]]) -> None:
        self.functions = functions
        self.built: dict[str, Any] = {}
        self.spaces: dict[str, dict[str, Any]] = {}
        self.late: list[tuple[dict[str, Any], str, str]] = []
        _remember_sources(functions.values())

    def decode(self, code: tuple[Any, ...]) -> Any:
        kind = code[0]
        if kind == "value":
            return code[1]
        if kind == "module":
            return importlib.import_module(code[1])
        if kind == "constexpr":
            import triton.language as tl

            return tl.constexpr(self.decode(code[1]))
        if kind == "attribute":
            found: Any = importlib.import_module(code[1])
            for part in code[2].split("."):
                found = getattr(found, part)
            return found
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(map(self.decode, code[1]))
        if kind == "namedtuple":
            return named_tuple(code[1], code[2], map(self.decode, code[3]))
        if kind == "dict":
            return {key: self.decode(value) for key, value in code[1]}
        if kind == "pickle":
            return pickle.loads(code[1])
        return self._build(code[1])

    def _build(self, key: str) -> Any:
        if key in self.built:
            return self.built[key]
        record = self.functions[key]
        space: dict[str, Any] = {
            "__name__": record["module"],
            "__builtins__": builtins,
        }
        self.spaces[key] = space
        for name, code in record["names"].items():
            begun = code[0] == "function" and code[1] in self.spaces
            if begun and code[1] not in self.built:
                self.late.append((space, name, code[1]))
            else:
                space[name] = self.decode(code)
        if record["kind"] == "jit":
            # the interpreter patches the module that it finds among the globals
            space.setdefault("tl", importlib.import_module("triton.language"))
        self.built[key] = _wrap(record, _define(record, space))
        for other, name, wanted in self.late:
            if wanted == key:
                other[name] = self.built[key]
        return self.built[key]


def named_tuple(name: str, fields: tuple[str, ...], items: Any) -> Any:
    """A named tuple of a class made anew, as the caller's class does not travel."""
    from collections import namedtuple

    return namedtuple(name, fields)(*items)  # type: ignore[misc]


def _remember_sources(records: Any) -> None:
    """Make each function's source readable under its own path and line numbers."""
    files: dict[str, list[str]] = {}
    for record in records:
        lines = files.setdefault(record["path"], [])
        last = record["first"] - 1 + len(record["lines"])
        lines.extend(["\n"] * (last - len(lines)))
        lines[record["first"] - 1 : last] = record["lines"]
    for path, lines in files.items():
        size = sum(map(len, lines))
        linecache.cache[path] = (size, None, lines, path)


def _define(record: dict[str, Any], space: dict[str, Any]) -> Callable[..., Any]:
    """Execute a function's definition, without decorators, at its true lines."""
    tree = _definition("".join(record["lines"]))
    tree.decorator_list = []
    module = ast.Module([tree], [])
    ast.increment_lineno(module, record["first"] - 1)
    exec(compile(module, record["path"], "exec", dont_inherit=True), space)
    fn: Callable[..., Any] = space[record["name"]]
    fn.__module__ = record["module"]
    return fn


def _wrap(record: dict[str, Any], fn: Callable[..., Any]) -> Any:
    import triton

    if record["kind"] == "plain":
        return fn
    if record["kind"] == "constexpr_function":
        return triton.constexpr_function(fn)
    return triton.jit(fn, **record["options"])
