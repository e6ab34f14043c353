"""Rules about the code of cells: prefix rule, pure imports, replayed names."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import tangle

PACKAGES = frozenset({"numpy", "torch", "triton"})
IMPURE = frozenset("print display input open exec eval breakpoint exit quit".split())
TORCH_PURE = frozenset(
    "finfo iinfo device dtype Size library amp autograd compiler is_tensor".split()
)
REGISTERS = re.compile(r"^_?(register\w*|define|impl|add_safe_globals|setdefault)$")
INLINE = re.compile(r"`\{python\} ?([^`]+)`")


def imports(chapters: tuple[tangle.Chapter, ...]) -> Iterator[tangle.Problem]:
    """Tangled cells import from earlier chapters and four packages only."""
    earlier: list[str] = []
    names = {chapter.name for chapter in chapters if chapter.module}
    for chapter in chapters:
        for cell in chapter.cells:
            if not cell.tangled or "import" not in cell.code:
                continue
            for node in _executed(_tree(cell)):
                if isinstance(node, ast.Import):
                    found = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    found = _targets(node, names)
                else:
                    continue
                for name in found:
                    if message := _import_fault(name, earlier):
                        yield tangle.Problem(chapter.rel, node.lineno, message)
        if chapter.module:
            earlier.append(chapter.name)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _last(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _executed(child)


def _targets(node: ast.ImportFrom, names: set[str]) -> list[str]:
    """The modules that a from-import loads; a chapter's name is a module's."""
    if node.level:
        return ["." * node.level + (node.module or "")]
    module = node.module or ""
    if module != "generated":
        return [module]
    return [
        f"generated.{alias.name}" if alias.name in names else "generated"
        for alias in node.names
    ]


def _import_fault(name: str, earlier: list[str]) -> str:
    top, _, rest = name.partition(".")
    if not top:
        return f"a relative import ('{name}'); write generated.<chapter>"
    if top == "generated":
        module = rest.partition(".")[0] or "__init__"
        if module in earlier:
            return ""
        known = ", ".join(n for n in earlier if n != "__init__") or "none"
        return (
            f"a tangled cell imports '{name}', which is no earlier chapter (earlier:"
            f" {known}); import it in a demonstration cell or move the code"
        )
    if top in sys.stdlib_module_names or top in PACKAGES:
        return ""
    return (
        f"a tangled cell imports '{name}'; accepted: earlier chapters, the standard"
        " library, numpy, torch, triton"
    )


def purity(chapter: tangle.Chapter) -> Iterator[tangle.Problem]:
    """Importing a module computes nothing: no prints, launches or displays."""
    for cell in chapter.cells:
        if cell.tangled:
            own = chapter.rel == "index.qmd"  # it selects the interpreter
            for line, what in _impure(_tree(cell).body, own):
                mend = "put it in a function, or in a cell that is not tangled"
                message = f"{what} at import of the module; {mend}"
                yield tangle.Problem(chapter.rel, line, message)


def _impure(body: list[ast.stmt], own: bool) -> Iterator[tuple[int, str]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.Expr(value=ast.Call() as call):
                name = _last(call.func)
                if not (
                    REGISTERS.match(name) or (own and isinstance(call.func, ast.Name))
                ):
                    yield node.lineno, _what(call) or f"a call of {name or 'a value'}()"
            case ast.Expr():
                yield node.lineno, "an expression that is displayed"
            case ast.Assert():
                yield node.lineno, "an assertion"
            case ast.For() | ast.While() | ast.With() | ast.If() | ast.Try():
                if not _is_main(node):
                    for block in _blocks(node):
                        yield from _impure(block, own)
            case _:
                for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
                    if (what := _what(call)) and not (own and what.endswith("open()")):
                        yield call.lineno, what


def _what(call: ast.Call) -> str:
    """Why the call is not accepted at module level; empty when it is."""
    func = call.func
    if isinstance(func, ast.Subscript):
        return "a kernel launch"
    if isinstance(func, ast.Name) and func.id in IMPURE:
        return f"a call of {func.id}()"
    path = _path(func)
    if path[:1] == ["torch"] and len(path) > 1 and path[1] not in TORCH_PURE:
        return f"a call of {'.'.join(path)}()"
    if _last(func) in ("cuda", "show", "draw"):
        return f"a call of .{_last(func)}()"
    return ""


def _path(node: ast.expr) -> list[str]:
    """``torch.library.custom_op`` as its names; empty for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for handler in getattr(node, "handlers", []):
        yield handler.body


