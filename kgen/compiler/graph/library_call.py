"""Library calls: how PyTorch computes a node, as an operator with arguments, and never as text that a later stage
reads.

    Applied("aten.linear.default", (X, Y, Z))           F.linear(x, weight, bias)
    torch_("addcmul", Z, X.method("float"), Y)          torch.addcmul(shift, x.float(), scale)
    (X - Y) * Z                                         (x - mean) * scale

Arguments are numbers, strings, ``None``, tuples, :class:`Many`, :class:`BatchSize` and other calls. :func:`written`
prints one as Python; rewrites match operators and arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Iterator, Mapping, Sequence

from kgen.compiler.graph.dtypes import is_narrow


@dataclass(frozen=True)
class BatchSize:
    """An integer that follows the batch: ``multiple * batch``."""

    multiple: int

    def __str__(self) -> str:
        return "batch_size" if self.multiple == 1 else f"{self.multiple} * batch_size"


@dataclass(frozen=True)
class Code:
    """A name of Python that stands as it is (``torch.float32``)."""

    text: str


@dataclass(frozen=True)
class Literal:
    """A tensor of one number without dimensions, which forward makes on the CPU."""

    value: int | float
    dtype: str


@dataclass(frozen=True)
class Many:
    """A list of arguments."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Span:
    """A slice of a dimension; of neither end, all of it."""

    start: int | None = None
    stop: int | None = None


class LibraryCall:
    """A value that Python computes with the library."""

    __iter__ = None  # a part of it is another call, without end

    def __str__(self) -> str:
        return written(self, lambda number: f"{{{number}}}", "{device}")

    def method(self, name: str, *args: Any, **kwargs: Any) -> Method:
        return Method(self, name, args, tuple(kwargs.items()))

    def member(self, name: str) -> Member:
        return Member(self, name)

    def __getitem__(self, index: Any) -> Item:
        return Item(self, index)

    def __neg__(self) -> Negative:
        return Negative(self)

    def __add__(self, other: Any) -> Infix:
        return Infix("+", self, other)

    def __sub__(self, other: Any) -> Infix:
        return Infix("-", self, other)

    def __mul__(self, other: Any) -> Infix:
        return Infix("*", self, other)

    def __truediv__(self, other: Any) -> Infix:
        return Infix("/", self, other)


@dataclass(frozen=True)
class Value(LibraryCall):
    """An operand of the node, by its number among the node's values."""

    number: int


@dataclass(frozen=True)
class Device(LibraryCall):
    """The device of forward's inputs; of a weight that is prepared, that of its first source."""


@dataclass(frozen=True)
class Bound(LibraryCall):
    """A name that an :class:`Each` gives the elements that it goes through."""

    name: str


@dataclass(frozen=True)
class Applied(LibraryCall):
    """A function of the library: an operator by its ATen name, or a name such as ``torch.cat`` and ``F.linear``."""

    function: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Method(LibraryCall):
    """A method of a value."""

    of: LibraryCall
    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Member(LibraryCall):
    """A property of a value."""

    of: LibraryCall
    name: str


@dataclass(frozen=True)
class Item(LibraryCall):
    """A part of a value; a tuple has an index for each dimension."""

    of: LibraryCall
    index: Any


@dataclass(frozen=True)
class Infix(LibraryCall):
    """Two values and a sign of arithmetic between them."""

    sign: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Negative(LibraryCall):
    """A value with the other sign."""

    of: LibraryCall


@dataclass(frozen=True)
class Each(LibraryCall):
    """``of`` for each element of ``over``, which is called by its ``names`` there: a generator, or a list in
    :class:`Many`."""

    of: LibraryCall
    names: tuple[Bound, ...]
    over: LibraryCall


#: Operands by their numbers, and the device.
X, Y, Z, W = map(Value, range(4))
DEVICE = Device()


def torch_(name: str, *args: Any, **kwargs: Any) -> Applied:
    """A function of torch."""
    return Applied(f"torch.{name}", args, tuple(kwargs.items()))


def functional(name: str, *args: Any, **kwargs: Any) -> Applied:
    """A function of ``torch.nn.functional``."""
    return Applied(f"F.{name}", args, tuple(kwargs.items()))


def aten(name: str, *args: Any, **kwargs: Any) -> Applied:
    """An operator by its ATen name without ``aten.``."""
    return Applied(f"aten.{name}", args, tuple(kwargs.items()))


def number_on(device: Device, number: Literal) -> Applied:
    """A tensor of one number on the device."""
    dtype = () if number.dtype in _PLAIN else (("dtype", dtype_named(number.dtype)),)
    return Applied("torch.full", ((), number.value), (*dtype, ("device", device)))


def dtype_named(name: str) -> Code:
    """A dtype of torch."""
    return Code(f"torch.{name}")


def widened(call: LibraryCall, dtype: str) -> LibraryCall:
    """The call with its first operand, of this dtype, made float32 where that is a half type."""
    return (
        with_operands(call, lambda value: value.method("float") if value == X else value) if is_narrow(dtype) else call
    )


def rounded(call: LibraryCall, dtype: str) -> LibraryCall:
    """The call with its result in the dtype, where operands of float32 make a half type wider."""
    return call.method("to", dtype_named(dtype)) if is_narrow(dtype) else call


def _parts(of: Any) -> tuple[Any, ...]:
    """The arguments that a value is made of."""
    if isinstance(of, tuple):
        return of
    if isinstance(of, Many):
        return of.items
    if isinstance(of, (Applied, Method)):
        return (*((of.of,) if isinstance(of, Method) else ()), *of.args, *(value for _, value in of.kwargs))
    if isinstance(of, (Member, Item)):
        return (of.of, of.index) if isinstance(of, Item) else (of.of,)
    if isinstance(of, Each):
        return (of.of, of.over)
    return (of.left, of.right) if isinstance(of, Infix) else (of.of,) if isinstance(of, Negative) else ()


