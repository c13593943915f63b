"""The space of reductions along rows in CUDA: how many threads take a row, and which blocks share one."""

from __future__ import annotations

from functools import partial

from kgen.codegen.arguments import output_axis
from kgen.codegen.c_printer import one_pass
from kgen.codegen.combines import PLACE, SPELLED, WHOLE
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Task
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.devices.hardware import Hardware
from kgen.templates.cuda import common
from kgen.templates.cuda.inner_reduction.schedule import (
    SLOT_BYTES,
    STRIP,
    InnerReduction,
    rows_in_cache,
    slots_of_ring,
    takes_pairs,
    through_ring,
)

#: Registers that a thread may spend on the kept row before occupancy falls too far. Blocks that share a row may spend
#: more, because their other choice is to read it again.
MOST_KEPT, MOST_KEPT_SHARED = 64, 96

SHORT_ROW = 1024  # columns; up to it, a warp takes a row
FEW_STRIPS, LONG_STRIP = 16, 1 << 16  # strips of rows that leave most of a device idle, and columns that make them long

CLUSTERS = (8, 4, 2)  # blocks; a cluster of more does not run on every device
MOST_BLOCKS = 2048  # blocks that share a row by way of the workspace
MOST_TERMS = 16384  # terms of a sum that a thread adds up, where blocks may share a row
BLOCKS_A_MULTIPROCESSOR = (2, 24)  # the least and the most that a split puts on each, where it can choose

#: Threads of blocks that share a row by way of the workspace. The first two give about twice as many blocks as run at a
#: time. That took 0.6% less time than once as many (8 GB on an H200).
BUSIEST_THREADS = (1024, 256, 512, 128)
#: Bytes of each operand that a block takes of a tensor that is reduced as a whole, one after the other. Blocks of so
#: much, more than run at a time, took 0.8% less of 8 GB than whole waves of blocks that take turns (H200).
PART_BYTES = 128 << 10
PART_THREADS = (512, 1024, 256, 128)
RING_THREADS = (512, 1024)  # threads of blocks that keep rows in shared memory; fewer were slower on an H200
SLOTS_AHEAD = 3  # slots of a ring that take the next row while a team waits for its slowest block
MOST_SIZES = 3  # sizes of teams that are tried for each number of threads, beside the busiest


def takes(program: Program) -> bool:
    """Programs with reductions along the row."""
    if not program.reductions or not program.reduces_alike or program.contraction or program.moments_of:
        return False
    # Blocks share no rows that lie side by side where elements are stored, too.
    return program.collapses or not program.strided or program.rows >= FEW_STRIPS * STRIP or program.cols < LONG_STRIP


