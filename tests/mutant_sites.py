"""Places of a source text where one of twelve mistakes can be made, and the text with it.

A mistake is an operator: a function that looks at one node of the syntax tree and says which characters would become
which. All else of the file stays as it is, so that a diff shows the mistake alone. Names tell what an expression is
about: `mask` is a mask, `_lock` a lock. What changes no behaviour has no sites: docstrings, annotations, `__all__`,
the texts of errors, logging.
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias


@dataclass(frozen=True)
class Site:
    """A place where a mistake can be made.

    Args:
        operator: the mistake, a key of `OPERATORS`.
        path: the file, relative to the repository.
        line: where the change begins.
        start: the first byte that is changed.
        end: the first byte behind it.
        new: what stands there instead.
    """

    operator: str
    path: str
    line: int
    start: int
    end: int
    new: str

    def changed(self, text: str) -> str:
        """The source text with the mistake."""
        code = text.encode()
        return (code[: self.start] + self.new.encode() + code[self.end :]).decode()


class Source:
    """A source text and where in it the nodes of its tree stand, in bytes, as `ast` counts."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self._code = text.encode()
        self._lines = [0, *accumulate(len(line) for line in self._code.splitlines(keepends=True))]

    def line(self, position: int) -> int:
        """The line of a byte, from 1."""
        return bisect_right(self._lines, position)

    def start(self, node: "Node") -> int:
        """The first byte of a node."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: "Node") -> int:
        """The first byte behind a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: "Node") -> str:
        """What a node consists of."""
        return self.between(self.start(node), self.end(node))

    def between(self, start: int, end: int) -> str:
        """The text of these bytes."""
        return self._code[start:end].decode()

    def operand(self, node: ast.expr) -> str:
        """An expression as a part of any other: in parentheses if it needs them."""
        whole = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
        return self.text(node) if whole and node.lineno == node.end_lineno else f"({self.text(node)})"

    def replaced(self, node: "Node", new: str) -> "Change":
        """The change that puts something else in place of a node."""
        return self.start(node), self.end(node), new

    def operator(self, left: ast.expr, right: ast.expr, others: dict[str, str]) -> "Change":
        """The change of the operator between two operands: `{what stands there: what will}`."""
        position = self.end(left)
        for line in self.between(position, self.start(right)).splitlines(keepends=True):
            if found := re.search("|".join(map(re.escape, others)), line.partition("#")[0]):
                start, end = (position + len(line[:each].encode()) for each in found.span())
                return start, end, others[found[0]]
            position += len(line.encode())
        raise ValueError(f"none of {', '.join(others)} behind line {left.end_lineno}")


Node: TypeAlias = ast.expr | ast.stmt
Change: TypeAlias = tuple[int, int, str]
"""The first byte, the first one behind, and what stands there instead."""
INDIFFERENT = {
    *("maximum", "minimum", "max", "min", "equal", "array_equal", "allclose", "logical_and", "logical_or"),
    *("isinstance", "issubclass", "hasattr", "getattr", "cast"),
}
"""Functions that do the same in any order of their arguments, or that nobody calls in another one."""
Operator: TypeAlias = Callable[[Source, ast.AST], Iterator[Change]]


def sign(source: Source, node: ast.AST) -> Iterator[Change]:
    """`x + y` for `x - y`, and the reverse, also in `x += y`; `x` for `-x`."""
    others = {"+": "-", "-": "+"}
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right) if not (_is_sequence(left) or _is_sequence(right)):
            yield source.operator(left, right, others)
        case ast.AugAssign(left, ast.Add() | ast.Sub(), right) if not _is_sequence(right):
            yield source.operator(left, right, others)
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield source.replaced(node, source.operand(operand))


def off_by_one(source: Source, node: ast.AST) -> Iterator[Change]:
    """`<=` for `<`, `x[2:]` for `x[1:]`, `range(n)` for `range(n + 1)`, and the reverse."""
    match node:
        case ast.Compare(left, ops, comparators):
            for (first, second), op in zip(pairwise([left, *comparators]), ops, strict=True):
                # Two floats that are not computed to be equal hardly ever are.
                if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and not _is_float(first, second):
                    others = {"<=": "<", ">=": ">", "<": "<=", ">": ">="}
                    yield source.operator(first, second, others)
        case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(value=1)):
            yield source.replaced(node, source.operand(left))
    match node:
        case ast.Subscript(slice=ast.Slice(lower, upper)):
            numbers = [lower, upper]
        case ast.Subscript(slice=index):
            numbers = [index]
        case ast.Call(func=ast.Name(id="range"), args=arguments):
            numbers = list(arguments)
        case _:
            return
    for each in numbers:
        match each:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield source.replaced(each, str(number + 1))
            case ast.UnaryOp(ast.USub(), ast.Constant(value=int(number))):
                yield source.replaced(each, str(-number - 1))