def _is_main(node: ast.stmt) -> bool:
    """``if __name__ == "__main__":``, which an import skips."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )


def replayed_names(chapter: tangle.Chapter) -> Iterator[tangle.Problem]:
    """A capture cell that is replayed binds nothing: its names are not read later."""
    if not any(cell.capture for cell in chapter.cells):
        return
    bound: set[str] = set()
    lost: dict[str, tangle.Cell] = {}
    inline = _inline_reads(chapter)
    for cell in chapter.cells:
        while inline and inline[0][0] < cell.first:
            line, names = inline.pop(0)
            yield from _lost(chapter, line, names, lost)
        try:
            body = _tree(cell).body
        except SyntaxError:
            continue
        for node in body:
            if not cell.capture:
                yield from _lost(chapter, node.lineno, _reads(node), lost)
            new = _binds(node)
            if not cell.capture:
                bound |= new
                for name in new:
                    lost.pop(name, None)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                lost.update(dict.fromkeys(new - bound, cell))
            else:
                lost.update(dict.fromkeys(new, cell))
    for line, names in inline:
        yield from _lost(chapter, line, names, lost)


def _lost(
    chapter: tangle.Chapter, line: int, names: set[str], lost: dict[str, tangle.Cell]
) -> Iterator[tangle.Problem]:
    for name in sorted(names & lost.keys()):
        cell = lost[name]
        yield tangle.Problem(
            chapter.rel,
            line,
            f"'{name}' is bound in the capture cell '{cell.label}' (line {cell.first}),"
            f' which binds nothing when replayed; read captured("{cell.label}")',
        )


def _inline_reads(chapter: tangle.Chapter) -> list[tuple[int, set[str]]]:
    """Names that the inline expressions in prose read, by line."""
    inside = {n for c in chapter.cells for n in range(c.first, c.last + 1)}
    found = []
    for n, line in enumerate(chapter.text.split("\n"), 1):
        if "{python}" in line and n not in inside:
            for match in INLINE.finditer(line):
                try:
                    found.append((n, _reads(ast.parse(match[1].strip(), mode="eval"))))
                except SyntaxError:
                    continue
    return found


def _reads(node: ast.AST) -> set[str]:
    """Names that a statement reads from outside: no parameters, no own locals."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return _function_reads(node)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        own = {n for g in node.generators for n in _names(g.target, ast.Store)}
        return _children_read(node) - own
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return _reads(node.value) | {node.target.id}
    return _children_read(node)


def _children_read(node: ast.AST) -> set[str]:
    return {n for child in ast.iter_child_nodes(node) for n in _reads(child)}


def _function_reads(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
) -> set[str]:
    body = node.body if isinstance(node.body, list) else [node.body]
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [a for a in (arguments.vararg, arguments.kwarg) if a]
    own = {argument.arg for argument in given}
    for child in body:
        own |= _binds(child)
    reads = {n for child in body for n in _reads(child)} - own
    outside = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    outside += getattr(node, "decorator_list", [])
    return reads | {n for child in outside for n in _reads(child)}


def _binds(node: ast.AST) -> set[str]:
    """Names that a statement binds in the scope it stands in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in node.names}
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp):
        return set()
    if isinstance(node, ast.GeneratorExp):
        return set()
    own = {node.id} if isinstance(node, ast.Name) and _stores(node) else set()
    if isinstance(node, ast.ExceptHandler) and node.name:
        own.add(node.name)
    return own | {n for child in ast.iter_child_nodes(node) for n in _binds(child)}


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, context)
    }


def _tree(cell: tangle.Cell) -> ast.Module:
    """The cell's syntax tree with the chapter's line numbers."""
    tree = ast.parse(cell.code)
    ast.increment_lineno(tree, cell.code_line - 1)
    return tree
