"""Evaluation: what a loop program computes, in float64 with torch, without a compiler. It is a kernel's own reference.

A value is a tensor with one dimension for each axis of the program. Axes are row loops, column loops and taps of
windows. A dimension that the value does not vary over has one element. Constants are exact; integers are int64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Callable, Iterable, Mapping, Sequence

import sympy

from kgen.compiler.graph.convolutions import Convolution
from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.expr import Arg, Binary, Call, Cast, Columns, Const, Expr, Unary, Where
from kgen.compiler.loops.functions import FUNCTIONS
from kgen.compiler.loops.indices import COLUMNS, FloorDiv, Modulo
from kgen.compiler.loops.program import (
    ELEMENT,
    Contraction,
    Load,
    Map,
    Program,
    Reduce,
    Scan,
    Scatter,
    SmallProduct,
    Store,
    Strided,
    Window,
)
from kgen.compiler.loops.recurrence import Recurrence
from kgen.compiler.loops.reductions import REDUCTIONS

if TYPE_CHECKING:
    from torch import Tensor


def evaluate(program: Program, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that the program stores, flat, from those that it reads, at the captured batch.

    Floating results are float64. A program may end in moments over its rows. The name of the value then stands
    for the mean and the variance of each column, as one tensor ``[2, cols]``.
    """
    return _Evaluation(program, tensors).run()


def value_of(of: Expr, args: Sequence[Tensor], columns: int = 0) -> Tensor:
    """An expression of operands: floats are float64, and integers int64 with C's arithmetic."""
    import torch

    def at(node: Expr) -> Tensor:
        return value_of(node, args, columns)

    match of:
        case Arg():
            return args[of.number]
        case Const():
            return torch.tensor(of.value, dtype=torch.int64 if of.dtype == "int64" else torch.float64)
        case Columns():
            return torch.tensor(float(columns), dtype=torch.float64)
        case Unary():
            x = at(of.x)
            return {"-": lambda: -_number(x), "~": lambda: ~_number(x), "!": lambda: x == 0}[of.sign]()
        case Binary():
            return _BINARY[of.sign](_number(at(of.left)), _number(at(of.right)))
        case Where():
            return torch.where(at(of.condition) != 0, *_alike(at(of.value), at(of.other)))
        case Cast():
            return as_value(at(of.x), of.dtype)
        case Call() if of.function in FUNCTIONS:
            return value_of(FUNCTIONS[of.function].body, [at(arg) for arg in of.args])
        case Call():
            return (
                _OF_INTEGERS[of.function](*map(at, of.args))
                if of.function in _OF_INTEGERS
                else _primitive(of.function)(*(at(arg).double() for arg in of.args))
            )
    raise TypeError(f"{of} has no value")


def as_value(x: Tensor, dtype: str) -> Tensor:
    """A value of the dtype: float64 for floats, int64 for integers, which are cut off as C does."""
    import torch

    if is_float(dtype):
        return x.double()
    if dtype == "bool":
        return x != 0
    finite = torch.nan_to_num(x, 0.0) if x.is_floating_point() else x
    return finite.to(getattr(torch, dtype)).to(torch.int64)


def _number(x: Tensor) -> Tensor:
    """A truth value as 0 or 1."""
    import torch

    return x.to(torch.int64) if x.dtype is torch.bool else x