def missing_stop_gradient(source: Source, node: ast.AST) -> Iterator[Change]:
    """`x` for `ops.stop_gradient(x)`, and for `x.detach()`; `enable_grad` for `no_grad`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="stop_gradient"), args=[value]):
            yield source.replaced(node, source.operand(value))
        case ast.Call(func=ast.Attribute(value, "detach"), args=[]):
            yield source.replaced(node, source.operand(value))
        case ast.Attribute(value, "no_grad" | "inference_mode"):
            yield source.replaced(node, f"{source.text(value)}.enable_grad")
        case ast.Assign(value=ast.Attribute(attr="stop_gradient") as value):
            yield source.replaced(value, "lambda x: x")
        case ast.Assign(value=ast.Tuple(elts=values)):
            for value in values:
                if isinstance(value, ast.Attribute) and value.attr == "stop_gradient":
                    yield source.replaced(value, "(lambda x: x)")


def missing_copy(source: Source, node: ast.AST) -> Iterator[Change]:
    """`x` for `x.copy()`, `x.clone()`, `deepcopy(x)` and `dict(self.x)`; `np.asarray` for `np.array`."""
    match node:
        case ast.Call(func=ast.Attribute(value, "copy" | "clone"), args=[], keywords=[]):
            yield source.replaced(node, source.operand(value))
        case ast.Call(func=function, args=[value], keywords=[]) if _name(function) == "deepcopy":
            yield source.replaced(node, source.operand(value))
        case ast.Call(
            func=ast.Name(id="dict" | "list" | "set"), args=[ast.Attribute() as value], keywords=[]
        ):
            yield source.replaced(node, source.operand(value))
        case ast.Call(func=ast.Attribute(module, "array") as function, args=[value, *_]):
            # What is made here for the call alone is copied in any case.
            if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
                yield source.replaced(function, f"{source.text(module)}.asarray")
        case ast.keyword("copy", ast.Constant(value=True) as value):
            yield source.replaced(value, "False")


def dropped_mask(source: Source, node: ast.AST) -> Iterator[Change]:
    """`x` for `where(mask, x, y)`, `x * mask` and `x[mask]`; `mask=None`; `ops.mean` for `mean_over_rows`."""
    match node:
        case ast.Call(func=function, args=[_, value, _]) if _name(function) == "where":
            yield source.replaced(node, source.operand(value))
        case ast.Call(func=function, args=[value, _]) if _name(function) == "mask_logits":
            yield source.replaced(node, source.operand(value))
        case ast.Call(func=function, args=[ops, value, _]) if _name(function) == "mean_over_rows":
            yield source.replaced(node, f"{source.text(ops)}.mean({source.text(value)})")
        case ast.BinOp(left, ast.Mult() | ast.BitAnd(), right):
            if _is_about("mask", right):
                yield source.replaced(node, source.operand(left))
            elif _is_about("mask", left):
                yield source.replaced(node, source.operand(right))
        case ast.Subscript(value, ast.Name() | ast.Attribute() as index, ast.Load()):
            # In capitals it is the name of a column.
            if "mask" in (_name(index) or ""):
                yield source.replaced(node, source.operand(value))
        case ast.keyword(str(name), value) if "mask" in name and not isinstance(value, ast.Constant):
            yield source.replaced(value, "None")


def swapped_order(source: Source, node: ast.AST) -> Iterator[Change]:
    """`f(y, x)` for `f(x, y)`, of the last two arguments; two statements that act on the same thing."""

    def exchanged(first: Node, second: Node) -> Change:
        between = source.between(source.end(first), source.start(second))
        return source.start(first), source.end(second), source.text(second) + between + source.text(first)

    match node:
        case ast.Call(
            func=function,
            args=[
                *_,
                ast.Name() | ast.Attribute() | ast.Subscript() as first,
                ast.Name() | ast.Attribute() | ast.Subscript() as second,
            ],
        ) if _name(function) not in INDIFFERENT:
            if source.text(first) not in ("self", "cls", "ops", source.text(second)):
                yield exchanged(first, second)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        for first, second in pairwise(block if isinstance(block, list) else ()):
            calls = [each for each in (first, second) if _is_call(each)]
            if calls and _acts(first) and _acts(second) and first.end_lineno < second.lineno:
                yield exchanged(first, second)


def dtype(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another one than is asked for: half the digits, floats for integers, a sign for bytes, numbers for a mask."""
    others = {"float64": "float32", "float32": "float16", "int64": "float64", "int32": "float32"}
    others |= {"uint8": "int8", "bool_": "int8"}
    match node:
        case ast.Attribute(ast.Name(id="np" | "jnp" | "tf" | "torch") as module, name) if name in others:
            yield source.replaced(node, f"{module.id}.{others[name]}")
        case ast.Call(args=arguments, keywords=keywords):
            for each in (*arguments, *(keyword.value for keyword in keywords)):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in others:
                    yield source.replaced(each, f'"{others[each.value]}"')


