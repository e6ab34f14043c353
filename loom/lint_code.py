"""Rules about the code of cells: prefix rule, pure imports, replayed names."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

import tangle
from loom import scopes, syntax
from loom.parts import Inline, find_inlines

PACKAGES = frozenset({"numpy", "torch", "triton"})
IMPURE = frozenset("print display input open exec eval breakpoint exit quit".split())
TORCH_PURE = frozenset(
    "finfo iinfo device dtype Size library amp autograd compiler is_tensor".split()
)
REGISTERS = re.compile(r"^_?(register\w*|define|impl|add_safe_globals|setdefault)$")


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
    """A capture cell that is replayed binds and changes nothing: what it would have
    bound or changed is not read later."""
    if not any(cell.capture for cell in chapter.cells):
        return
    bound: set[str] = set()
    modules: set[str] = set()  # `torch.backends.x = …` changes no value of ours
    lost: dict[str, tuple[tangle.Cell, str]] = {}
    inline = _inlines(chapter)
    for cell in chapter.cells:
        while inline and inline[0].line < cell.first:
            yield from _read_inline(chapter, inline.pop(0), lost)
        if cell.options.get("eval") == "false":
            continue
        try:
            body = _tree(cell).body
        except SyntaxError:
            continue
        every = scopes.of(body)
        modules |= every.imported
        if cell.capture:
            again = every.imported & bound
            changed = every.changed - modules - every.bound
            lost |= dict.fromkeys(changed, (cell, "changed"))
            lost |= dict.fromkeys(every.bound - again, (cell, "bound"))
            continue
        for node in body:
            one = scopes.of([node])
            reads = one.reads | one.late - every.bound
            yield from _lost(chapter, node.lineno, reads, lost)
            for name in one.bound:
                lost.pop(name, None)
        bound |= every.bound
    for expression in inline:
        yield from _read_inline(chapter, expression, lost)


def _lost(
    chapter: tangle.Chapter,
    line: int,
    names: Iterable[str],
    lost: dict[str, tuple[tangle.Cell, str]],
) -> Iterator[tangle.Problem]:
    for name in sorted(lost.keys() & set(names)):
        cell, how = lost[name]
        nothing = "binds" if how == "bound" else "changes"
        yield tangle.Problem(
            chapter.rel,
            line,
            f"'{name}' is {how} in the capture cell '{cell.label}' (line {cell.first}),"
            f" which {nothing} nothing when replayed; read"
            f' captured("{cell.label}")',
        )


def _inlines(chapter: tangle.Chapter) -> list[Inline]:
    """The inline expressions in prose, by line."""
    lines = chapter.text.split("\n")
    for cell in chapter.cells:
        lines[cell.first - 1 : cell.last] = [""] * (cell.last - cell.first + 1)
    return find_inlines("\n".join(lines))


def _read_inline(
    chapter: tangle.Chapter,
    inline: Inline,
    lost: dict[str, tuple[tangle.Cell, str]],
) -> Iterator[tangle.Problem]:
    try:
        names = scopes.of_expression(syntax.parse(inline.code, mode="eval"))
    except SyntaxError:
        return
    yield from _lost(chapter, inline.line, names.reads | names.late, lost)


def _tree(cell: tangle.Cell) -> ast.Module:
    """The cell's syntax tree with the chapter's line numbers."""
    tree = syntax.parse(cell.code)
    ast.increment_lineno(tree, cell.code_line - 1)
    return tree
