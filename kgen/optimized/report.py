"""The report of an optimised module: ``fast.kgen``."""

import html
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Sequence

from kgen.optimized.dispatch import Dispatch
from kgen.optimized.winner import prepared_bytes
from kgen.protocol.statistics import Interval


@dataclass(frozen=True)
class Part:
    """Submodules that one kind of file takes the place of. The path of the module itself is ``""``."""

    paths: tuple[str, ...]
    name: str
    dispatches: tuple[Dispatch, ...] = field(repr=False)

    @property
    def winners(self) -> tuple[Any, ...]:
        """The winners, one for each size that was swept."""
        return self.dispatches[0].winners


@dataclass(frozen=True)
class Tried:
    """A module that nothing takes the place of, and the reason."""

    path: str
    name: str
    reason: str


@dataclass
class Report:
    """The parts that were replaced and those that were not, the figures, and the calls since.

    ``speedup`` is over the module that came in: both were timed in turns in the process that searched. It is ``None``
    where nothing was replaced. ``over_baseline`` is by the finals of the sweep, over the fastest way of PyTorch: eager
    or torch.compile. A module that was replaced as a whole has it.
    """

    name: str
    speedup: Interval | None = None
    parts: Sequence[Part] = ()
    tried: Sequence[Tried] = ()
    from_store: bool = False
    seconds: float = 0.0

    @property
    def replaced(self) -> bool:
        """Whether any part runs a file of kgen."""
        return bool(self.parts)

    @property
    def over_baseline(self) -> tuple[str, Interval] | None:
        """The name of the fastest baseline, and the speedup over it."""
        for part in self.parts:
            if part.paths == ("",):
                winner = part.winners[0]
                return min(winner.baselines, key=lambda x: x[1], default=("eager", 0.0))[0], winner.speedup
        return None

    @property
    def library(self) -> dict[str, int]:
        """Library calls that are left inside the files, with their number."""
        found: Counter[str] = Counter()
        for part in self.parts:
            for name in part.winners[0].library:
                found[name] += len(part.paths)
        return dict(found)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Calls that ran the original, by reason."""
        found: Counter[str] = Counter()
        for part in self.parts:
            for dispatch in part.dispatches:
                found.update(dispatch.fallbacks)
        return dict(found)

    @property
    def calls(self) -> int:
        """Calls that ran a file of kgen; where several parts are replaced, the calls of each part."""
        return sum(e.calls for part in self.parts for d in part.dispatches for e in d.entries)

    @property
    def extra_bytes(self) -> int:
        """Bytes that are held beside the weights: what files have derived from them."""
        return sum(prepared_bytes(e.model) for part in self.parts for d in part.dispatches for e in d.entries)

    def refresh(self) -> None:
        """Derive from weights anew: for writes that no version counter shows, as those to ``p.data``."""
        for part in self.parts:
            for dispatch in part.dispatches:
                for entry in dispatch.entries:
                    renew = getattr(entry.model, "refresh", None)
                    if callable(renew):
                        renew()

    def rows(self) -> list[tuple[str, str]]:
        """The table: labels and values."""
        found = [("module", self.name)]
        if not self.parts:
            found.append(("replaced", "nothing: the module runs as it came in"))
        if self.speedup is not None:
            found.append(("speedup", f"{_interval(self.speedup)} over the module that came in"))
        if self.over_baseline is not None:
            name, interval = self.over_baseline
            found.append(("", f"{_interval(interval)} over {name}, by the sweep"))
        for part in self.parts:
            place = "all of it" if part.paths == ("",) else _places(part.paths)
            for winner in part.winners:
                kernels = f"{len(winner.kernels)} kernel{'s' * (len(winner.kernels) != 1)}"
                found.append(
                    (
                        "replaced",
                        f"{place}: {part.name} by {kernels}, {winner.candidate[:12]}, {_interval(winner.speedup)}",
                    )
                )
        for name, number in self.library.items():
            found.append(
                ("library", f"{name}{f' ({number})' if number > 1 else ''}: faster there, or no kernel takes it")
            )
        found += [("left", f"{tried.path or 'the module'} ({tried.name}): {tried.reason}") for tried in self.tried]
        found.append(("calls", f"{self.calls} by kgen"))
        found += [("", f"{number} by the original: {reason}") for reason, number in self.fallbacks.items()]
        if self.parts:
            found.append(("memory", f"{self.extra_bytes / 1e6:.3g} MB beside the weights"))
        found.append(("search", "none: found in the store" if self.from_store else f"{self.seconds:.0f} s"))
        return found

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}".rstrip() for label, value in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><th style='text-align:left'>{html.escape(a)}</th><td "
            f"style='text-align:left'>{html.escape(b)}</td></tr>"
            for a, b in self.rows()
        )
        return f"<table>{''.join(cells)}</table>"


def _interval(interval: Interval) -> str:
    return f"{interval.mid:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def _places(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
