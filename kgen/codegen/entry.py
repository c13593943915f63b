"""The whole forward in one call of C, where it is one run of kernels on tensors that are taken as they are.

Python's way through a forward costs the host more than its launches: checks, views of sizes, pointers, packing. A file
for a GPU has a C function for the usual call, which answers None where there is anything else to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kgen.codegen.body import Body
from kgen.codegen.forward import Forward, python_name
from kgen.codegen.memory import Memory, Run

#: ``c10::ScalarType`` by dtype: numbers of torch's C interface.
_SCALAR_TYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "bool": 11,
    "bfloat16": 15,
}
_WHOLE = re.compile(r"[\w\s+*/&(),-]*")  # expressions that Python and C read alike


@dataclass(frozen=True)
class Allocated:
    """Memory of a forward: its tensor and its sizes. ``dtype`` is a number among :attr:`Entry.dtypes`, or -1 for the
    first input's."""

    name: str
    dtype: int
    sizes: str


@dataclass(frozen=True)
class Taken:
    """An input: its sizes as C (empty where any will do) and the number of its dtype."""

    name: str
    sizes: tuple[str, ...]
    dtype: int


@dataclass(frozen=True)
class Batch:
    """The input whose first size is the batch, ``multiple`` times."""

    name: str
    multiple: int


@dataclass(frozen=True)
class Entry:
    """The context of the function's text. ``dtypes`` are names of those that memory is allocated in."""

    run: Run
    inputs: tuple[Taken, ...]
    batch: Batch | None
    weights: bool
    places: tuple[tuple[str, str], ...]
    parts: bool
    allocations: tuple[Allocated, ...]
    table: tuple[str, ...]
    result: str
    dtypes: tuple[str, ...]
    largest: bool

    @property
    def context(self) -> dict[str, Any]:
        return dict(vars(self))


def entry(body: Body, forward: Forward) -> Entry | None:
    """The entry of a forward of one mode; ``None`` where it is not one run of kernels from its inputs to one result."""
    graph = body.graph
    if (
        len(body.steps) != 1
        or not body.runs
        or forward.packed[0] is not None
        or forward.expectations()
        or graph.constants
        or body.weights.listed
    ):
        return None
    (step,), (run,), layout = body.steps, body.runs, body.layout(body.steps[0])
    dense = {local: source for source, local in step.dense.items()}
    inputs = {python_name(i.name): i for i in graph.inputs}
    if (
        step.behind
        or body.weights.taken
        or len(step.lines) != len(dense)
        or forward.hidden
        or forward.arguments != forward.inputs
    ):
        return None
    dtypes: dict[str, int] = {}

    def number(dtype: str) -> int:
        return -1 if dtype == graph.inputs[0].type.dtype else dtypes.setdefault(dtype, len(dtypes))

    def allocated(tensor: Memory) -> Allocated:
        return Allocated(tensor.name, number(tensor.dtype), "" if tensor.sizes == "()" else _as_c(tensor.sizes))

    own = [tensor for tensor in layout.tensors if tensor not in layout.parts]
    allocations = [*map(allocated, own)]
    if layout.parts:
        allocations.append(Allocated("memory", number("uint8"), _as_c(layout.size)))
    places = tuple((name, _as_c(place)) for name, place in layout.places)
    table = []
    for name in layout.table(step):
        source = dense.get(name, "")
        if name in {a.name for a in allocations}:
            table.append(f"address({name})")
        elif any(part.name == name for part in layout.parts):
            table.append(f"at + {name}" if any(name == place for place, _ in places) else "at")
        elif (given := next((i for i in inputs if source.startswith(f"dense({i}, ")), None)) is not None:
            table.append(f"{given}_given.data")
        else:
            return None
    result = body.returned[0]
    texts = [place for _, place in places] + [a.sizes for a in allocations]
    if result not in {a.name for a in own} or not all(map(_WHOLE.fullmatch, texts)):
        return None
    taken = tuple(_taken(name, of, graph.batch_input) for name, of in inputs.items())
    if any(of.dtype < 0 for of in taken) or not all(a.sizes for a in allocations):
        return None
    lead = next((name for name, of in inputs.items() if of.name == graph.batch_input), None)
    batch = Batch(lead, inputs[lead].type.multiples[0]) if lead else None
    if batch and batch.multiple != 1:
        return None
    return Entry(
        run,
        taken,
        batch,
        run.takes_weights,
        places,
        bool(layout.parts),
        tuple(allocations),
        tuple(table),
        result,
        tuple(dtypes),
        any("largest(" in text for text in texts),
    )


def _taken(name: str, of: Any, batch_input: str | None) -> Taken:
    sizes = [*map(str, of.type.sizes())]
    if of.name == batch_input:
        sizes[0] = ""
    return Taken(name, tuple(sizes), _SCALAR_TYPES.get(of.type.dtype, -1))


def _as_c(expression: str) -> str:
    """The expression in C, in 64 bits. Sizes are not negative, so that divisions are rounded alike."""
    return re.sub(r"\b(\d+)\b", r"\1ll", expression.replace("//", "/").replace("max(", "largest("))
