"""Common parts of the CUDA templates: the statements that load and store vectors, and constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Collection, Sequence

from kgen.candidate import Params
from kgen.codegen.arguments import batch_moments, written
from kgen.codegen.c_printer import fill, load_statement, pointer, spell, store_statement, store_value
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Axis, Constraint
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Schedule, Task, parameter
from kgen.compiler.graph.dtypes import DTYPES, loaded, stored, value_type
from kgen.compiler.loops.indices import Size
from kgen.compiler.loops.passes import Pass
from kgen.compiler.loops.program import Load, Program, Store
from kgen.devices.hardware import Hardware

BYTES_A_US = 32e3  # bytes a microsecond and multiprocessor; H200; benchmarks/results/fused_tails.md


@dataclass(frozen=True, kw_only=True)
class Launched(Schedule):
    """A schedule whose kernel is launched while the one before it ends, waiting for it before it reads, or after it."""

    launch: str = parameter("whether the kernel is launched while the one before it ends", "plain")

    @property
    def early(self) -> bool:
        return self.launch == "early"


class InTerms:
    """A schedule whose operands are split into terms of 16 bits, or rounded to one."""

    products: int  #: of terms, which make one product of float32

    @property
    def terms(self) -> int:
        """Terms of each operand: hi and lo, or one."""
        return 2 if self.products == 3 else 1


def launch_axis(task: Task) -> list[Axis]:
    """When the kernel is launched. A plan of one kernel has no other before it."""
    if sm(task.hardware) < 90:
        return []
    return [Axis("launch", ("plain",) if len(task.plan.steps) == 1 else ("early", "plain"))]


def sm(hardware: Hardware) -> int:
    """The number in the architecture's name: 90 of ``sm_90``."""
    return int("".join(c for c in hardware.arch if c.isdigit()) or 0)


def lacking(message: str, least: int, most: int = 1000) -> Callable[[Hardware], str]:
    """A template's ``lacks``: the ``message`` for GPUs whose capability is none from ``least`` to ``most``."""
    return lambda hardware: "" if least <= hardware.capability <= most else message


def arithmetic(params: Params) -> Arithmetic:
    """Products of float16 terms: as many as the parameter ``products`` says, or three."""
    return Arithmetic("float16", int(params.get("products", 3)))


def streams(task: Task) -> bool:
    """Whether results are written past the L2 cache: those that it cannot hold would put out operands that are read
    again."""
    return any(task.plan.graph.type(name).nbytes > task.hardware.l2_bytes for name in task.kernel.outputs)


def read_once(task: Task, loads: Sequence[Load]) -> frozenset[str]:
    """The loads of elements that nothing reads again, of tensors that the L2 cache cannot hold: they would put out
    others."""
    large = (
        x
        for x in loads
        if x.tensor and x.access.full and task.plan.graph.type(x.tensor).nbytes > task.hardware.l2_bytes
    )
    return frozenset(x.name for x in large if not task.read_later(x.tensor))


def vector_width(cols: Size) -> Constraint[Any]:
    """Rows begin and end at multiples of a vector, in every batch: loads would not be aligned, or reach beyond the
    row."""
    divided = cols if isinstance(cols, int) else cols.multiple
    reason = f"a row of {cols} does not divide into vectors of that width"
    return Constraint("vector_width", ("vec",), reason, lambda s: divided % s.vec == 0)


def vector_axis(program: Program, floats: tuple[int, ...] = (4, 2, 1)) -> Axis:
    """Elements of one load or store, the likeliest first; vectors of half types may have twice as many."""
    return Axis("vec", (8, *floats) if program.narrow else floats)