def missing_lock(source: Source, node: ast.AST) -> Iterator[Change]:
    """`if True:` for `with lock:`; no `lock.acquire()` and no `flock`."""
    match node:
        case ast.With(items=items):
            for item, following in zip(items, [*items[1:], None], strict=True):
                kind = _name(item.context_expr) or ""
                if not re.search(r"(^|_)(lock|guard|mutex|turn)$", kind) or item.optional_vars:
                    continue
                if len(items) == 1:
                    yield source.start(node), source.end(item.context_expr), "if True"
                elif following is not None:
                    yield source.start(item.context_expr), source.start(following.context_expr), ""
                else:
                    before = items[-2].optional_vars or items[-2].context_expr
                    yield source.end(before), source.end(item.context_expr), ""
        case ast.Expr(ast.Call(func=function)) if _name(function) in ("acquire", "flock", "lockf"):
            yield source.replaced(node, "pass")


def missing_sync(source: Source, node: ast.AST) -> Iterator[Change]:
    """No barrier, `fsync`, `flush`, `wait` or `join`: the others, or the disk, may be behind."""
    waits = (
        r"(^|_)(barrier|f?sync|wait|join|flush|drain|synchronize|block_until_ready|all_reduce|broadcast)(_|$)"
    )
    match node:
        case ast.Expr(ast.Call(func=function)) if re.search(waits, _name(function) or ""):
            yield source.replaced(node, "pass")
        case ast.Call(func=ast.Attribute(attr="block_until_ready"), args=[value]):
            yield source.replaced(node, source.operand(value))


def stale_cache(source: Source, node: ast.AST) -> Iterator[Change]:
    """Nothing that is kept becomes invalid: no `version += 1`, no `cache.clear()`, a version is never another one."""
    versions = r"(^|_)(version|epoch|generation|revision)$"
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(ast.Attribute(), "clear" | "pop" | "discard"))):
            yield source.replaced(node, "pass")
        case ast.Expr(ast.Call(func=function)) if re.match(
            r"_?(cache_clear|forget|invalidate|renew)", _name(function) or ""
        ):
            yield source.replaced(node, "pass")
        case ast.Delete(targets=[ast.Subscript(value=ast.Attribute())]):
            yield source.replaced(node, "pass")
        case ast.AugAssign(target=target) if re.search(versions, _name(target) or ""):
            yield source.replaced(node, "pass")
        case ast.Compare(left, [ast.Eq() | ast.NotEq() as op], [right]):
            if any(re.search(versions, _name(each) or "") for each in (left, right)):
                yield source.replaced(node, str(isinstance(op, ast.Eq)))
        case ast.FunctionDef(name=name) if name not in ("__init__", "__post_init__"):
            for each in ast.walk(node):
                match each:
                    case ast.Assign([ast.Attribute(attr=attribute)], value):
                        is_reset = isinstance(value, ast.Constant) and value.value is None
                        if is_reset or re.search(versions, attribute):
                            yield source.replaced(each, "pass")


def wrong_axis(source: Source, node: ast.AST) -> Iterator[Change]:
    """The first axis for the last one or the second one, and the last for the first, of a mean or another reduction."""
    reductions = "mean sum std var min max any all prod argmax argmin logsumexp softmax cumsum norm median"
    others = {"-1": "0", "1": "0", "0": "-1", "-2": "-1"}
    match node:
        case ast.Call(func=ast.Attribute(owner, name), args=arguments, keywords=keywords):
            if name not in reductions.split():
                return
            of_module = _name(owner) in ("np", "jnp", "tf", "torch", "ops")
            axes = [arguments[of_module]] if len(arguments) == 1 + of_module else []
            axes += [each.value for each in keywords if each.arg in ("axis", "dim")]
            for axis in axes:
                if source.text(axis) in others:
                    yield source.replaced(axis, others[source.text(axis)])