def inner(of: Any) -> Iterator[Any]:
    """The value and all that it is made of, in the order in which they are written."""
    yield of
    for part in _parts(of):
        yield from inner(part)


def operands(call: LibraryCall) -> tuple[int, ...]:
    """The numbers of the operands in the call's order; one that stands twice counts twice."""
    return tuple(part.number for part in inner(call) if isinstance(part, Value))


def keywords(call: LibraryCall) -> frozenset[str]:
    """The names of arguments that are given by name."""
    return frozenset(name for part in inner(call) if isinstance(part, (Applied, Method)) for name, _ in part.kwargs)


def with_operands(of: Any, new: Callable[[Value], Any]) -> Any:
    """The value with others for its operands."""
    if isinstance(of, Value):
        return new(of)
    if isinstance(of, tuple):
        return tuple(with_operands(part, new) for part in of)
    if isinstance(of, Many):
        return Many(with_operands(of.items, new))
    if isinstance(of, (Applied, Method)):
        changed = replace(
            of,
            args=with_operands(of.args, new),
            kwargs=tuple((name, with_operands(value, new)) for name, value in of.kwargs),
        )
        return replace(changed, of=with_operands(of.of, new)) if isinstance(of, Method) else changed
    if isinstance(of, Item):
        return Item(with_operands(of.of, new), with_operands(of.index, new))
    if isinstance(of, Member):
        return Member(with_operands(of.of, new), of.name)
    if isinstance(of, Negative):
        return Negative(with_operands(of.of, new))
    if isinstance(of, Each):
        return Each(with_operands(of.of, new), of.names, with_operands(of.over, new))
    return Infix(of.sign, with_operands(of.left, new), with_operands(of.right, new)) if isinstance(of, Infix) else of


# Printing

#: Operators that people know by a shorter name. Views are reshapes: a copy in front of one may have been dropped.
SHORTER = {
    **dict.fromkeys(("aten.view.default", "aten._unsafe_view.default"), "torch.reshape"),
    **{f"aten.{name}.default": f"F.{name}" for name in ("linear", "gelu", "mish", "relu")},
    **{
        f"aten.{name}.default": f"torch.{name}"
        for name in ("logsumexp", "clamp", "sigmoid", "tanh", "matmul", "mm", "bmm")
    },
    **{f"aten.{name}.Tensor": f"torch.{name}" for name in ("mul", "add")},
    "aten.softmax.int": "torch.softmax",
}
#: Dtypes that ``torch.tensor`` gives numbers by itself.
_PLAIN = ("float32", "int64", "bool")
_BINDS = {"==": 0, "+": 1, "-": 1, "*": 2, "/": 2}
_NEGATIVE = 3


def number_source(value: Any) -> str:
    """A number, string or nested list of them as Python source; infinities and NaN as calls."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(number_source, value)) + "]"
    return str(value) if isinstance(value, BatchSize) else repr(value)


def written(of: Any, operand: Callable[[int], str], device: str, names: Mapping[str, str] = SHORTER) -> str:
    """A call as Python source. ``operand`` spells operands, ``names`` operators that have a shorter name."""
    return _Writer(operand, device, names).text(of)


@dataclass(frozen=True)
class _Writer:
    operand: Callable[[int], str]
    device: str
    names: Mapping[str, str]

    def text(self, of: Any) -> str:
        match of:
            case Value():
                return self.operand(of.number)
            case Device():
                return self.device
            case Code():
                return of.text
            case Literal():
                dtype = "" if of.dtype in _PLAIN else f", dtype=torch.{of.dtype}"
                return f"torch.tensor({number_source(of.value)}{dtype})"
            case Many():
                return f"[{', '.join(map(self.text, of.items))}]"
            case tuple():
                return f"({', '.join(map(self.text, of))}{',' if len(of) == 1 else ''})"
            case Applied():
                return f"{self._function(of.function)}({self._arguments(of.args, of.kwargs)})"
            case Method():
                return f"{self._primary(of.of)}.{of.name}({self._arguments(of.args, of.kwargs)})"
            case Member():
                return f"{self._primary(of.of)}.{of.name}"
            case Item():
                index = of.index if isinstance(of.index, tuple) else (of.index,)
                return f"{self._primary(of.of)}[{', '.join(map(self._index, index))}]"
            case Bound():
                return of.name
            case Negative():
                return f"-{self._side(of.of, _NEGATIVE)}"
            case Each():
                over = f"({self.text(of.over)})" if isinstance(of.over, Each) else self.text(of.over)
                return f"{self.text(of.of)} for {', '.join(map(self.text, of.names))} in {over}"
            case Infix():
                return f"{self._side(of.left, _BINDS[of.sign])} {of.sign} {self._side(of.right, _BINDS[of.sign] + 1)}"
        return number_source(of)

    def _function(self, name: str) -> str:
        return self.names.get(name) or (f"torch.ops.{name}" if name.startswith("aten.") else name)

    def _arguments(self, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> str:
        return ", ".join([*map(self.text, args), *(f"{name}={self.text(value)}" for name, value in kwargs)])

    def _primary(self, of: Any) -> str:
        return f"({self.text(of)})" if isinstance(of, (Infix, Negative)) else self.text(of)

    def _side(self, of: Any, least: int) -> str:
        return f"({self.text(of)})" if isinstance(of, Infix) and _BINDS[of.sign] < least else self.text(of)

    def _index(self, of: Any) -> str:
        if isinstance(of, Span):
            return f"{'' if of.start is None else of.start}:{'' if of.stop is None else of.stop}"
        return self.text(of)
