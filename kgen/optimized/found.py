"""Options of `kgen.optimize`, and the winners that its search found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kgen.optimized.report import Tried
from kgen.optimized.winner import Winner
from kgen.protocol import BASELINES, Accuracy
from kgen.protocol.statistics import Interval

Call = tuple[tuple[Any, ...], dict[str, Any]]
NOT_FASTER = "nothing beats PyTorch here"


@dataclass(frozen=True)
class Options:
    """The arguments of ``optimize`` beside the module and its inputs."""

    minutes: float = 5.0
    accuracy: Accuracy = Accuracy.PYTORCH
    modules: str | tuple[str, ...] = "auto"
    device: str | None = None
    db: str | None = None
    cached_only: bool = False
    baselines: tuple[str, ...] = BASELINES
    budget: int | None = None  # candidates of each sweep
    weight_copies: bool = True
    tell: Callable[[str], None] = field(default=lambda text: None)


@dataclass(frozen=True)
class FoundPart:
    """Equal submodules by their paths, and a winner for each call of one."""

    paths: tuple[str, ...]
    name: str
    winners: tuple[Winner, ...]


@dataclass(frozen=True)
class Found:
    """The result of a search: winners, and modules without one."""

    parts: tuple[FoundPart, ...] = ()
    tried: tuple[Tried, ...] = ()
    from_store: bool = False
    speedup: Interval | None = None  # of the whole, in the process that searched
