"""The record of a rewrite, and the pipelines that records make."""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import Callable, Iterator, Sequence

from kgen.compiler.graph.graph import OpGraph


class Offer(Enum):
    """Schedules and library calls that not every device has. Rewrites may need one."""

    CHANNELS_LAST = auto()  #: schedules that run along the channels of images that have them side by side
    WINDOWS_ACROSS = auto()  #: a schedule of windows whose vectors go across such channels, of taps with weights, too
    ATTENTION = auto()  #: a schedule of attention in half types in one kernel
    CUDNN = auto()  #: cuDNN, whose convolutions take a bias, a sum and a ReLU along


class Stage(Enum):
    """When a rewrite takes part."""

    ONCE = auto()  #: in front of the decomposition and of all pipelines: it looks at every node of long graphs
    ALWAYS = auto()  #: first in every pipeline: every graph is better with it
    FOLD = auto()  #: in pipelines that fold so much: those of its ``level`` and of higher ones
    OPTION = auto()  #: in a pipeline of its own, beside all folds
    LAST = auto()  #: at the end of every pipeline


class Place(Enum):
    """Where an option stands among the other rewrites of its pipeline."""

    BEHIND = auto()
    IN_FRONT = auto()
    AROUND = auto()  #: in front of them, and behind them again


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: ``run`` takes a graph and returns a graph of the same value, the same one where it does not apply.

    A fold of ``level`` 1 takes norms apart, one of level 2 merges scales and shifts, and one of level 3 moves them into
    weights. ``again`` names a fold behind which this one is applied once more, and the level from which it is. At lower
    levels than its own, that is its only place. Options of one ``group`` share a pipeline. Plans show the name of a
    rewrite that is ``shown``. One that makes weights of products is ``float32_only``: half types would round these. One
    that ``needs`` an offer is for devices with it. Graphs of half types need ``half_needs``, too: without attention in
    one kernel, they would round scores. ``also`` names other options, each of which has a further pipeline with this
    one in front of it.
    """

    run: Callable[[OpGraph], OpGraph]
    stage: Stage
    level: int = 0
    again: tuple[str, int] = ("", 0)
    group: str = ""
    place: Place = Place.BEHIND
    shown: bool = True
    float32_only: bool = False
    needs: Offer | None = None
    half_needs: Offer | None = None
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.run.__name__


LEVELS = 3


def pipelines(rewrites: Sequence[Rewrite], *, half: bool, offers: AbstractSet[Offer]) -> Iterator[tuple[Rewrite, ...]]:
    """The combinations worth planning for on a device with these offers, the plainest first. ``half`` says that a graph
    has half types."""
    known = {None, *offers}
    usable = [
        of for of in rewrites if of.needs in known and not (half and (of.float32_only or of.half_needs not in known))
    ]
    always, options, last = (
        [of for of in usable if of.stage is stage] for stage in (Stage.ALWAYS, Stage.OPTION, Stage.LAST)
    )
    for level in range(LEVELS + 1):
        yield (*always, *_folds(usable, level), *last)
    groups = [tuple(several) for _, several in itertools.groupby(options, key=lambda of: of.group or of.name)]
    pairs = [(of, other) for of in options for other in options if other.name in of.also]
    for group in (*groups, *pairs):
        front = [of for of in group if of.place is not Place.BEHIND]
        behind = [of for of in group if of.place is not Place.IN_FRONT]
        yield (*front, *always, *_folds(usable, LEVELS), *behind, *last)


def _folds(rewrites: Sequence[Rewrite], level: int) -> Iterator[Rewrite]:
    """The folds of a level, in order."""
    folds = [of for of in rewrites if of.stage is Stage.FOLD]
    for of in folds:
        if of.level <= level:
            yield of
        yield from (other for other in folds if other.again[0] == of.name and 0 < other.again[1] <= level)
