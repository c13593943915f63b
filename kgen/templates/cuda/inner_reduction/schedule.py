"""The schedule of reductions along rows in CUDA, and what its parameters decide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kgen.codegen.arguments import InPlace
from kgen.codegen.combines import SPELLED
from kgen.codegen.template import Task, parameter
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Load, Program
from kgen.compiler.lower.concatenation import Chosen, chosen
from kgen.devices.hardware import Hardware
from kgen.templates.cuda import common

STRIP = 32  # neighbouring rows, each of one line of threads; a warp reads them in one transaction

CACHE_PART = 2 / 3  # of the level-2 cache that rows may fill: results go through it, too
SLOT_BYTES = 16  # bytes of a thread in one slot of shared memory
SHARED_ASIDE = 2048  # bytes of shared memory that are left for other uses of a block


@dataclass(frozen=True, kw_only=True)
class InnerReduction(common.Launched, InPlace):
    block: int = parameter("threads in a block")
    row_per: str = parameter("whether a block, a warp or a line of threads takes a row")
    reduction: str = parameter("how threads reduce: shuffles in a warp, or a tree in shared memory")
    vec: int = parameter("elements in one load or store")
    blocks: int = parameter("blocks that share a row", 1)
    merge: str = parameter("how the blocks of a row put together what they found", "one_block")
    softmax: str = parameter("one pass with a running maximum, or two", "online")
    moments: str = parameter("one pass with moments that are merged, or two", "online")
    row: str = parameter("whether a row is kept in registers or in shared memory, or read again", "reread")
    rows: int = parameter("rows that a block takes at once", 1)

    @cached_property
    def whole(self) -> Program:
        """The kernel's program."""
        return self.task.program("two_pass" in (self.softmax, self.moments))

    @cached_property
    def program(self) -> Program:
        """The program, in which concatenations are loads if each row lies in one of their operands."""
        return self.whole if self.whole.strided else chosen(self.whole)[0]

    @property
    def concatenations(self) -> tuple[Chosen, ...]:
        return () if self.whole.strided else chosen(self.whole)[1]

    @property
    def keeps(self) -> bool:
        """Whether registers keep the row."""
        return self.row == "registers"

    @property
    def passes(self) -> Passes:
        return passes_of(self.program, keep=self.keeps)

    @property
    def strip(self) -> bool:
        """Whether rows beside each other have a line of threads each."""
        return self.row_per == "line"

    @property
    def lanes(self) -> int:
        """Threads that share a row."""
        return {"warp": 32, "block": self.block, "line": self.block // STRIP}[self.row_per] * self.blocks

    @property
    def steps(self) -> int:
        """Vectors that a thread takes of a row."""
        return -(-self.program.cols // (self.lanes * self.vec))

    @property
    def held(self) -> int:
        """Registers of a thread that keep the row."""
        return self.passes.kept * self.steps * self.vec * self.rows if self.keeps else 0

    @property
    def units(self) -> int:
        """Blocks of the whole launch."""
        return -(-self.program.rows // (STRIP if self.strip else 1)) * self.blocks

    @property
    def paired(self) -> bool:
        """Whether a load takes two neighbouring rows of half types."""
        return self.apart > 1 and takes_pairs(self.program)

    @property
    def apart(self) -> int:
        """The distance of a thread's rows: 1 where one load takes them, a strip where loads would not be aligned."""
        return STRIP if self.strip and self.rows > 1 and rows_beside(self.program) % self.rows else 1

    @property
    def neighbours(self) -> bool:
        """Whether a thread's rows lie side by side, and are all there or none."""
        return self.strip and self.apart == 1

    @property
    def parted(self) -> bool:
        """Whether each block takes a part of the one row."""
        return self.merge == "last_block" and not self.strip and self.program.rows == 1

    @property
    def rereads(self) -> bool:
        """Whether teams read their rows again."""
        return self.merge == "team" and len(self.passes.passes) > 1 and self.row == "reread"

    @property
    def teams(self) -> int:
        """Teams that a device may run beside each other."""
        teams = self.task.hardware.multiprocessors * (2048 // self.block) // self.blocks
        return min(teams, rows_in_cache(self.task, self.program)) if self.rereads else teams

    @cached_property
    def ring(self) -> Ring | None:
        """The slots of shared memory that keep the row, if it is kept there."""
        if self.row != "shared":
            return None
        loads = through_ring(self.program, self.vec)
        return Ring(loads, slots_of_ring(self.task.hardware, self.block, loads), self.steps)


@dataclass(frozen=True)
class Ring:
    """Slots of shared memory through which rows come: each thread copies vectors to its own places, ahead of their use.

    A slot has room for one vector of each of the ``loads`` by each thread. A row takes ``steps`` slots; the others take
    the beginning of the next row.
    """

    loads: tuple[Load, ...]
    slots: int
    steps: int

    def slot(self, number: str, load: Load) -> str:
        """The index of a load's vectors in a slot."""
        return number if len(self.loads) == 1 else f"({number} * {len(self.loads)} + {self.loads.index(load)})"


def rows_beside(program: Program) -> int:
    """Rows that lie side by side in memory; 1 where their number follows the batch."""
    inner = program.row_loops[-1].extent if program.row_loops else 1
    return inner if isinstance(inner, int) else 1


def takes_pairs(program: Program) -> bool:
    """Whether a load may take two neighbouring rows of half types where rows begin at any element.

    In every second column, such a pair begins one row earlier. On an H200, that took 13% less than one row to a load.
    """
    plan = passes_of(program, keep=False)
    loads = [x for x in program.loads if x.tensor]
    if not loads or len(plan.passes) > 1 or plan.row_loads or plan.passes[0].stores:
        return False
    if any(not x.tensor and follows_row(x) for x in program.loads):  # numbers of rows, which a load of two has none of
        return False
    if not all(SPELLED[r.kind].take for r in program.reductions) or not isinstance(program.col_size, int):
        return False
    beside, place = rows_beside(program), loads[0].access
    like = all(DTYPES[x.dtype].nbytes == 2 and x.access.offset == place.offset for x in loads)
    return like and beside > 1 and beside % 2 == 1 and program.cols % 2 == 0 and place.pairs_alternate


def follows_row(load: Load) -> bool:
    """Whether the tensor is read at another place for each row."""
    return load.access.takes_row


def rows_in_cache(task: Task, program: Program) -> int:
    """Rows of which the level-2 cache holds all that the last pass reads again; one where it holds none."""
    loads = [x for x in passes_of(program, keep=False).passes[-1].loads if x.tensor]
    of_one = sum(DTYPES[x.dtype].nbytes for x in loads if x.access.full)
    of_all = sum(task.plan.graph.type(x.tensor).nbytes for x in loads if not x.access.full)
    return max(1, int(CACHE_PART * task.hardware.l2_bytes - of_all) // max(1, of_one * program.cols))


def slots_of_ring(hardware: Hardware, threads: int, loads: tuple[Load, ...]) -> int:
    """Slots that a block's shared memory has room for, where 1024 threads share a multiprocessor."""
    beside = 1024 // threads
    room = (
        min(hardware.shared_bytes_per_block, hardware.shared_bytes_per_multiprocessor // beside - 1024) - SHARED_ASIDE
    )
    return room // (SLOT_BYTES * threads * max(1, len(loads)))


def through_ring(program: Program, vec: int) -> tuple[Load, ...]:
    """The loads that more than one pass needs, of neighbouring elements that no other row reads."""
    first, *_, last = passes_of(program, keep=False).passes
    found = [
        x
        for x in first.loads
        if x in last.loads and x.tensor and x.access.full and not (x.access.mask or x.access.spelled)
    ]
    return tuple(x for x in found if x.access.mode(vec) == "vector" and DTYPES[x.dtype].nbytes * vec == SLOT_BYTES)
