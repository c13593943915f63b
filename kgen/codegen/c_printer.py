"""How programs are spelled in C: expressions, functions and statements."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Callable, Mapping, Sequence

from kgen.codegen.symbols import symbol
from kgen.codegen.target import target
from kgen.compiler.graph.dtypes import NARROW, is_float, is_narrow, loaded, stored, value_type
from kgen.compiler.loops.expr import Arg, Binary, Call, Cast, Columns, Const, Expr, Unary, Where, calls
from kgen.compiler.loops.functions import FUNCTIONS, Function
from kgen.compiler.loops.passes import Pass, Passes
from kgen.compiler.loops.program import Load, Map, Program, Store, Window

#: How the name ends of a function of the table whose results are of a half type.
_HALF = "_half"


#: How tightly C's signs bind; a part that binds less tightly than its place asks for stands in parentheses.
_BINDS = {
    "?": 1,
    "||": 2,
    "&&": 3,
    "|": 4,
    "^": 5,
    "&": 6,
    "==": 7,
    "!=": 7,
    "<": 8,
    "<=": 8,
    ">": 8,
    ">=": 8,
    "<<": 9,
    ">>": 9,
    "+": 10,
    "-": 10,
    "*": 11,
    "/": 11,
    "%": 11,
}
_UNARY, _PRIMARY = 12, 13
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def expression(of: Expr, args: Sequence[str], device_type: str, dtype: str = "float32") -> str:
    """The expression in C over operands as they are spelled; of a half type, by functions that are as exact as it
    needs."""
    return _form(of, device_type, is_narrow(dtype)).format(*args)


@lru_cache(maxsize=1 << 14)
def _form(of: Expr, device_type: str, half: bool = False) -> str:
    """The expression in C, with ``{0}``, ``{1}``, ... for operands."""
    return _Printer(device_type, half).text(of, 0)


class _Printer:
    """Writes expressions for one kind of device; for none, with the names that the table has."""

    def __init__(self, device_type: str, half: bool) -> None:
        self.device_type, self.narrow = device_type, half
        spelled = target(device_type) if device_type else None
        self.primitives = {**spelled.primitives, **(spelled.half_primitives if half else {})} if spelled else {}

    def text(self, of: Expr, least: int) -> str:
        """The text of a node whose place asks that it binds at least so tightly."""
        text, binds = self._node(of)
        return f"({text})" if binds < least else text

    def _node(self, of: Expr) -> tuple[str, int]:
        """The text of a node, and how tightly it binds."""
        match of:
            case Arg():
                return f"{{{of.number}}}", _PRIMARY
            case Const():
                return number(of), _PRIMARY
            case Columns():
                return "static_cast<float>(cols)", _PRIMARY
            case Unary():
                return of.sign + self.text(of.x, _UNARY), _UNARY
            case Binary():
                binds = _BINDS[of.sign]
                return f"{self.text(of.left, self._left(of))} {of.sign} {self.text(of.right, self._right(of))}", binds
            case Where():
                inner = _BINDS["?"] + 1
                condition, value, other = (self.text(part, inner) for part in of.parts)
                return f"{condition} ? {value} : {other}", _BINDS["?"]
            case Cast():
                return f"static_cast<{value_type(of.dtype)}>({self.text(of.x, 0)})", _PRIMARY
            case Call():
                return f"{self._function(of.function)}({', '.join(self.text(arg, 0) for arg in of.args)})", _PRIMARY
        raise TypeError(f"{of} has no text in C")

    @staticmethod
    def _left(of: Binary) -> int:
        """How tightly a left part must bind. Chains of comparisons and of differences have parentheses, for readers."""
        chained = isinstance(of.left, Binary) and of.left.sign == of.sign
        inner = of.sign in _COMPARISONS or (of.sign == "-" and chained)
        return (_BINDS["<"] if of.sign in _COMPARISONS else _BINDS[of.sign]) + 1 if inner else _BINDS[of.sign]

    @staticmethod
    def _right(of: Binary) -> int:
        return (_BINDS["<"] if of.sign in _COMPARISONS else _BINDS[of.sign]) + 1

    def _function(self, name: str) -> str:
        """A function as the device spells it."""
        if not self.device_type:
            return name
        spelled = self.primitives.get(name) or (
            f"{name}{_HALF}" if self.narrow and _has_half(name, self.device_type) else name
        )
        space, colons, own = spelled.rpartition("::")
        return space + colons + symbol(own)


def number(of: Const) -> str:
    """A number in C."""
    if of.digits:
        return f"{of.digits}f"
    return repr(of.value) if of.dtype == "float64" else literal(of.value, of.dtype)


def fill(of: Load | Window) -> str:
    """The value in C of what is not there: where a load's mask does not hold, or outside of a window's tensor."""
    return literal(of.fill, of.dtype)


def c_float(value: float | int | None) -> str:
    """A C literal of type float: the float32 nearest to ``value``."""
    if value is None:
        raise ValueError("no value")
    value = float(value)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value) or abs(value) > 3.4028235677973366e38:
        return "INFINITY" if value > 0 else "-INFINITY"
    single = struct.unpack("f", struct.pack("f", value))[0]
    # The shortest decimal that rounds to the same float32.
    for digits in range(1, 18):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f"


def literal(value: float | int, dtype: str) -> str:
    """A C literal: a float, or an integer where the number and the values beside it are integers."""
    if is_float(dtype) or isinstance(value, float):
        return c_float(value)
    return f"{int(value)}LL" if abs(value) > 0x7FFFFFFF else str(int(value))


@lru_cache(maxsize=None)
def _has_half(name: str, device_type: str) -> bool:
    """Whether a function of the table has another spelling for results of half types."""
    cheaper = target(device_type).half_primitives
    if name not in FUNCTIONS or not cheaper:
        return False
    return FUNCTIONS[name].half is not None or any(
        c in cheaper or _has_half(c, device_type) for c in calls(FUNCTIONS[name].body)
    )


def statement(step: Map | Load, device_type: str, col: str = "col") -> str:
    """``const float name = expression;``"""
    return f"const {value_type(step.dtype)} {step.name} = {spell(step, device_type, col=col)};"


def load_statement(load: Load, read_from: Mapping[str, str], row: str = "row", col: str = "col") -> str:
    """``const float name = tensor[index];``, of the element of that row and column."""
    return f"const {value_type(load.dtype)} {load.name} = {load_value(load, read_from, row, col)};"


def load_value(
    load: Load, read_from: Mapping[str, str], row: str = "row", col: str = "col", at: Callable[[str], str] = str
) -> str:
    """The value that is loaded; where the mask does not hold, nothing is read, and the value is the load's fill."""
    index, condition = load.access.index(row, col, at), load.access.condition(row, col)
    if not load.tensor and load.dtype == "bool":
        return condition
    value = loaded(f"{read_from[load.tensor]}[{index}]", load.dtype) if load.tensor else index
    return f"{condition} ? {value} : {fill(load)}" if condition else value