def load_statements(
    loads: Sequence[Load], vec: int, read_from: dict[str, str], once: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Statements before the loop over a vector's elements, and those in it; nothing reads the elements of ``once``
    again."""
    outer: list[str] = []
    inner: list[str] = []
    for load in loads:
        if load.level == "row":
            continue
        mode = load.access.mode(vec)
        if vec == 1:
            inner.append(load_statement(load, read_from))
        elif mode == "vector" and load.tensor:
            outer.append(f"const auto {load.name}_vector = {load_vector(load, vec, read_from, load.name in once)};")
            inner.append(
                f"const {value_type(load.dtype)} {load.name} = {loaded(f'{load.name}_vector.v[j]', load.dtype)};"
            )
        elif mode == "splat":
            outer.append(load_statement(load, read_from))
        else:
            inner.append(load_statement(load, read_from, "row", "(col + j)"))
    return outer, inner


def map_statements(of: Pass, vec: int, at: Callable[[str], str] = str) -> tuple[list[str], list[str]]:
    """Statements before the loop over a vector's elements, and those in it, of maps and of loads at values.

    A load at values that a whole vector shares is one load of neighbouring elements, such as those of a row of a table.
    """
    shared = {x.name for x in of.loads if x.access.mode(vec) == "splat"} if vec > 1 else set()
    differ = {*(x.name for x in of.loads if x.name not in shared), *of.held}
    vectors: list[Load] = []
    for step in of.maps:
        mode = "" if differ & set(step.args) else step.access.mode(vec) if isinstance(step, Load) else "splat"
        if mode == "vector" and step.tensor and vec > 1:
            vectors.append(step)
        if mode != "splat":
            differ.add(step.name)
    first = {name for x in vectors for name in x.args}
    for step in reversed(of.maps):
        first |= set(step.args) if step.name in first else set()
    outer, inner = [], []
    for step in of.maps:
        if step in vectors:
            outer.append(
                f"const auto {step.name}_vector = "
                f"{load_vector(step, vec, {step.tensor: pointer(step.tensor)}, False, at)};"
            )
            inner.append(
                f"const {value_type(step.dtype)} {step.name} = {loaded(f'{step.name}_vector.v[j]', step.dtype)};"
            )
        elif step.name in first:
            outer.append(f"const {value_type(step.dtype)} {step.name} = {spell(step, 'cuda', at)};")
        else:
            inner.append(
                f"const {value_type(step.dtype)} {step.name} = "
                f"{spell(step, 'cuda', at, '(col + j)' if vec > 1 else 'col')};"
            )
    return outer, inner


def one_by_one(access: Load | Store, vec: int) -> bool:
    """Whether elements of a vector are loaded or stored each by itself, in the loop over them."""
    mode = access.access.mode(vec)
    if isinstance(access, Store):
        return vec == 1 or mode != "vector"
    return vec == 1 or mode == "gather" or (mode == "vector" and not access.tensor)


def load_vector(load: Load, vec: int, read_from: dict[str, str], once: bool, at: Callable[[str], str] = str) -> str:
    """The expression that loads neighbouring elements at once; ``at`` spells values that the index holds."""
    vector = (
        f"{symbol('load_vector_once' if once else 'load_vector')}<{vec}>({read_from[load.tensor]} + "
        f"{load.access.index(at=at)})"
    )
    condition = load.access.condition()
    return f"{condition} ? {vector} : {filled_vector(load, vec)}" if condition else vector


def filled_vector(load: Load, vec: int) -> str:
    """The expression of a vector of what stands where the mask does not hold."""
    return f"{symbol('fill_vector')}<{DTYPES[load.dtype].memory}, {vec}>({stored(fill(load), load.dtype, load.dtype)})"


def store_statements(
    stores: Sequence[Store], vec: int, args: Sequence[Argument], by: str = "store_vector"
) -> tuple[list[str], list[str], list[str]]:
    """Statements that gather results, and those that store them after the loop over a vector's elements, ``by`` a
    function."""
    outer: list[str] = []
    inner: list[str] = []
    close: list[str] = []
    for number, store in enumerate(stores):
        target, result = written(store, args), f"{store.tensor}_result"
        result += f"_{number}" if [s.tensor for s in stores].count(store.tensor) > 1 else ""
        if vec == 1:
            inner.append(store_statement(store, target))
        elif store.access.mode(vec) == "vector":
            outer.append(f"Vector<{DTYPES[store.dtype].memory}, {vec}> {result};")
            inner.append(f"{result}.v[j] = {store_value(store)};")
            close.append(f"{symbol(by)}<{vec}>({target} + {store.access.index()}, {result});")
        else:
            inner.append(store_statement(store, target, "row", "(col + j)"))
    return outer, inner, close


#: The state that finishing a column reads: the names of its values, each with the name of its pointer.
_STATE = (("affine", "affine_weight"), ("old_mean", "running_mean"), ("old_var", "running_var"))


def finishing(task: Task) -> tuple[dict[str, Any], list[Argument]]:
    """:func:`batch_moments`, with the state that ``moments.cu.j2`` reads and writes."""
    context, extra = batch_moments(task)
    given = {a.name for a in extra}
    state = [(value, pointer) for value, pointer in _STATE if pointer in given]
    return {**context, "state": state, "written": [(a.name, a.ctype) for a in extra if a.role != "in"]}, extra
