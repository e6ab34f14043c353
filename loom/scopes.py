"""Names of a piece of code: what it binds, reads and changes, scope by scope.

Our own walk over the syntax tree: ``symtable`` describes comprehensions, annotations
and type parameters differently from one Python version to the next, and a capture key
has to be the same on all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MUTATORS = frozenset(
    "add append appendleft clear discard extend insert pop popitem popleft remove"
    " reverse setdefault sort update".split()
)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Names:
    """The global names of a piece of code.

    ``surely`` are bound whenever the code runs to its end.  ``reads`` are read at
    once and from outside; ``late`` are read by functions, when they are called.
    ``changed`` have an item or attribute assigned, or a method called that changes
    them in place.
    """

    bound: frozenset[str]
    surely: frozenset[str]
    reads: frozenset[str]
    late: frozenset[str]
    changed: frozenset[str]
    imported: frozenset[str]


def of(body: Sequence[ast.stmt]) -> Names:
    """The names of statements at the top of a module or cell."""
    code = _Code()
    surely = code.block(body, set())
    sure = frozenset(surely or ()) - code.maybe_gone
    return Names(
        bound=frozenset(code.bound | code.declared),
        surely=sure,
        reads=frozenset(code.reads),
        late=frozenset(code.late - sure),
        changed=frozenset(code.changed),
        imported=frozenset(code.imported),
    )


def of_expression(node: ast.Expression) -> Names:
    """The names of one expression."""
    return of([ast.Expr(node.body)])


class _Code:
    """One scope, read from top to bottom."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.reads: set[str] = set()
        self.late: set[str] = set()
        self.changed: set[str] = set()
        self.imported: set[str] = set()
        self.declared: set[str] = set()  # bound in a function that says `global`
        self.says_global: set[str] = set()
        self.says_nonlocal: set[str] = set()
        self.maybe_gone: set[str] = set()

    def block(self, body: Sequence[ast.stmt], have: set[str]) -> set[str] | None:
        """Read statements where `have` is bound; what is bound behind them, or None
        when they never come to their end."""
        now: set[str] | None = set(have)
        for statement in body:
            if now is None:  # never reached
                return None
            now = self.statement(statement, now)
        return now

    def statement(self, node: ast.stmt, have: set[str]) -> set[str] | None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.read([*node.decorator_list, *_outside(node)], have)
                self.function(node, have)
                return self.bind({node.name}, have)
            case ast.ClassDef():
                self.klass(node, have)
                return self.bind({node.name}, have)
            case ast.Import() | ast.ImportFrom():
                names = {(a.asname or a.name).partition(".")[0] for a in node.names}
                self.imported |= names
                return self.bind(names, have)
            case ast.Assign():
                self.read([node.value], have)
                return self.targets(node.targets, have)
            case ast.AugAssign():
                self.read([node.value], have)
                if isinstance(node.target, ast.Name):
                    self.reads |= {node.target.id} - have
                return self.targets([node.target], have)
            case ast.AnnAssign():
                self.read([node.annotation, node.value], have)
                return self.targets([node.target] if node.value else [], have)
            case ast.For() | ast.AsyncFor():
                self.read([node.iter], have)
                self.block(node.body, self.targets([node.target], have))
                self.block(node.orelse, have)
                return have
            case ast.While():
                self.read([node.test], have)
                self.block(node.body, have)
                self.block(node.orelse, have)
                return have
            case ast.If():
                self.read([node.test], have)
                return _meet(self.block(node.body, have), self.block(node.orelse, have))
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.read([item.context_expr], have)
                    if item.optional_vars is not None:
                        have = self.targets([item.optional_vars], have)
                return self.block(node.body, have)
            case ast.Try():
                return self.attempt(node, have)
            case ast.Match():
                return self.cases(node, have)
            case ast.Delete():
                gone = {t.id for t in node.targets if isinstance(t, ast.Name)}
                self.reads |= gone - have
                self.maybe_gone |= gone
                rest = [t for t in node.targets if not isinstance(t, ast.Name)]
                return self.targets(rest, have) - gone
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                self.read(ast.iter_child_nodes(node), have)
                return None
            case ast.Global():
                self.says_global |= set(node.names)
            case ast.Nonlocal():
                self.says_nonlocal |= set(node.names)
            case _ if type(node).__name__ == "TryStar":
                return self.attempt(node, have)  # type: ignore[arg-type]
            case _ if type(node).__name__ == "TypeAlias":  # since Python 3.12
                name = node.name.id  # type: ignore[attr-defined]
                self.late |= _all_names(node) - {name}
                return self.bind({name}, have)
            case _:
                self.in_place(node)
                self.read(ast.iter_child_nodes(node), have)
        return have

    def attempt(self, node: ast.Try, have: set[str]) -> set[str] | None:
        ends = [self.block(node.body, have)]
        if ends[0] is not None:
            ends[0] = self.block(node.orelse, ends[0])
        for handler in node.handlers:
            self.read([handler.type], have)
            named = {handler.name} if handler.name else set()
            self.bound |= named
            end = self.block(handler.body, have | named)
            ends.append(None if end is None else end - (named - have))
        end = _meet(*ends)
        last = self.block(node.finalbody, have)
        return None if end is None or last is None else end | last

    def cases(self, node: ast.Match, have: set[str]) -> set[str] | None:
        self.read([node.subject], have)
        ends: list[set[str] | None] = [have]
        for case in node.cases:
            inside = set(have)
            for part in ast.walk(case.pattern):
                if isinstance(part, ast.expr):
                    self.read([part], have)
                for field in ("name", "rest"):
                    if name := getattr(part, field, None):
                        inside = self.bind({name}, inside)
            self.read([case.guard], inside)
            ends.append(self.block(case.body, inside))
        return _meet(*ends)

    def function(self, node: Function, have: set[str]) -> None:
        """What the body of a function reads and changes outside of it.

        What is bound where the function is made, is bound when it is called.
        """
        inner = _Code()
        arguments = node.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        given += [a for a in (arguments.vararg, arguments.kwarg) if a]
        if isinstance(node, ast.Lambda):
            inner.read([node.body], set())
        else:
            inner.block(node.body, set())
        own = inner.bound - inner.says_global - inner.says_nonlocal
        own |= {a.arg for a in given} | _type_parameters(node)
        # a name that is bound anywhere in a function is its own everywhere in it
        self.late |= (inner.reads | inner.late) - own - have
        self.changed |= inner.changed - own
        self.declared |= inner.declared | (inner.bound & inner.says_global)

    def klass(self, node: ast.ClassDef, have: set[str]) -> None:
        bases = [*node.decorator_list, *node.bases, *node.keywords]
        own = _type_parameters(node)
        self.read(bases, have | own)
        inner = _Code()
        inner.block(node.body, set())
        self.reads |= inner.reads - have - own
        self.late |= inner.late - own
        self.changed |= inner.changed - inner.bound - own
        self.declared |= inner.declared

    def bind(self, names: set[str], have: set[str]) -> set[str]:
        self.bound |= names
        return have | names

    def targets(self, nodes: Sequence[ast.expr], have: set[str]) -> set[str]:
        """Assign to targets: a name is bound; what holds an item is changed."""
        for node in nodes:
            if isinstance(node, ast.Name):
                have = self.bind({node.id}, have)
            elif isinstance(node, ast.Tuple | ast.List):
                have = self.targets(node.elts, have)
            elif isinstance(node, ast.Starred):
                have = self.targets([node.value], have)
            else:
                self.read([node], have)
                self.changed |= _root(node)
        return have

    def in_place(self, node: ast.stmt) -> None:
        """A call such as ``rows.append(x)`` or ``x.zero_()`` changes its object."""
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = call.func.attr
            if name in MUTATORS or (name[-1] == "_" and name[-2:] != "__"):
                self.changed |= _root(call.func)

    def read(self, nodes: Iterable[ast.AST | None], have: set[str]) -> None:
        """Evaluate expressions; a name that ``:=`` binds joins `have`."""
        for node in nodes:
            if node is not None:
                found = self.expression(node, have)
                walrus = _walrus(node)
                self.bound |= walrus
                have |= walrus
                self.reads |= found - have

    def expression(self, node: ast.AST, have: set[str]) -> set[str]:
        """The names that an expression reads at once."""
        if isinstance(node, ast.Lambda):
            self.function(node, have)
            return {n for part in _outside(node) for n in self.expression(part, have)}
        if isinstance(node, Comprehension):
            return self.comprehension(node, have)
        if isinstance(node, ast.Name):
            return {node.id} if isinstance(node.ctx, ast.Load) else set()
        children = ast.iter_child_nodes(node)
        return {name for child in children for name in self.expression(child, have)}

    def comprehension(self, node: Comprehension, have: set[str]) -> set[str]:
        own: set[str] = set()
        found: set[str] = set()
        for part in node.generators:
            found |= self.expression(part.iter, have | own) - own
            own |= _all_names(part.target, ast.Store)
            for inside in (part.target, *part.ifs):
                found |= self.expression(inside, have | own) - own
        for field in ("key", "value", "elt"):
            if result := getattr(node, field, None):
                found |= self.expression(result, have | own) - own
        return found