def spell(step: Map | Load, device_type: str, at: Callable[[str], str] = str, col: str = "col") -> str:
    """The expression of a map over its operands, each spelled by ``at``; or of a load at values, in column ``col``."""
    if isinstance(step, Load):
        return load_value(step, {step.tensor: pointer(step.tensor)}, "row", col, at)
    return expression(step.expression, [at(arg) for arg in step.args], device_type, step.dtype)


def block(head: str, lines: Sequence[str]) -> list[str]:
    """``head { lines }``, a level deeper."""
    return [f"{head} {{", *(f"    {line}" for line in lines), "}"]


def pointer(tensor: str) -> str:
    """The name of the kernel's argument that points to a tensor that is read."""
    return f"{tensor}_in"


def tabled(device_type: str) -> dict[str, str]:
    """The functions of the table, and those for results of half types, in C."""
    found = {name: function(f, device_type) for name, f in FUNCTIONS.items()}
    return found | {
        name + _HALF: function(f, device_type, NARROW[0])
        for name, f in FUNCTIONS.items()
        if _has_half(name, device_type)
    }


def function(f: Function, device_type: str, dtype: str = "float32") -> str:
    """A function of the table as C, for results of a dtype."""
    half = is_narrow(dtype) and _has_half(f.name, device_type)
    parameters = ", ".join(f"float {p}" for p in f.parameters)
    body = expression((f.half or f.body) if half else f.body, f.parameters, device_type, dtype)
    name, comment = (f.name + _HALF, f"{f.comment}, for results of half types") if half else (f.name, f.comment)
    return f"// {comment}\n{target(device_type).qualifier} float {name}({parameters}) {{\n    return {body};\n}}\n"


def describe(of: Pass, stores: tuple[str, ...]) -> str:
    """The begin of a sentence that says what a pass does; names keep their capitals."""
    parts = []
    if of.loads:
        parts.append("load " + ", ".join(x.name for x in of.loads))
    if of.held:
        parts.append("reuse " + ", ".join(of.held))
    if of.keeps:
        parts.append("keep " + ", ".join(of.keeps))
    parts += [f"reduce to {', '.join(r.names)}" for r in of.reductions]
    if stores:
        parts.append("store " + ", ".join(stores))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def row_statements(plan: Passes, device_type: str) -> list[str]:
    """Statements that load and compute the values of the whole row."""
    read_from = {x.tensor: pointer(x.tensor) for x in plan.row_loads}
    return [load_statement(x, read_from, "row", "0") for x in plan.row_loads] + [
        statement(m, device_type) for m in plan.row_maps
    ]


def store_statement(store: Store, target: str, row: str = "row", col: str = "col", value: str = "") -> str:
    """``tensor[index] = value;``"""
    return f"{target}[{store.access.index(row, col)}] = {store_value(store, value)};"


def store_value(store: Store, value: str = "") -> str:
    """The element that is stored: the value, or that of the store's argument."""
    return stored(value or store.arg, store.of, store.dtype)


def kept_values(program: Program, plan: Passes) -> list[tuple[str, str]]:
    """The values that are kept between the passes, with their C types."""
    return [(name, value_type(program.dtypes[name])) for name in dict.fromkeys(k for s in plan.passes for k in s.keeps)]


def output_pointer(tensor: str) -> str:
    return f"{tensor}_out"


def one_pass(program: Program) -> str:
    """The kind of a reduction in one pass that two passes could take as well; empty where there is none."""
    return next((r.kind for r in program.reductions if r.kind in ("softmax", "moments")), "")
