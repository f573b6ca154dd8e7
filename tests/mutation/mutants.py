"""Mutants of a module: its syntax tree with one node changed.

Comparisons are shifted and turned round, conditions negated, numbers moved by one, statements left out, operators,
`min` and `max`, arguments and results replaced. What is said in errors, annotations and docstrings is left alone:
no rule hangs on it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "sorted": "list", "any": "all", "all": "any"}
_LEFT_OUT = (ast.Expr, ast.Delete, ast.Raise, ast.AugAssign)
"""Statements that are left out whole; assignments too, if not to a local name."""
_NO_RULE = frozenset({"annotation", "returns", "decorator_list", "msg", "type_comment", "pattern"})
"""Fields of nodes in which nothing is changed."""


@dataclass(frozen=True)
class Mutant:
    """One change. `function` is the outermost function that it is in; empty: none."""

    module: str
    number: int
    line: int
    lines: range
    """Of its statement, and of a block only those of its head: who runs it runs one of them."""
    function: str
    what: str
    before: str
    after: str
    twin: int
    """How many there are before it in which all of this but the line is the same."""

    def __str__(self) -> str:
        where = f"{self.module}.py:{self.line} {self.function}"
        return f"{where}: {self.what}\n    - {self.before}\n    + {self.after}"


@dataclass(frozen=True)
class _Place:
    """Where a node hangs, and which statement and function it belongs to."""

    parent: ast.AST
    field: str
    index: int | None
    statement: ast.AST
    function: str

    def get(self) -> Any:
        value = getattr(self.parent, self.field)
        return value if self.index is None else value[self.index]

    def put(self, node: Any) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(path: Path) -> list[Mutant]:
    """All of them, in the order of the lines."""
    found = []
    twins: Counter[tuple[str, str, str, str]] = Counter()
    for number, (place, what, new) in enumerate(_changes(ast.parse(path.read_text()))):
        old, statement = place.get(), place.statement
        before = _shown(statement)
        place.put(new)
        after = _shown(new if old is statement else statement)
        place.put(old)
        lines = _lines(statement)
        line = getattr(old, "lineno", lines.start)
        change = (place.function, what, before, after)
        found.append(Mutant(path.stem, number, line, lines, *change, twins[change]))
        twins[change] += 1
    return found


def compiled(path: Path, number: int) -> Any:
    """The code of a module with one of its mutants."""
    tree = ast.parse(path.read_text())
    for at, (place, _, new) in enumerate(_changes(tree)):
        if at == number:
            ast.copy_location(new, place.get()) if hasattr(place.get(), "lineno") else None
            place.put(new)
            return compile(ast.fix_missing_locations(tree), str(path), "exec")
    raise IndexError(f"{path.name} has no mutant {number}")


def _lines(statement: Any) -> range:
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno
    return range(statement.lineno, max(statement.lineno, last) + 1)


def _shown(statement: ast.AST) -> str:
    """A statement in one line, and of a block only its head."""
    if isinstance(statement, ast.Pass):
        return "(left out)"
    return ast.unparse(statement).split("\n")[0]


# What can be changed where.


def _changes(tree: ast.Module) -> Iterator[tuple[_Place, str, Any]]:
    for place in _places(tree, tree, ""):
        node = place.get()
        yield from ((place, what, new) for what, new in _changes_of(node, place))


def _places(parent: ast.AST, statement: ast.AST, function: str) -> Iterator[_Place]:
    """All nodes below one, but for those that no rule hangs on."""
    for field, value in ast.iter_fields(parent):
        if field in _NO_RULE or (isinstance(parent, ast.Raise) and field in ("exc", "cause")):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr) or _is_type(node):
                continue
            inside = node if isinstance(node, ast.stmt) else statement
            yield _Place(parent, field, index, inside, function)
            name = function
            if isinstance(node, ast.arguments) and _is_function(parent):
                name = ""  # defaults are made when the module is loaded
            elif isinstance(node, ast.ClassDef | ast.FunctionDef) and not _is_function(parent):
                name = f"{function}.{node.name}".lstrip(".")
            yield from _places(node, inside, name)


def _is_type(node: ast.AST) -> bool:
    """A statement that names a type: for the checker of types alone."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    return isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("TypeVar(")


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _changes_of(node: ast.AST, place: _Place) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.cmpop):
        for comparison in _COMPARISONS[type(node)]:
            yield f"{_name(node)} becomes {_name(comparison())}", comparison()
    elif isinstance(node, ast.boolop):
        other = ast.Or() if isinstance(node, ast.And) else ast.And()
        yield f"{_name(node)} becomes {_name(other)}", other
    elif isinstance(node, ast.operator) and type(node) in _OPERATORS:
        operator = _OPERATORS[type(node)]()
        yield f"{_name(node)} becomes {_name(operator)}", operator
    elif isinstance(node, ast.expr):
        yield from _of_expression(node, place)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, Any]]:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    if (isinstance(node, _LEFT_OUT) and not is_text) or is_stored:
        yield "left out", ast.Pass()
    if isinstance(node, ast.Continue):
        yield "continue becomes break", ast.Break()
    if isinstance(node, ast.Break):
        yield "break becomes continue", ast.Continue()
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns None", ast.Return(ast.Constant(None))


def _of_expression(node: ast.expr, place: _Place) -> Iterator[tuple[str, Any]]:
    parent, field = place.parent, place.field
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not is dropped", node.operand
    elif _is_condition(parent, field) and not isinstance(node, ast.Compare):
        yield "negated", ast.UnaryOp(ast.Not(), node)
    if isinstance(parent, ast.comprehension) and field == "ifs":
        yield "always true", ast.Constant(True)
    if isinstance(node, ast.Constant):
        yield from _of_constant(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        other = _CALLS[node.func.id]
        arguments = node.args if other != "list" else node.args[:1]
        keywords = node.keywords if other != "list" else []
        yield (
            f"{node.func.id} becomes {other}",
            ast.Call(ast.Name(other, ast.Load()), arguments, keywords),
        )
    is_argument = isinstance(parent, ast.Call) and field == "args"
    if is_argument and not isinstance(node, ast.Constant | ast.Starred):
        yield "an argument becomes None", ast.Constant(None)


def _is_condition(parent: ast.AST, field: str) -> bool:
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return field == "test"
    return (isinstance(parent, ast.BoolOp) and field == "values") or (
        isinstance(parent, ast.comprehension) and field == "ifs"
    )


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, Any]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value} becomes {not value}", ast.Constant(not value)
    elif isinstance(value, int):
        for other in (value + 1, value - 1):
            yield f"{value} becomes {other}", ast.Constant(other)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _name(node: ast.AST) -> str:
    """An operator, as it is written."""
    a, b = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())
    whole: ast.expr
    if isinstance(node, ast.cmpop):
        whole = ast.Compare(a, [node], [b])
    elif isinstance(node, ast.boolop):
        whole = ast.BoolOp(node, [a, b])
    else:
        assert isinstance(node, ast.operator)
        whole = ast.BinOp(a, node, b)
    return ast.unparse(whole)[2:-2]
