"""Inner reductions in CUDA: maps, reductions along the row, maps; a block or a warp for each row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Sequence

from kgen.codegen.arguments import InPlace, arguments as pointers, output_axis, rendering, sources, written
from kgen.codegen.c_printer import block, describe, load_value, one_pass, spell, store_statement, store_value
from kgen.codegen.combines import PLACE, SPELLED, WHOLE
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, loaded, value_type
from kgen.compiler.loops.passes import Pass, Passes, passes_of
from kgen.compiler.loops.program import ROW, Load, Map, Program, Reduce, Step, by_col, by_row
from kgen.compiler.lower.concatenation import Chosen, chosen
from kgen.devices.hardware import Hardware
from kgen.templates.cuda import common

_INT_MAX = (1 << 31) - 1

#: Registers that a thread may spend on the kept row before occupancy falls too far. Blocks that share a row may spend more,
#: because their other choice is to read it again.
MOST_KEPT, MOST_KEPT_SHARED = 64, 96


SHORT_ROW = 1024  # columns; up to it, a warp takes a row
FEW_STRIPS, LONG_STRIP = 16, 1 << 16  # strips of rows that leave most of a device idle, and columns that make them long
STRIP = 32  # neighbouring rows, each of one line of threads; a warp reads them in one transaction

LONG_STEPS = 64  # vectors of a thread of a block that shares a row; of so many, 16 in flight took 1% less than 4 (H200)
BYTES_AHEAD = 64  # bytes that a thread with several rows requests at once; 1024 such threads saturate the memory of an H200

CACHE_PART = 2 / 3  # of the level-2 cache that rows may fill: results go through it, too
CLUSTERS = (8, 4, 2)  # blocks; a cluster of more does not run on every device
MOST_BLOCKS = 2048  # blocks that share a row by way of the workspace
MOST_TERMS = 16384  # terms of a sum that a thread adds up, where blocks may share a row
BLOCKS_A_MULTIPROCESSOR = (2, 24)  # the least and the most that a split puts on each, where it can choose


def _beside(program: Program) -> int:
    """Rows that lie side by side in memory; 1 where their number follows the batch."""
    inner = program.row_loops[-1].extent if program.row_loops else 1
    return inner if isinstance(inner, int) else 1


def _pairs(program: Program) -> bool:
    """Whether a load may take two neighbouring rows of half types where rows begin at any element.

    In every second column, such a pair begins one row earlier. On an H200, that took 13% less than one row to a load.
    """
    plan = passes_of(program, keep=False)
    loads = [x for x in program.loads if x.tensor]
    if not loads or len(plan.passes) > 1 or plan.row_loads or plan.passes[0].stores:
        return False
    if any(not x.tensor and _follows_row(x) for x in program.loads):  # numbers of rows, which a load of two has none of
        return False
    if not all(SPELLED[r.kind].take for r in program.reductions) or not isinstance(program.col_size, int):
        return False
    beside, place = _beside(program), loads[0].access
    like = all(DTYPES[x.dtype].nbytes == 2 and x.access.offset == place.offset for x in loads)
    return like and beside > 1 and beside % 2 == 1 and program.cols % 2 == 0 and place.pairs_alternate


#: Threads of blocks that share a row by way of the workspace. The first two give about twice as many blocks as run at a time.
#: That took 0.6% less time than once as many (8 GB on an H200).
BUSIEST_THREADS = (1024, 256, 512, 128)
#: Bytes of each operand that a block takes of a tensor that is reduced as a whole, one after the other. Blocks of so much, more than
#: run at a time, took 0.8% less of 8 GB than whole waves of blocks that take turns (H200).
PART_BYTES = 128 << 10
PART_THREADS = (512, 1024, 256, 128)
RING_THREADS = (512, 1024)  # threads of blocks that keep rows in shared memory; fewer were slower on an H200
SLOTS_AHEAD = 3  # slots of a ring that take the next row while a team waits for its slowest block
SLOT_BYTES = 16  # bytes of a thread in one slot of shared memory
SHARED_ASIDE = 2048  # bytes of shared memory that are left for other uses of a block
MOST_SIZES = 3  # sizes of teams that are tried for each number of threads, beside the busiest


@dataclass(frozen=True)
class _Ring:
    """Slots of shared memory through which rows come: each thread copies vectors to its own places, ahead of their use.

    A slot has room for one vector of each of the ``loads`` by each thread. A row takes ``steps`` slots; the others take the
    beginning of the next row.
    """

    loads: tuple[Load, ...]
    slots: int
    steps: int


def _slots_of_ring(hardware: Hardware, threads: int, loads: tuple[Load, ...]) -> int:
    """Slots that a block's shared memory has room for, where 1024 threads share a multiprocessor."""
    beside = 1024 // threads
    room = min(hardware.shared_bytes_per_block, hardware.shared_bytes_per_multiprocessor // beside - 1024) - SHARED_ASIDE
    return room // (SLOT_BYTES * threads * max(1, len(loads)))


def _ring_vec(program: Program) -> int:
    """Elements of one slot."""
    return SLOT_BYTES // (2 if program.narrow else 4)


def _through_ring(program: Program, vec: int) -> tuple[Load, ...]:
    """The loads that more than one pass needs, of neighbouring elements that no other row reads."""
    first, *_, last = passes_of(program, keep=False).passes
    found = [x for x in first.loads if x in last.loads and x.tensor and x.access.full and not (x.access.mask or x.access.spelled)]
    return tuple(x for x in found if x.access.mode(vec) == "vector" and DTYPES[x.dtype].nbytes * vec == SLOT_BYTES)


def _teams(program: Program, hardware: Hardware) -> dict[int, tuple[int, ...]]:
    """For threads in a block, the sizes of teams whose shared memory holds a row: the smallest ones, then the busiest.

    Of 393,216 columns on an H200, the smallest teams took 8% less time than the busiest.
    """
    found: dict[int, tuple[int, ...]] = {}
    loads = _through_ring(program, _ring_vec(program))
    for threads in RING_THREADS if loads else ():
        resident = hardware.multiprocessors * (1024 // threads)
        smallest: dict[int, int] = {}  # team for each number of steps
        for size in dict.fromkeys(resident // teams for teams in range(min(program.rows, resident), 0, -1)):
            steps = -(-program.cols // (threads * size * _ring_vec(program)))
            if size > 1 and steps + SLOTS_AHEAD <= _slots_of_ring(hardware, threads, loads):
                smallest.setdefault(steps, size)

        def busy(steps: int) -> float:
            """Slots that hold columns, as a share of those of all blocks that the device runs beside each other."""
            size = smallest[steps]
            return program.cols / (steps * threads * size * _ring_vec(program)) * (resident // size * size) / resident

        busiest = sorted(smallest, key=busy, reverse=True)[:1]
        found[threads] = tuple(smallest[steps] for steps in dict.fromkeys([*list(smallest)[:MOST_SIZES], *busiest]))
    return found


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
        return self.apart > 1 and _pairs(self.program)

    @property
    def apart(self) -> int:
        """The distance of a thread's rows: 1 where one load takes them, a strip where loads would not be aligned."""
        return STRIP if self.strip and self.rows > 1 and _beside(self.program) % self.rows else 1

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
        return min(teams, _rows_in_cache(self.task, self.program)) if self.rereads else teams

    @cached_property
    def ring(self) -> _Ring | None:
        """The slots of shared memory that keep the row, if it is kept there."""
        if self.row != "shared":
            return None
        loads = _through_ring(self.program, self.vec)
        return _Ring(loads, _slots_of_ring(self.task.hardware, self.block, loads), self.steps)


def takes(program: Program) -> bool:
    """Programs with reductions along the row."""
    if not program.reductions or not program.reduces_alike or program.contraction or program.moments_of:
        return False
    # Blocks share no rows that lie side by side where elements are stored, too.
    return program.collapses or not program.strided or program.rows >= FEW_STRIPS * STRIP or program.cols < LONG_STRIP


def _rows_in_cache(task: Task, program: Program) -> int:
    """Rows of which the level-2 cache holds all that the last pass reads again; one where it holds none."""
    loads = [x for x in passes_of(program, keep=False).passes[-1].loads if x.tensor]
    of_one = sum(DTYPES[x.dtype].nbytes for x in loads if x.access.full)
    of_all = sum(task.plan.graph.type(x.tensor).nbytes for x in loads if not x.access.full)
    return max(1, int(CACHE_PART * task.hardware.l2_bytes - of_all) // max(1, of_one * program.cols))


def _rereads(task: Task, program: Program, kept: int) -> bool:
    """Whether teams read their rows again from the level-2 cache, which has several of them or is their only way.

    Kept in registers, a row would leave none for another team, which works while this one waits.
    """
    return _rows_in_cache(task, program) > 1 or kept * program.cols > MOST_KEPT_SHARED * 512 * 2 * task.hardware.multiprocessors


def _parts(online: Program) -> int:
    """Blocks of :data:`PART_BYTES` of each operand, for a tensor that is reduced as a whole."""
    widest = max((DTYPES[x.dtype].nbytes for x in online.loads if x.tensor and x.access.full), default=4)
    return -(-online.cols * widest // PART_BYTES)


def _shared(task: Task, online: Program, kept: int) -> list[tuple[str, tuple[int, ...]]]:
    """The ways in which blocks may share a row, with their numbers of blocks; none where one block does for each."""
    chip = task.hardware.multiprocessors
    if online.collapses:
        few = online.rows < 4 * chip * (STRIP if online.strided else 1)
        waves = [_parts(online), *(n * chip for n in (4, 2, 8, 16))] if online.rows == 1 else []
        powers = (1 << n for n in range(1, MOST_BLOCKS.bit_length()))
        return [("last_block", tuple(n for n in dict.fromkeys((*waves, *powers)) if n > 1))] if few else []
    fits = kept * online.cols <= MOST_KEPT_SHARED * 512 and isinstance(online.col_size, int)
    if online.strided or (fits and online.rows >= chip):
        return []
    teams = dict.fromkeys(2 * chip // parts for parts in (2, 1, 3, 4, 6) if 2 * chip // parts > 1)
    if _rereads(task, online, kept):
        held = _rows_in_cache(task, online)  # as many teams fill the chip, of as few blocks as they may have
        teams = sorted(teams, key=lambda size: (size * held < 2 * chip, abs(size * held - 2 * chip)))
    return [*([("cluster", CLUSTERS)] if common.sm(task.hardware) >= 90 else []), *([("team", tuple(teams))] if teams else [])]


def space(task: Task) -> Space:
    decide = partial(InnerReduction, task)
    of_ways = [decide(block=512, row_per="block", reduction="warp_shuffle", vec=1, row="registers", softmax=way) for way in ("online", "two_pass")]
    online, cols, least = of_ways[0].program, of_ways[0].program.cols, min(of.passes.kept for of in of_ways)
    passes = len(passes_of(online, keep=True).passes)
    several = one_pass(online)
    shared = _shared(task, online, least)
    rings = _teams(online, task.hardware) if passes > 1 and "team" in dict(shared) else {}
    through_rings = tuple(dict.fromkeys(size for sizes in rings.values() for size in sizes))
    fixed = isinstance(online.col_size, int)
    # Whether one block keeps a row in its registers; where none does, a pass more is one more read of the memory.
    one_keeps = passes > 1 and fixed and least * cols <= MOST_KEPT * 512 // (STRIP if online.strided else 1)
    # A block of 512 threads finds too few vectors of 16 bytes in such a row. Warps took 3% less of a whole problem's time.
    short = cols <= SHORT_ROW and online.rows >= 16 * task.hardware.multiprocessors
    axes = [
        Axis("block", (512, 256, 1024, 128)),
        Axis("row_per", ("line", "block", "warp") if online.strided else ("warp", "block") if short else ("block", "warp")),
        Axis("reduction", ("warp_shuffle", "shared_tree")),
        common.vector_axis(online),
    ]
    if shared:
        axes += [Axis("blocks", (1,)), Axis("merge", ("one_block",))]
    if several:
        axes.append(Axis(several, ("two_pass", "online") if one_keeps else ("online", "two_pass")))
    if passes > 1:
        axes.append(Axis("row", ("registers", "reread") if fixed else ("reread",)))
    # Where rows lie side by side, a warp that takes more of them reads fewer sectors of memory in part.
    paired = online.strided and _pairs(online)
    rows = (4, 2, 1) if paired else (2, 1, 4) if online.strided else (1,) if of_ways[0].concatenations else (1, 2)
    axes += [Axis("rows", rows), *output_axis(task), *common.launch_axis(task)]

    fewest, most = (n * task.hardware.multiprocessors for n in BLOCKS_A_MULTIPROCESSOR)

    def sharing(how: str, blocks: tuple[int, ...]) -> tuple[Axis, ...]:
        """The axes where so many blocks share a row."""
        row_per = tuple(r for r in ("line", "block") if r == "block" or online.strided)
        chosen = {"rows": (1,), "row_per": row_per, "blocks": blocks, "merge": (how,), "reduction": ("warp_shuffle", "shared_tree") if "line" in row_per else ("warp_shuffle",)}
        if how == "last_block" and not online.strided:
            chosen["block"] = PART_THREADS if blocks[0] == _parts(online) > fewest else BUSIEST_THREADS
        if how == "ring":
            chosen |= {"block": RING_THREADS, "merge": ("team",), "row": ("shared",), "vec": (_ring_vec(online),), "row_per": ("block",), "reduction": ("warp_shuffle",)}
        if how in ("team", "ring"):
            chosen["launch"] = ("plain",)
        crowded = how == "cluster" and online.narrow and least * cols > MOST_KEPT * 512 * CLUSTERS[0]
        if fixed and (crowded or how == "team" and _rereads(task, online, least)):
            chosen["row"] = ("reread", "registers")  # registers hold half types as float32: reading again took 30% less
        chosen[several] = ("online",) if how == "last_block" else ("online", "two_pass")
        return tuple(Axis(a.name, chosen.get(a.name, a.values)) for a in axes)

    threads = ("row_per", "block", "blocks", "vec")
    registers = (*threads, "rows", "row", "softmax", "moments")
    constraints = (
        common.vector_width(online.col_size),
        Constraint("warp_reduction", ("row_per", "reduction"),
            "a warp reduces by shuffles, lines by a tree in shared memory; a block can do both",
            lambda s: s.row_per == "block" or (s.reduction == "warp_shuffle") == (s.row_per == "warp")),
        Constraint("idle_threads", threads, f"half of the threads or more would have no column of {cols}",
            lambda s: s.row_per == "warp" or s.lanes * s.vec < 2 * max(cols, 32 * s.vec)),
        Constraint("kept_registers", registers,
            f"more than {MOST_KEPT} registers a thread to keep the row, or {MOST_KEPT_SHARED} of blocks that share it: it would spill or starve the multiprocessor",
            lambda s: s.held <= (MOST_KEPT_SHARED if s.blocks != 1 else MOST_KEPT)),
        Constraint("block_registers", registers,
            "a block of this many threads would need more registers than a multiprocessor has",
            lambda s: (s.held + 32) * s.block <= task.hardware.registers_per_multiprocessor),
        Constraint("rows_of_warps", ("row_per", "rows"),
            "a warp takes one row; two rows at once are for whole blocks, and more of them for lines",
            lambda s: s.rows == 1 or s.strip or (s.row_per == "block" and s.rows == 2)),
        Constraint("vectors_of_lines", ("row_per", "vec"),
            "neighbouring columns of a line lie apart in memory: there is no vector of them",
            lambda s: not s.strip or s.vec == 1),
        Constraint("rows_for_all", ("row_per", "rows"),
            f"so many rows to a block that {online.rows} rows do not fill the chip",
            lambda s: s.rows == 1 or online.rows >= s.rows * (STRIP if s.strip else 1) * task.hardware.multiprocessors),
        Constraint("shared_memory", ("reduction", "block", "rows", "blocks"),
            "the tree of several rows would need more shared memory than a block has without asking",
            lambda s: s.reduction == "warp_shuffle"
            or 4 * s.block * s.rows * (1 + int(s.blocks != 1 or paired and s.rows > 1)) * _slots(online) <= 48 << 10),
        Constraint("rows_per_warp", ("row_per",), f"a warp for a row of {cols} leaves most of the chip idle",
            lambda s: s.row_per != "warp" or cols <= 8192),
        Constraint("blocks_for_all", (*threads, "merge"),
            "so few blocks that some multiprocessors get none, or so many that merging costs more than they win",
            lambda s: s.merge != "last_block"
            or (fewest <= s.units or s.steps <= 4)
            and (s.units <= most * 256 // s.block or online.rows == 1 and s.units == _parts(online))),
        Constraint("terms_of_a_thread", threads,
            f"a thread would add up more than {MOST_TERMS} terms: more blocks are faster and more exact",
            lambda s: not shared or s.steps * s.vec <= MOST_TERMS),
        Constraint("team_in_block", ("block", "blocks", "merge"),
            "each thread reads what one block of the team found: a team has no more blocks than a block has threads",
            lambda s: s.merge != "team" or s.blocks <= s.block),
        Constraint("ring", ("block", "blocks", "row"),
            "the blocks' shared memory does not hold a row, or a smaller team holds it as well",
            lambda s: s.row != "shared" or s.blocks in rings.get(s.block, ())),
    )
    found = {"one_block": tuple(axes), **{how: sharing(how, counts) for how, counts in shared}}
    if through_rings:
        found["ring"] = sharing("ring", through_rings)

    def keeps(how: str) -> bool:
        """Whether the most blocks that share a row keep it in their registers."""
        return how in found and passes > 1 and fixed and least * cols <= MOST_KEPT_SHARED * 512 * max(dict(shared)[how])

    lead, few = "one_block", online.rows < task.hardware.multiprocessors
    if "ring" in found and several != "moments" and not online.narrow:  # the fastest on an H200, but not for Welford's moments
        lead = "ring"
    elif cols > MOST_KEPT * 512 and not online.strided:  # one block alone would read a long row again, or be too few
        if keeps("cluster"):
            lead = "cluster"
        elif "team" in found and passes > 1:  # of few rows at a time, each is read again from registers or the level-2 cache
            lead = "team"
        elif few:
            lead = next((how for how, _ in shared), lead)
    return Space(decide, found[lead], constraints, tuple(of for how, of in found.items() if how != lead))


def _slots(program: Program) -> int:
    """Elements of 4 bytes that the results of all reductions take."""
    return sum(2 if type_ in (PLACE, WHOLE) else 1 for r in program.reductions for type_ in SPELLED[r.kind].types)


def render(schedule: InnerReduction) -> Rendering:
    program, plan, ring = schedule.program, schedule.passes, schedule.ring
    args = pointers(schedule, schedule.whole)
    emitter = _Emitter(schedule, args)
    body = emitter.body(plan)
    lanes, threads = schedule.lanes, schedule.block
    rows_at_once, beside = threads * emitter.blocks // lanes * emitter.rows, _beside(program)
    row_limit = "rows" if emitter.cols != "cols" else str(program.rows)
    context = {
        "columns": "any number of columns" if emitter.cols == "cols" else program.cols,
        "threads": threads,
        "lanes": lanes,
        "lines": threads // STRIP,
        "rows": emitter.rows,
        "blocks": emitter.blocks,
        "merge": emitter.merge,
        "strip": emitter.strip,
        "least_blocks": 1 if emitter.strip and emitter.rows > 1 else max(1, 1024 // threads) if emitter.rereads else 0,
        "apart": emitter.apart,
        "paired": emitter.paired,
        "tile": emitter.tile,
        "beside": beside,
        "vec": emitter.vec,
        "steps": emitter.steps,
        "parted": emitter.parted,
        "extent": "cols" if emitter.cols == "cols" else "rows",
        "row_count": program.rows,
        "row_limit": row_limit,
        "rows_used": emitter.strip or lanes < threads or emitter.rows > 1 or emitter.merge == "last_block",
        "row_used": bool(schedule.concatenations) or emitter.merge == "last_block" or by_row((*program.loads, *program.steps, *program.stores)),
        "units": f"{row_limit} / {beside} * {-(-beside // emitter.tile)}" if emitter.paired else row_limit if rows_at_once == 1
        else f"({row_limit} + {rows_at_once - 1}) / {rows_at_once}",
        "counters": emitter.counters,
        "most_teams": emitter.teams,
        "kept_values": plan.kept > 0,
        "several_passes": len(plan.passes) > 1,
        "ring": ring,
        "interleaved": emitter.interleaved,
        "shared_bytes": ring.slots * SLOT_BYTES * threads * len(ring.loads) if ring else 0,
        "body": body,
    }
    return rendering(schedule, [*args, *emitter.workspace], context)


def _follows_row(load: Load) -> bool:
    """Whether the tensor is read at another place for each row."""
    return load.access.takes_row


class _Emitter:
    """Spells the passes of one kernel. With several rows to a block, a row value is an array with one for each."""

    def __init__(self, schedule: InnerReduction, args: list[Argument]) -> None:
        task, program, plan, ring = schedule.task, schedule.program, schedule.passes, schedule.ring
        self.program, self.concatenations, self.arguments, self.ring = program, schedule.concatenations, args, ring
        self.sources = sources(args) | {one.load.tensor: f"{one.load.tensor}_part" for one in self.concatenations}
        self.vec, self.rows, self.threads, self.blocks, self.merge = schedule.vec, schedule.rows, schedule.block, schedule.blocks, schedule.merge
        self.all_lanes, self.lanes = schedule.lanes, schedule.lanes // schedule.blocks
        self.cols = str(program.cols) if isinstance(program.col_size, int) else "cols"
        self.limit = "rows" if self.cols != "cols" else str(program.rows)
        self.steps, self.keeps = schedule.steps, schedule.keeps
        self.interleaved = ring is not None and len(plan.passes) == 2 and not (plan.row_loads or plan.row_maps)
        self.store_vector = "stream_vector" if common.streams(task) else "store_vector"
        self.once = common.read_once(task, [x for x in program.loads if not x.access.spelled])
        self.last_pass = {x.name: of.number for of in plan.passes for x in of.loads}
        self.exact = self.steps * self.all_lanes * self.vec == program.cols and self.cols != "cols"
        self.strip, self.apart, self.paired = schedule.strip, schedule.apart, schedule.paired
        self.tile = STRIP * self.rows - 1  # rows of a block where its pairs overlap those of the next
        self.how = "shuffle" if schedule.reduction == "warp_shuffle" else "lines" if self.strip else "tree"
        self.row_level = {x.name for x in plan.row_loads if _follows_row(x)}
        self.row_level |= {n for r in program.reductions for n in r.names}
        self.row_level |= {s.name for s in program.steps if isinstance(s, (Map, Load)) and s.level == ROW}
        self.sites = 0
        self.parted, self.teams, self.rereads = schedule.parted, schedule.teams, schedule.rereads
        self.counters, self.workspace = "", []
        if self.merge in ("team", "last_block"):
            self._reserve()

    def _reserve(self) -> None:
        """Room in the workspace: a counter of arrivals for each row, then what each block finds; for teams, twice."""
        size, team = self.program.row_size, self.merge == "team"
        rows = str(self.teams) if team else "rows" if not isinstance(size, int) else str(size)
        self.counters = rows
        self.room = f"({rows} + 1) / 2 * 2" if rows == "rows" else str((int(rows) + 1) // 2 * 2)
        wide = any(type_ in (PLACE, WHOLE) for _, type_, _ in self._results(self.program.reductions))
        self.part = f"{(2 if wide else 1) * (2 if team else 1) * self.blocks} * {rows}"
        parts = sum(len(r.names) for r in self.program.reductions)
        self.parts = 0
        size = f"({rows} + 1) // 2 * 2 + {parts} * {self.part}"
        self.workspace = [Argument("workspace", "workspace", size=size)]

    def body(self, plan: Passes) -> list[str]:
        """The kernel's statements behind those that say which row a thread works on."""
        lines = [*self._own_columns(), *self._own_parts(), *self.row_values(plan.row_loads, plan.row_maps)]
        if self.interleaved:
            return [*self._requests(), *self._interleaved(plan, lines)]
        for value in dict.fromkeys(k for s in plan.passes for k in s.keeps):
            lines.append(f"{self._type(value)} {value}_kept{f'[{self.rows}]' if self.rows > 1 else ''}[{self.steps}][{self.vec}];")
        for of in plan.passes:
            lines += ["", *self._one_pass(of)]
        if self.merge == "team":
            lines = block(f"for (long long row = team; row < {self.limit}; row += teams)", lines)
        return [*self._requests(), *lines] if self.ring else lines

    def _own_columns(self) -> list[str]:
        """The columns of a block that takes a part of its row: whole steps of its threads, one after the other. The columns
        in which pairs of rows begin at a thread's own row."""
        if self.paired:
            place = next(x.access for x in self.program.loads if x.tensor)
            begin = replace(place, offset=place.offset.subs(self.program.col_loops[0].symbol, 0)).index("first_row")
            return [
                "// Pairs begin at multiples of 4 bytes: in every second column, that is one row earlier.",
                f"const int odd = ({begin}) % 2;",
            ]
        if not self.parted:
            return []
        step = self.threads * self.vec
        if self.cols == "cols":
            whole = step * self.blocks
            part = f"const {self.integer} part = (cols + {whole - 1}) / {whole} * {step};"
        else:
            part = f"constexpr {self.integer} part = {self.steps * step};"
        limit = self.cols if self.cols == "cols" else f"{self.cols}LL"
        return [
            f"{part}  // columns of a block",
            f"const {self.integer} first = rank * part + threadIdx.x{f' * {self.vec}' if self.vec > 1 else ''};",
            f"const {self.integer} end = min({limit}, (rank + 1LL) * part);",
        ]

    def _own_parts(self) -> list[str]:
        """The operands of concatenations that hold the row."""
        lines = []
        for one in self.concatenations:
            names, (*parts, last) = [self.sources[one.load.tensor], *one.numbers], one.parts
            lines += ["", f"// The operand of {one.load.name} that holds the row."]
            lines.append(f"const {DTYPES[one.load.dtype].memory}* {names[0]} = {self.sources[last.tensor]};")
            lines += [f"long long {name} = {number};" for name, number in zip(one.numbers, last.numbers)]
            for at, part in enumerate(parts):
                own = [f"{name} = {value};" for name, value in zip(names, [self.sources[part.tensor], *part.numbers])]
                lines.append(f"{'else ' if at else ''}if ({part.condition}) {{ {' '.join(own)} }}")
        return lines

    def _interleaved(self, plan: Passes, row_values: list[str]) -> list[str]:
        """The rows of a team, where the pass that stores a row reduces the next one: computing and copying overlap."""
        first, last = plan.passes
        reductions = [self._reduction(r, False) for r in first.reductions]
        results = self._results(first.reductions)
        row = [*row_values, *(f"{type_} {name} = next_{name};" for name, type_, _ in results)]
        row += [*(f"next_{name} = {start};" for name, _, start in results), *self._behind(first, reductions)]
        first_row = [self._first_wait, self._take_call("team")]
        return [
            f"// {describe(first, ())}: one vector of this thread.",
            *self._columns(first, reductions),
            *(f"{type_} next_{name} = {start};" for name, type_, start in results),
            "#pragma unroll",
            *block(f"for (int step = 0; step < {self.ring.steps}; ++step)", first_row),
            *block(f"for (long long row = team; row < {self.limit}; row += teams)", [*row, "", *self._one_pass(last)]),
        ]

    def _take_call(self, row: str) -> str:
        """The call that reduces one vector of that row."""
        results = self._results(self.program.reductions)
        return f"take({', '.join([row, 'step', *(f'next_{name}' for name, _, _ in results)])});"

    def _requests(self) -> list[str]:
        """The ring of slots, and the copies that fill it before the first row."""
        ring = self.ring
        copies = [
            f"{symbol('copy_async')}(place + {_slot('slot', n, ring)} * {SLOT_BYTES * self.threads}, {self.sources[x.tensor]} + {x.access.index()});"
            for n, x in enumerate(ring.loads)
        ]
        step = [self._column(False), *self._within(copies)]
        return [
            "extern __shared__ __align__(16) unsigned char shared[];",
            f"auto slots = reinterpret_cast<Vector<{DTYPES[ring.loads[0].dtype].memory}, {self.vec}>*>(shared) + threadIdx.x;",
            f"const {symbol('uint32_t')} place = {symbol('shared_address')}(slots);",
            f"int {'seen = 0, ' if self.interleaved else ''}head = 0;",
            "// Copies a vector of this thread into a free slot.",
            *block("const auto request = [&](const int slot, const long long row, const int step)", [*block(f"if (row < {self.limit})", step), f"{symbol('copy_commit')}();"])[:-1],
            "};",
            f"for (int slot = 0; slot < {ring.slots}; ++slot) request(slot, team + slot / {ring.steps} * teams, slot % {ring.steps});",
        ]

    def _one_pass(self, of: Pass) -> list[str]:
        """The lines of one pass, behind a comment that says what it does."""
        reductions = [self._reduction(r, r.arg in (*of.keeps, *of.held), self._in_order(of, r)) for r in of.reductions]
        stored = tuple(s.tensor for s in (*of.stores, *of.row_stores))
        lines = [f"// {describe(of, stored)}."]
        lines += [line for r in reductions for line in r.before]
        lines += self._columns(of, reductions)
        return lines + self._behind(of, reductions)

    def _behind(self, of: Pass, reductions: list[_Lines]) -> list[str]:
        """The lines behind the columns of a pass: what its reductions find, and the row values made of it."""
        lines = [line for r in reductions for line in r.after]
        if self.paired:
            lines += self._met(of.reductions)
        if of.reductions and self.blocks > 1:
            lines += self._exchange(of.reductions)
        lines += self.row_values((), of.row_maps)
        stores = [store_statement(s, written(s, self.arguments), value=self._at(s.arg)) for s in of.row_stores]
        if stores:
            first = "lane == 0" if self.merge != "last_block" else f"threadIdx.x < {STRIP}" if self.strip else "threadIdx.x == 0"
            inside = " && inside" if self.strip and self.apart == 1 else ""
            lines += block(f"if ({first}{inside})", self._each_row(stores, of.row_stores, guard=True))
        return lines

    def _exchange(self, reductions: Sequence[Reduce]) -> list[str]:
        """Merge what the blocks of a row found, in a fixed order: each thread reads a share, and the block reduces again."""
        found = self._results(reductions)
        again = [f"{self._call(r)}({', '.join(r.names)});" for r in reductions]
        if self.merge == "cluster":
            lines = [f"__shared__ {type_} {name}_partial;" for name, type_, _ in found]
            lines += block("if (threadIdx.x == 0)", [f"{name}_partial = {name};" for name, _, _ in found])
            lines.append(f"{symbol('cluster_sync')}();")
            for name, _, start in found:
                lines.append(f"{name} = threadIdx.x < {self.blocks} ? {symbol('cluster_partial')}({name}_partial, threadIdx.x) : {start};")
            return [*lines, *again]
        if self.merge == "team":
            lines = [self._partial(name, type_) for name, type_, _ in found]
            lines += block("if (threadIdx.x == 0)", [f"{name}_partial[rank] = {name};" for name, _, _ in found])
            lines.append(f"{symbol('team_barrier')}(arrivals, ++round * {self.blocks});")
            for name, _, start in found:
                lines.append(f"{name} = threadIdx.x < {self.blocks} ? __ldcg({name}_partial + threadIdx.x) : {start};")
            return [*lines, *again]
        lines = [self._partial(name, type_) for name, type_, _ in found]
        rank = f"blockIdx.x % {self.blocks}"
        first = f"threadIdx.x < {STRIP} && inside" if self.strip else "threadIdx.x == 0"
        lines += block(f"if ({first})", [f"{name}_partial[({rank}) * rows] = {name};" for name, _, _ in found])
        unit = f"blockIdx.x / {self.blocks}"
        lines += [
            "__shared__ bool last;",
            "__threadfence();",
            "__syncthreads();",
            f"if (threadIdx.x == 0) last = atomicAdd(reinterpret_cast<unsigned*>(workspace) + {unit}, 1u) == {self.blocks - 1};",
            "__syncthreads();",
            "if (!last) return;",
            "__threadfence();",
        ]
        lines += [f"{name} = {start};" for name, _, start in found]
        own = f"threadIdx.x / {STRIP}" if self.strip else "threadIdx.x"
        merges = []
        for r in reductions:
            others = [f"__ldcg({name}_partial + other * rows)" for name in r.names]
            merges.append(SPELLED[r.kind].merged(r.names, others))
        return [*lines, *block(f"for (int other = {own}; other < {self.blocks}; other += {self.lanes})", merges), *again]

    def _partial(self, name: str, type_: str) -> str:
        """The statement that finds the room of one result in the workspace: of the first block of a row."""
        at = f"workspace + {self.room}" + (f" + {self.parts} * {self.part}" if self.parts else "")
        self.parts += 1
        start = f"reinterpret_cast<{type_}*>({at})" if type_ != "float" else at
        # Teams write to one half while slower blocks may still read the other.
        place = f"(team * 2 + round % 2) * {self.blocks}" if self.merge == "team" else "row"
        return f"{type_}* {name}_partial = {start} + {place};"

    def row_values(self, loads: Sequence[Load], maps: Sequence[Map | Load]) -> list[str]:
        """Values of the whole row, from memory or from other values of the row."""
        texts = {x.name: load_value(x, self.sources, "row", "0") for x in loads} | {m.name: spell(m, "cuda", self._at) for m in maps}
        own = [x for x in (*loads, *maps) if self.rows > 1 and x.name in self.row_level]
        same = [f"const {self._type(x.name)} {x.name} = {texts[x.name]};" for x in (*loads, *maps) if x not in own]
        declared = [f"{self._type(x.name)} {x.name}[{self.rows}];" for x in own]
        return [*same, *declared, *self._each_row([f"{x.name}[r] = {texts[x.name]};" for x in own], own)]

    @property
    def _there(self) -> str:
        """The test of one of a thread's rows, where not all may be there."""
        return "if (inside)" if self.vectors else f"if (first_row + r{'' if self.apart == 1 else f' * {self.apart}'} < rows)"

    @property
    def vectors(self) -> bool:
        """Whether a thread's rows lie side by side, and are all there or none."""
        return self.strip and self.apart == 1

    def _type(self, name: str) -> str:
        return value_type(self.program.dtypes[name])

    def _at(self, name: str) -> str:
        return f"{name}[r]" if self.rows > 1 and name in self.row_level else name

    def _kept(self, name: str) -> str:
        return f"{name}_kept{'[r]' if self.rows > 1 else ''}[step]{'[j]' if self.vec > 1 else '[0]'}"

    def _each_row(self, lines: list[str], steps: Sequence[Step] = (), guard: bool = False) -> list[str]:
        """The lines of these steps for each row of the block; with ``guard``, for those that there are. Others read the last row."""
        if self.rows == 1 or not lines:
            return lines
        number = "first_row + r" if self.apart == 1 else f"first_row + r * {self.apart}"
        if self.paired:
            head = [f"const int number = inner + r / 2 * {2 * STRIP} + r % 2;", "if (number >= end) break;", "const long long row = first_row - begin + number;"]
        elif self.vectors:
            head, guard = ["const long long row = first_row + r;"], False
        elif guard:
            head = [f"const long long row = {number};", "if (row >= rows) break;"]
        else:
            head = [f"const long long row = {number} < rows ? {number} : rows - 1;"]
        used = head if guard or by_row(steps) else []
        return ["#pragma unroll", *block(f"for (int r = 0; r < {self.rows}; ++r)", [*used, *lines])]

    def _pairs_of_rows(self, of: Pass, reductions: list[_Lines]) -> list[str]:
        """The loop over the columns of a thread whose loads take two rows each. It takes two columns at a time: one of
        them has its pairs one row earlier."""
        loads, step, beside = [x for x in of.loads if x.tensor], 2 * self.all_lanes, self.program.row_loops[-1]
        # The first of the rows side by side, in that column.
        starts = {x: replace(x.access, offset=x.access.offset.subs(beside.symbol, 0)).index("first_row") for x in loads}
        pairs = [f"const auto {x.name}_pair = {symbol('load_vector')}<2>({self.sources[x.tensor]} + {starts[x]} + place);" for x in loads]
        inner = [f"const {self._type(x.name)} {x.name} = {loaded(f'{x.name}_pair.v[j]', x.dtype)};" for x in loads]
        inner += [f"const {self._type(x.name)} {x.name} = {load_value(x, self.sources, 'row', 'col')};" for x in of.loads if not x.tensor]
        inner += [f"const {value_type(m.dtype)} {m.name} = {spell(m, 'cuda', self._at)};" for m in of.maps]
        inner += [line for r in reductions for line in r.inner]
        rows = [
            f"const int number = inner + p * {2 * STRIP};",
            f"const int place = (number < {beside.extent} + earlier ? number : number % 2) - earlier;",
            *pairs, "#pragma unroll", *block("for (int j = 0; j < 2; ++j)", [f"const int r = earlier * {self.rows} + p * 2 + j;", *inner]),
        ]
        column = ["const long long col = first + (odd ^ earlier);", "#pragma unroll", *block(f"for (int p = 0; p < {self.rows // 2}; ++p)", rows)]
        both = ["#pragma unroll", *block("for (int earlier = 0; earlier < 2; ++earlier)", column)]
        ahead = max(1, BYTES_AHEAD // (2 * self.rows * 2 * len(loads)))
        return [f"#pragma unroll {ahead}", *block(f"for (long long first = lane * 2; first < {self.cols}; first += {step})", both)]

    def _met(self, reductions: Sequence[Reduce]) -> list[str]:
        """Each row's results, from both kinds of pairs."""
        lines = []
        for r in reductions:
            others = [f"{symbol('found_earlier')}<{self.rows}>({name}, r)" for name in r.names]
            if len(others) > 1 or SPELLED[r.kind].merge.count("{1}") > 1:
                lines += [f"const auto {name}_other = {text};" for name, text in zip(r.names, others)]
                others = [f"{name}_other" for name in r.names]
            lines.append(SPELLED[r.kind].merged([self._at(name) for name in r.names], others))
        return ["#pragma unroll", *block(f"for (int r = 0; r < {self.rows}; ++r)", lines)]

    def _columns(self, of: Pass, reductions: list[_Lines]) -> list[str]:
        """The loop over the columns of a thread."""
        if self.paired:
            return self._pairs_of_rows(of, reductions)
        shared, own = [], []
        for load in of.loads:
            (own if _follows_row(load) else shared).append(load)
        outer, inner = common.load_statements(shared, self.vec, self.sources)
        across = self.rows if self.vectors else 1
        vectors = [x for x in own if across > 1 and x.level != ROW and x.tensor and not x.access.mask and x.access.mode(across, "row") == "vector"]
        ringed = [(n, x) for n, x in enumerate(self.ring.loads) if x in own] if self.ring else []
        # Loads past the cache stay behind the stores in front of them: beside stores, too few would be in flight.
        once = {x.name for x in own if x.name in self.once and self.last_pass[x.name] == of.number and not of.stores}
        single = [x for x in own if x not in vectors and (not self.ring or x not in self.ring.loads)]
        row_outer, row_inner = common.load_statements(single, self.vec, self.sources, once)
        row_outer += [f"const auto {x.name}_vector = slots[{_slot('slot', n, self.ring)} * {self.threads}];" for n, x in ringed]
        row_inner += [f"const {self._type(x.name)} {x.name} = {loaded(f'{x.name}_vector.v[j]', x.dtype)};" for _, x in ringed]
        outer += [f"const auto {x.name}_rows = {symbol('load_vector')}<{across}>({self.sources[x.tensor]} + {x.access.index('first_row')});" for x in vectors]
        row_inner += [f"const {self._type(x.name)} {x.name} = {loaded(f'{x.name}_rows.v[r]', x.dtype)};" for x in vectors]
        inner += row_inner
        inner += [f"const {self._type(name)} {name} = {self._kept(name)};" for name in of.held]
        before_maps, maps = common.map_statements(of, self.vec, self._at)
        row_outer, inner = row_outer + before_maps, inner + maps
        inner += [f"{self._kept(name)} = {name};" for name in of.keeps]
        inner += [line for r in reductions for line in r.inner]
        together = [s for s in of.stores if across > 1 and s.access.mode(across, "row") == "vector"]
        gather, store_inner, store = common.store_statements([s for s in of.stores if s not in together], self.vec, self.arguments, self.store_vector)
        outer += [f"Vector<{DTYPES[s.dtype].memory}, {across}> {s.tensor}_result;" for s in together]
        inner += [f"{s.tensor}_result.v[r] = {store_value(s)};" for s in together]
        behind = [f"{self.store_vector}<{across}>({written(s, self.arguments)} + {s.access.index('first_row')}, {s.tensor}_result);" for s in together]
        if not (inner or outer or row_outer or store_inner or store):
            return []
        if self.vec > 1:
            inner = ["#pragma unroll", *block(f"for (int j = 0; j < {self.vec}; ++j)", inner + store_inner)]
        elif self.rows > 1:
            store = block(self._there, store_inner) if store_inner else []
        else:
            inner += block("if (inside)", store_inner) if self.strip and store_inner else store_inner
        if self.rows > 1 and self.vec > 1 and store:
            store = block(self._there, store)
        rows = row_outer + [x for r in reductions for x in r.outer] + gather + inner
        rows += [x for r in reductions for x in r.close] + store
        steps = (*shared, *single, *of.maps, *(s for s in of.stores if s not in together))
        body = outer + self._each_row(rows, steps) + (block("if (inside)", behind) if behind else [])
        column = by_col((*steps, *vectors, *together))
        if self.ring:
            return self._ring_loop(of, body, column or not self.exact)
        if self.keeps:
            return self._stepped(self._within(body), "#pragma unroll", False, column or not self.exact)
        return self._loop(body, of.number % 2 == 1, column)

    @property
    def _first_wait(self) -> str:
        """The statement with which the pass that reads a row first waits for the copy of a step."""
        return f"{symbol('copies_wait')}<{self.ring.slots - 1}>({self.ring.slots - 1} - step);"

    def _ring_loop(self, of: Pass, body: list[str], takes_column: bool) -> list[str]:
        """The body for each slot of the row: the first pass waits for the copies, the last one requests those of another row."""
        ring = self.ring
        body = self._within(body)
        if self.interleaved and not of.stores:
            results = self._results(self.program.reductions)
            parameters = ["const long long row", "const int step", *(f"{type_}& {name}" for name, type_, _ in results)]
            column = [self._column(False)] if takes_column else []
            body = [*column, "const int slot = seen;", *body, _moved("seen", ring)]
            return [*block(f"const auto take = [&]({', '.join(parameters)})", body)[:-1], "};"]
        if of.stores:
            # The slot that is free now takes the vector that comes as many steps later as there are slots.
            ahead = f"request(slot, row + (step + {ring.slots}) / {ring.steps} * teams, (step + {ring.slots}) % {ring.steps});"
            body = ["const int slot = head;", *body, ahead, _moved("head", ring)]
            if self.interleaved:
                # As many copies may be on their way as the ring has slots beyond those of one row.
                body += block(f"if (row + teams < {self.limit})", [f"{symbol('copy_wait')}<{ring.slots - ring.steps}>();", self._take_call("row + teams")])
        else:
            body = [f"const int slot = (head + step) % {ring.slots};", *body]
        if of.number == 0:
            body = [self._first_wait, *body]
        return self._stepped(body, "#pragma unroll", False, takes_column)

    def _within(self, body: list[str]) -> list[str]:
        """The body where there is a column: only a thread's last step may have none, so loads of the others need no test."""
        if self.exact:
            return body
        sure = f"step < {self.steps - 1} || " if self.steps > 1 and self.cols != "cols" else ""
        return block(f"if ({sure}col < {self.cols})", body)

    def _stepped(self, body: list[str], unroll: str, backwards: bool, takes_column: bool) -> list[str]:
        """The body for as many vectors as each thread has."""
        if takes_column:
            body = [self._column(backwards), *body]
        return [unroll, *block(f"for (int step = 0; step < {self.steps}; ++step)", body)]

    def _column(self, backwards: bool) -> str:
        """The statement that finds the column of a step."""
        number = f"{f'({self.steps - 1} - step)' if backwards else 'step'} * {self.all_lanes} + lane"
        integer = "long long" if self.strip else "int"  # offsets of columns that lie apart are then immediate, and take no registers
        return f"const {integer} col = {number if self.vec == 1 else f'({number}) * {self.vec}'};"

    def _loop(self, body: list[str], backwards: bool, takes_column: bool) -> list[str]:
        """The body for each vector of a thread, in the order of memory or against it: the caches have its own last ones."""
        stride, integer = self.all_lanes * self.vec, self.integer
        many = self.merge == "last_block" and not (self.strip or self.parted) and self.steps >= LONG_STEPS
        unroll = f"#pragma unroll {self._ahead if self.strip and self.rows > 1 else 16 if many else 4 if self.rereads else max(4, 8 // self.vec)}"
        if self.parted:
            return [unroll, *block(f"for ({integer} col = first; col < end; col += {self.threads * self.vec})", body)]
        if self.exact and integer == "int":
            return self._stepped(body, unroll, backwards, takes_column)
        first = "lane" if self.vec == 1 else f"lane * {self.vec}"
        if integer != "int" and self.vec > 1:
            first = f"lane * {self.vec}LL"
        loop = f"for ({integer} col = {first}; col < {self.cols}; col += {stride})"
        if backwards:
            last = f"{first} < {self.cols} ? {first} + ({self.cols} - 1 - {first}) / {stride} * {stride} : -1"
            loop = f"for ({integer} col = {last}; col >= 0; col -= {stride})"
        return [unroll, *block(loop, body)]

    @property
    def integer(self) -> str:
        """The C type of a column's number."""
        beyond = self.program.cols + self.all_lanes * self.vec
        return "long long" if self.program.wide or beyond > _INT_MAX else "int"

    @property
    def _ahead(self) -> int:
        """Columns of a thread with several rows whose loads are in flight together."""
        read = [x for x in self.program.loads if x.tensor]
        whole = [x for x in read if x.access.full] or read  # each element of a stack is one of its operands
        return max(1, BYTES_AHEAD // (sum(DTYPES[x.dtype].nbytes for x in whole) * self.rows))

    def _call(self, r: Reduce) -> str:
        """The function that reduces over a block, at a site of its own."""
        self.sites += 1
        rows = f", {self.rows * (2 if self.paired else 1)}" if self.rows > 1 else ""
        return f"{symbol(f'reduce_{r.kind}_{self.how}')}<{self.lanes}, {self.sites}{rows}>"

    def _in_order(self, of: Pass, r: Reduce) -> bool:
        """Whether each thread meets the places of values one after the other."""
        return of.number % 2 == 0 and any(x.name == r.args[-1] and not x.tensor and x.access.index() == "col" for x in of.loads)

    def _reduction(self, r: Reduce, kept: bool, in_order: bool = False) -> _Lines:
        combine, results = SPELLED[r.kind], self._results([r])
        take, starts = combine.take, [start for _, _, start in results]
        if in_order and combine.in_order:
            first = "lane * 2 + odd" if self.paired else "first" if self.parted else "lane" if self.vec == 1 else f"lane * {self.vec}"
            take, starts = combine.in_order, [*starts[:-1], first]
        before = [self._declared(name, type_, start) for (name, type_, _), start in zip(results, starts)]
        own = [self._at(name) for name in r.names]
        after = [f"{self._call(r)}({', '.join(r.names)});"]
        if take:
            return _Lines(before, [], [take.format(*own, *r.args)], [], after)
        if kept and r.kind == "softmax":
            # The whole row is in registers: its maximum first, then one exponential for each column.
            return _Lines(before, [], [f"{own[0]} = fmaxf({own[0]}, {r.arg});"], [], [*self._sum_kept(r.arg, *own), *after])
        chunk = f"{r.arg}_chunk"
        inner = f"{chunk}[{'j' if self.vec > 1 else 0}] = {r.arg};"
        function = {"softmax": "merge_chunk", "moments": "moments_chunk"}[r.kind]
        close = f"{symbol(function)}<{self.vec}>({', '.join(own)}, {chunk});"
        return _Lines(before, [f"float {chunk}[{self.vec}];"], [inner], [close], after)

    def _results(self, reductions: Sequence[Reduce]) -> list[tuple[str, str, str]]:
        """Each result with its C type and that of no values. Places fit an ``int`` where columns do."""
        found = [part for r in reductions for part in zip(r.names, SPELLED[r.kind].types, SPELLED[r.kind].starts)]
        if self.integer != "int":
            return found
        return [(name, "int", str(_INT_MAX)) if type_ == PLACE else (name, type_, start) for name, type_, start in found]

    def _declared(self, name: str, type_: str, start: str) -> str:
        if self.rows == 1:
            return f"{type_} {name} = {start};"
        starts = [start] * self.rows
        if self.paired:  # of each row, by the columns where its pair begins at the thread's own row, and by the others
            starts += [start.replace("+ odd", "+ 1 - odd")] * self.rows
        return f"{type_} {name}[{len(starts)}] = {{{', '.join(starts)}}};"

    def _sum_kept(self, arg: str, largest: str, total: str) -> list[str]:
        """A thread's sum of exponentials below its own maximum, over the columns that it keeps."""
        lines = [f"{total} += expf({self._kept(arg)} - {symbol('finite_max')}({largest}));"]
        if self.vec > 1:
            lines = ["#pragma unroll", *block(f"for (int j = 0; j < {self.vec}; ++j)", lines)]
        lines = self._each_row(lines)
        if not self.exact:
            lines = [self._column(False), *self._within(lines)]
        return ["#pragma unroll", *block(f"for (int step = 0; step < {self.steps}; ++step)", lines)]


def _slot(number: str, load: int, ring: _Ring) -> str:
    """The index of a load's vectors in the ring."""
    return number if len(ring.loads) == 1 else f"({number} * {len(ring.loads)} + {load})"


def _moved(cursor: str, ring: _Ring) -> str:
    return f"{cursor} = {cursor} + 1 == {ring.slots} ? 0 : {cursor} + 1;"


@dataclass(frozen=True)
class _Lines:
    """The statements of one reduction, by where they stand: around the columns, before and in the loop over a vector."""

    before: list[str]
    outer: list[str]
    inner: list[str]
    close: list[str]
    after: list[str]


TEMPLATE = Template(
    name="inner_reduction", device_type="cuda", file="cuda/inner_reduction/inner_reduction.cu.j2", takes=takes,
    schedule=InnerReduction, space=space, render=render, in_place=True
)  # fmt: skip
