"""A kernel's loop program as text: its loops, and one line for each load, value and store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgen.codegen.c_printer import expression, fill
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.program import Load, Map, Program, Reduce, Scan, Scatter, Store, Window
from kgen.compiler.loops.recurrence import Recurrence

#: The results of a recurrence, by their numbers.
RESULTS = ("the hidden state at each step", "the last hidden state", "the last cell state")


def lines(program: Program) -> Iterator[str]:
    """The program, line by line. Indices are of rows and columns; expressions are C."""
    yield f"rows  {_loops(program.row_loops, program.row_size)}"
    yield f"cols  {_loops(program.col_loops, program.col_size)}"
    if program.contraction is not None:
        of = program.contraction
        yield f"{of.name} = sum over {of.k} of {of.x if of.before is None else '(before)'} * {of.weight}"
        yield from (f"  {line}" for line in (lines(of.before) if of.before is not None else ()))
    if program.recurrence is not None:
        yield from _recurrence(program.recurrence)
    if program.product is not None:
        of = program.product
        yield f"{of.sums} = {of.rows} x {of.cols} sums over {of.k} for each matrix, of (left) and (right)"
        yield from (f"  {line}" for part in dict.fromkeys(of.parts) for line in lines(part))
    for step in (*program.loads, *program.steps):
        yield from _step(step)
    yield from map(_scatter, program.scatters)
    for store in program.stores:
        yield _store(store)


def expressions(program: Program) -> Iterator[str]:
    """The value of each map of the program, line by line, as an expression of other values."""
    for step in program.steps:
        for inner in step.body if isinstance(step, Window) else (step,):
            if isinstance(inner, Map):
                yield f"{inner.name} = {inner.expression.of(inner.args)}"


def _step(step: Map | Load | Window | Scan | Reduce) -> Iterator[str]:
    if isinstance(step, Load):
        yield f"{step.name}: {step.dtype} = {_read(step)}"
    elif isinstance(step, Map):
        yield f"{step.name}: {step.dtype} = {expression(step.expression, step.args, device_type='')}"
    elif isinstance(step, Reduce):
        yield f"{', '.join(step.names)}: {', '.join(step.dtypes)} = {step.kind} over cols of {', '.join(step.args)}"
    elif isinstance(step, Scan):
        back = ", from the last column back" if step.reverse else ""
        yield f"{step.name}: {step.dtype} = running {step.kind} along cols of {', '.join(step.args)}{back}"
    else:
        yield (
            f"{step.name}: {step.dtype} = {step.kind} of {step.arg} over a window of {_extents(step)}, {fill(step)} "
            "outside"
        )
        for inner in step.body:
            yield from (f"  {line}" for line in _step(inner))


def _recurrence(of: Recurrence) -> Iterator[str]:
    yield (
        f"{of.steps} steps of {of.batch} rows: {of.depth} layers, {of.directions} directions, x products in "
        f"{of.products}"
    )
    yield from (
        f"  h products with {layer.weight}" + (f", x products with {layer.inner_weight}" if layer.inner_weight else "")
        for layer in of.layers
    )
    yield from (f"  {step.name} = {step.expression.of(step.args)}" for step in of.cell.steps)
    yield from (f"{name} = {RESULTS[kind]}" for name, kind in of.results)


def _read(load: Load) -> str:
    index = load.access.index()
    value = f"{load.tensor}[{index}]" if load.tensor else index
    condition = load.access.condition()
    return f"{value} if {condition} else {fill(load)}" if condition else value


def _scatter(of: Scatter) -> str:
    begins = of.source or str(of.start)
    return f"take {of.arg} into {of.tensor}[{of.access.index()}] by {of.kind}, which begins as {begins}"


def _store(store: Store) -> str:
    cast = f" as {store.dtype}" if store.dtype != store.of else ""
    into = f"{store.into} (updated)" if store.into else store.tensor
    return f"{into}[{_place(store.access)}] = {store.arg}{cast}"


def _place(place: Place) -> str:
    condition = place.condition()
    return f"{place.index()} if {condition}" if condition else place.index()


def _loops(loops: Sequence[Loop], size: object) -> str:
    axes = ", ".join(f"{loop.symbol} < {loop.extent}" for loop in loops)
    return f"{size}: {axes}" if axes else f"{size}"


def _extents(window: Window) -> str:
    return " x ".join(str(slide.taps) for slide in window.slides)