def _meet(*ends: set[str] | None) -> set[str] | None:
    """What is bound whichever of several ways was taken."""
    taken = [end for end in ends if end is not None]
    return set.intersection(*taken) if taken else None


def _outside(node: Function) -> list[ast.expr]:
    """The parts of a function that are evaluated where it stands."""
    arguments = node.args
    found = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    if isinstance(node, ast.Lambda):
        return found
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [a for a in (arguments.vararg, arguments.kwarg) if a]
    hints = [a.annotation for a in given if a.annotation]
    return found + hints + ([node.returns] if node.returns else [])


def _type_parameters(node: ast.AST) -> set[str]:
    """``T`` of ``def f[T]`` (since Python 3.12)."""
    return {p.name for p in getattr(node, "type_params", [])}


def _walrus(node: ast.AST) -> set[str]:
    """Names that ``:=`` binds in the scope that an expression stands in."""
    if isinstance(node, ast.Lambda):
        return {n for part in _outside(node) for n in _walrus(part)}
    own = {node.target.id} if isinstance(node, ast.NamedExpr) else set()
    return own | {n for child in ast.iter_child_nodes(node) for n in _walrus(child)}


def _all_names(node: ast.AST, context: type[ast.expr_context] = ast.Load) -> set[str]:
    return {
        n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, context)
    }


def _root(node: ast.AST) -> set[str]:
    """The name that ``a.b[c].d`` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()