def space(task: Task) -> Space:
    decide = partial(InnerReduction, task)
    of_ways = [
        decide(block=512, row_per="block", reduction="warp_shuffle", vec=1, row="registers", softmax=way)
        for way in ("online", "two_pass")
    ]
    online, cols, least = of_ways[0].program, of_ways[0].program.cols, min(of.passes.kept for of in of_ways)
    passes = len(passes_of(online, keep=True).passes)
    several = one_pass(online)
    shared = _shared(task, online, least)
    rings = _teams(online, task.hardware) if passes > 1 and "team" in dict(shared) else {}
    through_rings = tuple(dict.fromkeys(size for sizes in rings.values() for size in sizes))
    fixed = isinstance(online.col_size, int)
    # Whether one block keeps a row in its registers; where none does, a pass more is one more read of the memory.
    one_keeps = passes > 1 and fixed and least * cols <= MOST_KEPT * 512 // (STRIP if online.strided else 1)
    # A block of 512 threads finds too few vectors of 16 bytes in such a row. Warps took 3% less of a whole problem's
    # time.
    short = cols <= SHORT_ROW and online.rows >= 16 * task.hardware.multiprocessors
    axes = [
        Axis("block", (512, 256, 1024, 128)),
        Axis(
            "row_per",
            ("line", "block", "warp") if online.strided else ("warp", "block") if short else ("block", "warp"),
        ),
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
    paired = online.strided and takes_pairs(online)
    rows = (4, 2, 1) if paired else (2, 1, 4) if online.strided else (1,) if of_ways[0].concatenations else (1, 2)
    axes += [Axis("rows", rows), *output_axis(task), *common.launch_axis(task)]

    fewest, most = (n * task.hardware.multiprocessors for n in BLOCKS_A_MULTIPROCESSOR)

    def sharing(how: str, blocks: tuple[int, ...]) -> tuple[Axis, ...]:
        """The axes where ``blocks`` blocks share a row."""
        row_per = tuple(r for r in ("line", "block") if r == "block" or online.strided)
        chosen = {
            "rows": (1,),
            "row_per": row_per,
            "blocks": blocks,
            "merge": (how,),
            "reduction": ("warp_shuffle", "shared_tree") if "line" in row_per else ("warp_shuffle",),
        }
        if how == "last_block" and not online.strided:
            chosen["block"] = PART_THREADS if blocks[0] == _parts(online) > fewest else BUSIEST_THREADS
        if how == "ring":
            chosen |= {
                "block": RING_THREADS,
                "merge": ("team",),
                "row": ("shared",),
                "vec": (_ring_vec(online),),
                "row_per": ("block",),
                "reduction": ("warp_shuffle",),
            }
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
        Constraint(
            "warp_reduction",
            ("row_per", "reduction"),
            "a warp reduces by shuffles, lines by a tree in shared memory; a block can do both",
            lambda s: s.row_per == "block" or (s.reduction == "warp_shuffle") == (s.row_per == "warp"),
        ),
        Constraint(
            "idle_threads",
            threads,
            f"half of the threads or more would have no column of {cols}",
            lambda s: s.row_per == "warp" or s.lanes * s.vec < 2 * max(cols, 32 * s.vec),
        ),
        Constraint(
            "kept_registers",
            registers,
            f"more than {MOST_KEPT} registers a thread to keep the row, or {MOST_KEPT_SHARED} of blocks that share it: "
            "it would spill or starve the multiprocessor",
            lambda s: s.held <= (MOST_KEPT_SHARED if s.blocks != 1 else MOST_KEPT),
        ),
        Constraint(
            "block_registers",
            registers,
            "a block of this many threads would need more registers than a multiprocessor has",
            lambda s: (s.held + 32) * s.block <= task.hardware.registers_per_multiprocessor,
        ),
        Constraint(
            "rows_of_warps",
            ("row_per", "rows"),
            "a warp takes one row; two rows at once are for whole blocks, and more of them for lines",
            lambda s: s.rows == 1 or s.strip or (s.row_per == "block" and s.rows == 2),
        ),
        Constraint(
            "vectors_of_lines",
            ("row_per", "vec"),
            "neighbouring columns of a line lie apart in memory: there is no vector of them",
            lambda s: not s.strip or s.vec == 1,
        ),
        Constraint(
            "rows_for_all",
            ("row_per", "rows"),
            f"so many rows to a block that {online.rows} rows do not fill the chip",
            lambda s: s.rows == 1 or online.rows >= s.rows * (STRIP if s.strip else 1) * task.hardware.multiprocessors,
        ),
        Constraint(
            "shared_memory",
            ("reduction", "block", "rows", "blocks"),
            "the tree of several rows would need more shared memory than a block has without asking",
            lambda s: (
                s.reduction == "warp_shuffle"
                or 4 * s.block * s.rows * (1 + int(s.blocks != 1 or paired and s.rows > 1)) * _slots(online) <= 48 << 10
            ),
        ),
        Constraint(
            "rows_per_warp",
            ("row_per",),
            f"a warp for a row of {cols} leaves most of the chip idle",
            lambda s: s.row_per != "warp" or cols <= 8192,
        ),
        Constraint(
            "blocks_for_all",
            (*threads, "merge"),
            "so few blocks that some multiprocessors get none, or so many that merging costs more than they win",
            lambda s: (
                s.merge != "last_block"
                or (fewest <= s.units or s.steps <= 4)
                and (s.units <= most * 256 // s.block or online.rows == 1 and s.units == _parts(online))
            ),
        ),
        Constraint(
            "terms_of_a_thread",
            threads,
            f"a thread would add up more than {MOST_TERMS} terms: more blocks are faster and more exact",
            lambda s: not shared or s.steps * s.vec <= MOST_TERMS,
        ),
        Constraint(
            "team_in_block",
            ("block", "blocks", "merge"),
            "each thread reads what one block of the team found: a team has no more blocks than a block has threads",
            lambda s: s.merge != "team" or s.blocks <= s.block,
        ),
        Constraint(
            "ring",
            ("block", "blocks", "row"),
            "the blocks' shared memory does not hold a row, or a smaller team holds it as well",
            lambda s: s.row != "shared" or s.blocks in rings.get(s.block, ()),
        ),
    )
    found = {"one_block": tuple(axes), **{how: sharing(how, counts) for how, counts in shared}}
    if through_rings:
        found["ring"] = sharing("ring", through_rings)

    def keeps(how: str) -> bool:
        """Whether the most blocks that share a row keep it in their registers."""
        return how in found and passes > 1 and fixed and least * cols <= MOST_KEPT_SHARED * 512 * max(dict(shared)[how])

    lead, few = "one_block", online.rows < task.hardware.multiprocessors
    if (
        "ring" in found and several != "moments" and not online.narrow
    ):  # the fastest on an H200, but not for Welford's moments
        lead = "ring"
    elif cols > MOST_KEPT * 512 and not online.strided:  # one block alone would read a long row again, or be too few
        if keeps("cluster"):
            lead = "cluster"
        elif (
            "team" in found and passes > 1
        ):  # of few rows at a time, each is read again from registers or the level-2 cache
            lead = "team"
        elif few:
            lead = next((how for how, _ in shared), lead)
    return Space(decide, found[lead], constraints, tuple(of for how, of in found.items() if how != lead))


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
        held = rows_in_cache(task, online)  # as many teams fill the chip, of as few blocks as they may have
        teams = sorted(teams, key=lambda size: (size * held < 2 * chip, abs(size * held - 2 * chip)))
    return [
        *([("cluster", CLUSTERS)] if common.sm(task.hardware) >= 90 else []),
        *([("team", tuple(teams))] if teams else []),
    ]


def _teams(program: Program, hardware: Hardware) -> dict[int, tuple[int, ...]]:
    """For threads in a block, the sizes of teams whose shared memory holds a row: the smallest ones, then the busiest.

    Of 393,216 columns on an H200, the smallest teams took 8% less time than the busiest.
    """
    found: dict[int, tuple[int, ...]] = {}
    loads = through_ring(program, _ring_vec(program))
    for threads in RING_THREADS if loads else ():
        resident = hardware.multiprocessors * (1024 // threads)
        smallest: dict[int, int] = {}  # team for each number of steps
        for size in dict.fromkeys(resident // teams for teams in range(min(program.rows, resident), 0, -1)):
            steps = -(-program.cols // (threads * size * _ring_vec(program)))
            if size > 1 and steps + SLOTS_AHEAD <= slots_of_ring(hardware, threads, loads):
                smallest.setdefault(steps, size)

        def busy(steps: int) -> float:
            """Slots that hold columns, as a share of all slots of the blocks that the device runs beside each other."""
            size = smallest[steps]
            return program.cols / (steps * threads * size * _ring_vec(program)) * (resident // size * size) / resident

        busiest = sorted(smallest, key=busy, reverse=True)[:1]
        found[threads] = tuple(smallest[steps] for steps in dict.fromkeys([*list(smallest)[:MOST_SIZES], *busiest]))
    return found


def _ring_vec(program: Program) -> int:
    """Elements of one slot."""
    return SLOT_BYTES // (2 if program.narrow else 4)


def _rereads(task: Task, program: Program, kept: int) -> bool:
    """Whether teams read their rows again from the level-2 cache, which has several of them or is their only way.

    Kept in registers, a row would leave none for another team, which works while this one waits.
    """
    return (
        rows_in_cache(task, program) > 1
        or kept * program.cols > MOST_KEPT_SHARED * 512 * 2 * task.hardware.multiprocessors
    )


def _parts(online: Program) -> int:
    """Blocks of :data:`PART_BYTES` of each operand, for a tensor that is reduced as a whole."""
    widest = max((DTYPES[x.dtype].nbytes for x in online.loads if x.tensor and x.access.full), default=4)
    return -(-online.cols * widest // PART_BYTES)


def _slots(program: Program) -> int:
    """Elements of 4 bytes that the results of all reductions take."""
    spelled = [SPELLED[r.kind] for r in program.reductions]
    return sum(2 if type_ in (PLACE, WHOLE, "double") else 1 for of in spelled for type_ in of.between or of.types)