def unscaled_share(source: Source, node: ast.AST) -> Iterator[Change]:
    """`x` for `x * weight` and for `x / count`."""
    scales = (
        r"(^|_)(weights?|shares?|scales?|fractions?|coeffs?|factors?|counts?|rows|lengths?|size|total|number|"
    )
    scales += r"accumulate|num_\w+|rate|gamma|discount|std)$"

    def is_scale(each: ast.expr) -> bool:
        is_length = isinstance(each, ast.Call) and _name(each) == "len"
        return is_length or re.search(scales, (_name(each) or "").lower()) is not None

    match node:
        case ast.BinOp(left, ast.Mult() | ast.Div(), right) if is_scale(right) and not _is_sequence(left):
            yield source.replaced(node, source.operand(left))
        case ast.BinOp(left, ast.Mult(), right) if is_scale(left) and not _is_sequence(right):
            yield source.replaced(node, source.operand(right))
        case ast.AugAssign(op=ast.Mult() | ast.Div(), value=value) if is_scale(value):
            yield source.replaced(node, "pass")


OPERATORS: dict[str, Operator] = {
    "sign": sign,
    "off by one": off_by_one,
    "missing stop_gradient": missing_stop_gradient,
    "missing copy": missing_copy,
    "dropped mask": dropped_mask,
    "swapped order": swapped_order,
    "dtype": dtype,
    "missing lock": missing_lock,
    "missing barrier or sync": missing_sync,
    "stale cache or version": stale_cache,
    "wrong axis of a mean": wrong_axis,
    "unscaled share": unscaled_share,
}


PLAIN = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.arg, ast.alias)
"""Most nodes: no operator looks at them for themselves."""


def sites_in(path: str, text: str) -> list[Site]:
    """All sites of a file, in the order of its text.

    Args:
        path: what its sites say of where they are.
        text: the source text.
    """
    source = Source(text)
    found = {
        Site(operator, path, source.line(start), start, end, new)
        for node in _acting_nodes(source.tree)
        if not isinstance(node, PLAIN)
        for operator, changes in OPERATORS.items()
        for start, end, new in changes(source, node)
    }
    return sorted(found, key=lambda site: (site.start, site.end, site.operator, site.new))


def _acting_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without those that change no behaviour."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        left_out: tuple[str, ...] = ("annotation", "returns", "ctx")
        match node:
            case ast.Name() | ast.Constant():
                yield node
                continue
            case ast.Raise() | ast.JoinedStr() | ast.Expr(ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.FunctionDef(name="__repr__" | "__str__"):
                continue
            case ast.Call(func=function) if _reports(function):
                continue
            case ast.If(test=test) if _name(test) == "TYPE_CHECKING":
                left_out = ("test", "body")
            case ast.Assert():
                left_out = ("msg",)
        yield node
        for field in node._fields:
            value = getattr(node, field, None) if field not in left_out else None
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, ast.AST):
                    waiting.append(each)


def _reports(function: ast.expr) -> bool:
    """Whether it logs or warns, or makes an error."""
    if re.search(r"(Error|Warning)$|^_?(warn|add_note)", _name(function) or ""):
        return True
    owner = _name(function.value) if isinstance(function, ast.Attribute) else None
    return re.search(r"(^|_)log(ger|ging)?$", owner or "") is not None


def _name(node: ast.AST) -> str | None:
    """`c` of `a.b.c`, of `a.b.c(x)`, of `c[x]` and of `a["c"]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(str(name))):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _name(inner)
    return None


def _is_about(word: str, node: ast.expr) -> bool:
    """Whether a name within the expression has the word."""
    return any(word in (_name(each) or "").lower() for each in ast.walk(node))


def _is_sequence(node: ast.expr) -> bool:
    """A text, list or tuple: `+` joins it, and `-` is no mistake that anybody makes there."""
    match node:
        case (
            ast.Constant(value=str() | bytes()) | ast.JoinedStr() | ast.List() | ast.Tuple() | ast.ListComp()
        ):
            return True
        case ast.Call(func=function):
            return _name(function) in ("join", "list", "tuple", "sorted", "did_you_mean", "str")
        case ast.BinOp(left, ast.Add(), right):
            return _is_sequence(left) or _is_sequence(right)
    return False


def _is_float(*nodes: ast.expr) -> bool:
    return any(isinstance(each, ast.Constant) and isinstance(each.value, float) for each in nodes)


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _acts(node: ast.stmt) -> bool:
    """It calls something of an object, or gives it a value: the order of two such statements matters."""
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(owner) as function)):
            # A log may stand anywhere, and what `super()` does seldom concerns what a subclass adds.
            return not _reports(function) and _name(owner) != "super"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.AugAssign(target=ast.Attribute() | ast.Subscript()):
            return True
    return False