def _alike(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two values as ones of one dtype."""
    import torch

    to = torch.promote_types(x.dtype, y.dtype)
    return x.to(to), y.to(to)


def _divided(x: Tensor, y: Tensor) -> Tensor:
    import torch

    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc") if whole else x.double() / y.double()


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    import torch

    return torch.fmod(x, y)


def _whole_divisor(y: Tensor) -> Tensor:
    """A divisor of integers: 1 for 0."""
    return y + (y == 0)


#: Primitives of integers.
_OF_INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "FLOOR_QUOTIENT": lambda x, y: x.floor_divide(_whole_divisor(y)),
    "FLOOR_REMAINDER": lambda x, y: x.remainder(_whole_divisor(y)),
}

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": _divided,
    "%": _remainder,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "&&": lambda x, y: (x != 0) & (y != 0),
    "||": lambda x, y: (x != 0) | (y != 0),
}


def _recurred(dim: int, factor: Tensor, summand: Tensor) -> Tensor:
    """The states of a linear recurrence that begins at zero."""
    import torch

    states, state = [], torch.zeros((), dtype=summand.dtype)
    for each, more in zip(factor.unbind(dim), summand.unbind(dim)):
        state = each * state + more
        states.append(state)
    return torch.stack(states, dim)


#: Running values along a dimension, by the kind of the scan.
_SCANS: dict[str, Callable[..., Tensor]] = {
    "sum": lambda dim, x: x.cumsum(dim), "prod": lambda dim, x: x.cumprod(dim), "linear": _recurred,
}  # fmt: skip

#: Primitives that torch has under another name.
_OTHERS = {
    "EXPBELOW": "exp",
    "RINT": "round",
    "SQRT64": "sqrt",
    "INVERSEROOT": "rsqrt",
    "QUOTIENT": "divide",
    "NORMAL": "special.ndtr",
}


def _primitive(name: str) -> Callable[..., Tensor]:
    """A device's primitive, by its name in capitals."""
    import torch

    if name == "BITS":
        return lambda value: value.float().view(torch.int32).to(torch.int64)
    if name == "FMA":
        return lambda x, y, z: x * y + z
    if name == "CHOOSE":
        return lambda condition, value, other: torch.where(condition != 0, value, other)
    return reduce(getattr, _OTHERS.get(name, name.lower()).split("."), torch)


def _extents(loops: Sequence[Loop], whole: int) -> list[int]:
    """The extent of each loop; that which follows the batch has its part of all elements."""
    fixed = math.prod(loop.extent for loop in loops if isinstance(loop.extent, int))
    return [loop.extent if isinstance(loop.extent, int) else whole // fixed for loop in loops]


@dataclass
class _Evaluation:
    """One program over tensors, with the values that are known so far."""

    program: Program
    tensors: Mapping[str, Tensor]
    values: dict[str, Tensor] = field(default_factory=dict)
    grid: dict[sympy.Symbol, Tensor] = field(default_factory=dict)  #: the indices of axes, and positions in windows

    def __post_init__(self) -> None:
        import torch

        program = self.program
        slides = [slide for window in program.windows for slide in window.slides]
        loops = [*program.row_loops, *program.col_loops]
        symbols = [*(loop.symbol for loop in loops), *(slide.tap for slide in slides)]
        self.rows, self.cols = (range(len(program.row_loops)), range(len(program.row_loops), len(loops)))
        self.sizes = [
            *_extents(program.row_loops, program.rows),
            *_extents(program.col_loops, program.cols),
            *(s.taps for s in slides),
        ]
        self.dims = {symbol: number for number, symbol in enumerate(symbols)}
        for symbol, number in self.dims.items():
            shape = [1] * len(symbols)
            shape[number] = self.sizes[number]
            self.grid[symbol] = torch.arange(self.sizes[number]).reshape(shape)
        self.grid[COLUMNS] = torch.tensor(program.cols)
        for slide in slides:
            self.grid[slide.position] = (
                self.index(slide.output) * slide.stride + self.grid[slide.tap] * slide.dilation - slide.padding
            )

    def run(self) -> dict[str, Tensor]:
        import torch

        program = self.program
        if program.recurrence is not None:
            return self._recurred(program.recurrence)
        if program.product is not None:
            return self._small(program.product)
        if program.contraction is not None:
            self.values[program.contraction.name] = self._sums(program.contraction)
        for step in (*program.loads, *program.steps):
            self._step(step)
        found: dict[str, Tensor] = {}
        for store in program.stores:
            place, value = self._stored(store)
            known = found.get(store.tensor, torch.zeros(0, dtype=value.dtype))
            found[store.tensor] = torch.cat([known, known.new_zeros(max(0, int(place.max()) + 1 - len(known)))])
            found[store.tensor][place] = value
        for scatter in program.scatters:
            found[scatter.tensor] = self._scattered(scatter)
        if program.moments_of:
            value = self._whole(self.values[program.moments_of], (*self.rows, *self.cols)).reshape(
                program.rows, program.cols
            )
            found[program.moments_of] = torch.stack([value.mean(0), value.var(0, correction=0)])
        return found

    # Indices

    def index(self, of: sympy.Expr) -> Tensor:
        """An index expression for all elements."""
        import torch

        if isinstance(of, sympy.Integer):
            return torch.tensor(int(of))
        if isinstance(of, sympy.Symbol):
            return self.grid[of] if of in self.grid else self.values[of.name]
        parts = [self.index(arg) for arg in of.args]
        if isinstance(of, FloorDiv):
            return torch.div(*parts, rounding_mode="floor")
        if isinstance(of, Modulo):
            return torch.remainder(*parts)
        combine = {sympy.Add: torch.add, sympy.Mul: torch.mul}[of.func]
        return reduce(combine, parts)

    def _inside(self, place: Place) -> Tensor:
        """Whether the mask holds."""
        import torch

        found = torch.tensor(True)
        for within in place.mask:
            index = self.index(within.index)
            found = found & (index >= 0 if within.below else torch.tensor(True))
            found = found & (index < within.size if within.above else torch.tensor(True))
        return found

    def _shaped(self, value: Tensor) -> Tensor:
        """A value with one dimension for each axis."""
        return value.reshape([1] * len(self.dims)) if value.dim() < len(self.dims) else value

    def _whole(self, value: Tensor, dims: Sequence[int]) -> Tensor:
        """The value at each element of these dimensions."""
        return value.expand([self.sizes[d] if d in dims else size for d, size in enumerate(value.shape)])

    # Values

    def _step(self, step: Load | Map | Window | Scan | Reduce) -> None:
        if isinstance(step, Reduce):
            self.values |= dict(zip(step.names, self._reduced(step)))
        elif isinstance(step, Window):
            self.values[step.name] = self._window(step)
        elif isinstance(step, Scan):
            self.values[step.name] = self._scan(step)
        else:
            value = self._load(step) if isinstance(step, Load) else self._map(step)
            self.values[step.name] = self._shaped(value)

    def _load(self, load: Load) -> Tensor:
        import torch

        place, inside = self.index(load.access.offset), self._inside(load.access)
        if not load.tensor:
            return inside if load.dtype == "bool" else as_value(place, load.dtype)
        flat = self.tensors[load.tensor].reshape(-1)
        found = as_value(flat[place.clamp(0, len(flat) - 1)], load.dtype)
        return torch.where(inside, found, torch.tensor(load.fill, dtype=found.dtype)) if load.access.mask else found

    def _map(self, step: Map) -> Tensor:
        return as_value(
            value_of(step.expression, [self.values[arg] for arg in step.args], self.program.cols), step.dtype
        )

    def _reduced(self, step: Reduce) -> list[Tensor]:
        """The results of a reduction over the columns, or over neighbouring ones."""
        dims = [*self.cols]
        while self.program.span and math.prod(self.sizes[d] for d in dims) > self.program.span:
            dims = dims[1:]
        values = [self._whole(self.values[arg], dims) for arg in step.args]
        last = [value.movedim(dims, [*range(-len(dims), 0)]).flatten(-len(dims)) for value in values]
        back = [d for d in range(len(self.dims)) if d not in dims]

        def as_row(result: Tensor) -> Tensor:
            return result.reshape([result.shape[back.index(d)] if d in back else 1 for d in range(len(self.dims))])

        return [as_row(result) for result in REDUCTIONS[step.kind](*last)]

    def _scan(self, step: Scan) -> Tensor:
        import torch

        whole = [
            self._whole(value, self.cols) for value in torch.broadcast_tensors(*(self.values[arg] for arg in step.args))
        ]
        first = self.cols[0]
        terms = [value.flatten(first, self.cols[-1]) for value in whole]
        found = _SCANS[step.kind](first, *(term.flip(first) if step.reverse else term for term in terms))
        return (found.flip(first) if step.reverse else found).reshape(whole[0].shape)

    def _window(self, step: Window) -> Tensor:
        import torch

        contraction = self.program.contraction
        if contraction is not None:
            self.values[contraction.name] = self._pooled(contraction, step)
        for inner in step.body:
            self._step(inner)
        inside, counted = torch.tensor(True), torch.tensor(True)
        for slide in step.slides:
            at = self.grid[slide.position]
            inside = inside & (at >= 0) & (at < slide.size)
            counted = counted & (at >= slide.counted[0]) & (at < slide.counted[1])
        dims = [self.dims[slide.tap] for slide in step.slides]
        value = self.values[step.arg]
        value = torch.where(self._shaped(inside), value, torch.tensor(step.fill, dtype=value.dtype))
        value = self._whole(value, dims)
        if step.kind == "max":
            return value.amax(dims, keepdim=True)
        total = value.sum(dims, keepdim=True)
        return (
            total / self._whole(self._shaped(counted), dims).double().sum(dims, keepdim=True)
            if step.kind == "mean"
            else total
        )

    # Products of small matrices

    def _small(self, of: SmallProduct) -> dict[str, Tensor]:
        """The results behind the sums of all matrices, flat."""
        made = [evaluate(part, self.tensors)[part.stores[0].tensor] for part in (of.left, of.right)]
        shapes = [(n, of.k)[:: -1 if turned else 1] for n, turned in zip((of.rows, of.cols), of.turned)]
        left, right = (
            m.reshape(-1, *shape).mT if turned else m.reshape(-1, *shape)
            for m, shape, turned in zip(made, shapes, of.turned)
        )
        return evaluate(of.behind, {**self.tensors, of.sums: (left @ right.mT).reshape(-1)})

    # Recurrent layers

    def _recurred(self, of: Recurrence) -> dict[str, Tensor]:
        """The results of all steps, flat."""
        import torch

        given = {name: self.tensors[name].double() for name in of.reads}
        width = of.directions * of.rows
        products = given[of.products].reshape(-1, width)
        whole = len(products)
        steps, batch = (
            n if isinstance(n, int) else whole // m for n, m in ((of.steps, of.batch), (of.batch, of.steps))
        )
        products = (
            products.reshape(batch, steps, width).transpose(0, 1)
            if of.batch_first
            else products.reshape(steps, batch, width)
        )
        last: list[list[Tensor]] = []
        output = products  # a layer above another one reads the output below it, which replaces this
        for depth in range(of.depth):
            outputs = []
            for direction in range(of.directions):
                number = depth * of.directions + direction
                layer = of.layers[number]
                x = products[..., direction * of.rows : (direction + 1) * of.rows]
                if layer.inner_weight:
                    x = output @ given[layer.inner_weight].reshape(of.rows, -1).mT + (
                        given[layer.inner_bias] if layer.inner_bias else 0.0
                    )
                begin = [given[s].reshape(-1, batch, of.hidden)[of.first + number] for s in of.states] or [
                    x.new_zeros(batch, of.hidden)
                ] * len(of.cell.states)
                found, states = self._stepped(
                    of, x.flip(0) if direction else x, given[layer.weight], given.get(layer.bias), begin
                )
                outputs.append(found.flip(0) if direction else found)
                last.append(states)
            output = torch.cat(outputs, -1)
        results = [
            output.transpose(0, 1) if of.batch_first else output,
            *(torch.stack(states) for states in zip(*last)),
        ]
        return {name: results[kind].reshape(-1) for name, kind in of.results}

    @staticmethod
    def _stepped(
        of: Recurrence, x: Tensor, weight: Tensor, bias: Tensor | None, begin: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The hidden state after each step of one layer, and the last states."""
        import torch

        states, found = begin, []
        for products in x:
            values = dict(zip(of.cell.states, states))
            values |= {f"x{gate}": part for gate, part in enumerate(products.chunk(of.cell.gates, -1))}
            sums = states[0] @ weight.reshape(of.rows, of.hidden).mT + (0.0 if bias is None else bias)
            values |= {f"h{gate}": part for gate, part in enumerate(sums.chunk(of.cell.gates, -1))}
            for step in of.cell.steps:
                values[step.name] = value_of(step.expression, [values[arg] for arg in step.args])
            states = [values[f"next_{state}"] for state in of.cell.states]
            found.append(states[0])
        return torch.stack(found), states

    # Contractions

    def _sums(self, of: Contraction) -> Tensor:
        """The sums of products, each at its row and column."""
        sums = self._convolved(of, of.window) if of.window else self._multiplied(of)
        if of.window and of.window.pool > 1:
            return sums  # a window reads them
        if of.window and of.across:
            sums = sums.movedim(1, -1)
        return sums.reshape([self.sizes[d] if d in (*self.rows, *self.cols) else 1 for d in range(len(self.dims))])

    def _operand(self, of: Contraction) -> Tensor:
        return (
            evaluate(of.before, self.tensors)[of.x] if of.before else self._laid(self.tensors[of.x].double(), of.x_lies)
        )

    def _multiplied(self, of: Contraction) -> Tensor:
        x, weight = (
            self._operand(of).reshape(-1),
            self._laid(self.tensors[of.weight].double(), of.weight_lies).reshape(-1),
        )
        matrices = of.matrices if of.group is not None else 1
        x = x.reshape(matrices, of.k, -1).mT if of.turned else x.reshape(matrices, -1, of.k)
        weight = weight.reshape(matrices, of.k, -1) if of.transposed else weight.reshape(matrices, -1, of.k).mT
        return x @ weight

    def _laid(self, x: Tensor, lies: Strided | None) -> Tensor:
        """The elements of an operand in its own order."""
        import torch

        place, rows = torch.tensor(lies.offset if lies else 0), self.program.row_size
        for extent, stride in lies.axes if lies else ():
            size = extent if isinstance(extent, int) else extent.multiple * (self.program.rows // rows.multiple)
            place = place.unsqueeze(-1) + torch.arange(size) * stride
        return x.reshape(-1)[place.reshape(-1)] if lies else x

    def _convolved(self, of: Contraction, window: Convolution) -> Tensor:
        """The convolution ``[images, channels, pixels...]``."""
        import torch.nn.functional as F

        lines, channels = window.lines, window.groups * window.channels_in
        x = self._operand(of).reshape(-1, channels, *(line.size for line in lines))
        across, along = (
            (window.channels_in, window.channels_out)
            if window.transposed
            else (window.channels_out, window.channels_in)
        )
        weight = (
            self.tensors[of.weight].double().reshape(window.groups * across, along, *(line.kernel for line in lines))
        )
        stride, padding, dilation = (
            [getattr(line, word) for line in lines] for word in ("stride", "padding", "dilation")
        )
        if not window.transposed:
            convolve = (F.conv1d, F.conv2d, F.conv3d)[len(lines) - 1]
            return convolve(x, weight, None, stride, padding, dilation, window.groups)
        more = [
            line.out - ((line.size - 1) * line.stride - 2 * line.padding + line.dilation * (line.kernel - 1) + 1)
            for line in lines
        ]
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(lines) - 1]
        return convolve(x, weight, None, stride, padding, more, window.groups, dilation)

    def _pooled(self, of: Contraction, step: Window) -> Tensor:
        """The sums of a convolution at the positions of a window; its rows are the channels of images, or its columns
        are."""
        outputs = frozenset().union(*(slide.output.free_symbols for slide in step.slides))
        loops = [loop.symbol for loop in (*self.program.row_loops, *self.program.col_loops)]
        number, of_window = (
            self._counted(s for s in loops if s not in outputs),
            self._counted(s for s in loops if s in outputs),
        )
        lines = of.window.lines
        counts = [line.out // line.pool for line in lines]
        for d, (slide, line) in enumerate(
            zip(step.slides, lines)
        ):  # axes of windows that lie side by side may be one loop
            window = of_window // math.prod(counts[d + 1 :]) % counts[d]
            self.grid[slide.position] = window * line.pool + self.grid[slide.tap]
            number = number * line.out + self.grid[slide.position]
        return self._shaped(self._sums(of).reshape(-1)[number])

    def _counted(self, symbols: Iterable[sympy.Symbol]) -> Tensor:
        """The number that counts the elements of some axes, the innermost last."""
        import torch

        return reduce(
            lambda at, symbol: at * self.sizes[self.dims[symbol]] + self.grid[symbol], symbols, torch.tensor(0)
        )

    def _stored(self, store: Store) -> tuple[Tensor, Tensor]:
        """The places of a store and the values there, each as one row of numbers."""
        place, value = self._shaped(self.index(store.access.offset)), self.values[store.arg]
        dims = [d for d in (*self.rows, *self.cols) if store.level == ELEMENT or d in self.rows or place.shape[d] > 1]
        place, value = self._whole(place, dims), self._whole(value, dims)
        shape = [max(a, b) for a, b in zip(place.shape, value.shape)]
        return place.expand(shape).reshape(-1), as_value(value, store.dtype).expand(shape).reshape(-1)

    def _scattered(self, scatter: Scatter) -> Tensor:
        """The tensor that values are taken into, as one row of numbers."""
        import torch

        place, value = self._stored(
            Store(scatter.tensor, scatter.arg, scatter.level, scatter.access, scatter.dtype, scatter.of)
        )
        size, elements = self.program.size, scatter.elements
        whole = self.program.rows if size is self.program.row_size else self.program.cols
        count = elements if isinstance(elements, int) else whole // size.multiple * elements.multiple
        begin = self.tensors[scatter.source].reshape(-1) if scatter.source else torch.full((count,), scatter.start)
        begin = begin.repeat(count // scatter.period) if scatter.period else begin
        found = as_value(begin.clone(), scatter.dtype)
        if scatter.kind == "last":
            found[place] = value.to(found.dtype)
            return found
        how = {"sum": "sum", "product": "prod", "max": "amax", "min": "amin"}[scatter.kind]
        return found.scatter_reduce(0, place, value.to(found.dtype), how)
