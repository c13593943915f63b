"""Figures in words, the same in progress lines and in tables."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Mapping, Sequence

from kgen.candidate import COUNTABLE, SHORT, ParamValue, Plan, PlanStep
from kgen.devices.kinds import HOST
from kgen.protocol import Environment

if TYPE_CHECKING:
    from kgen.protocol.statistics import Interval
    from kgen.tuning.events import Cluster

MISSING = "-"
_NAME = 40  #: characters of a name that is no plan's


def short(identity: str | None) -> str:
    """The beginning of an id, long enough to name it again."""
    return identity[:SHORT] if identity else MISSING


def milliseconds(value: float | None) -> str:
    """A time with three or four significant digits: ``34.1 ms``, ``0.0123 ms``."""
    return MISSING if value is None else f"{_digits(value)} ms"


def interval(value: Interval) -> str:
    """A time with its interval: ``22.6 ms [22.1, 23.0]``."""
    return f"{milliseconds(value.mid)} [{_digits(value.low)}, {_digits(value.high)}]"


def speedup(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A speedup, with its interval where it is known: ``1.520x [1.480, 1.550]``."""
    if value is None:
        return MISSING
    if low is None or high is None:
        return f"{value:.3g}x"
    return f"{value:.3f}x [{low:.3f}, {high:.3f}]"


def error_ratio(value: float | None) -> str:
    """The worst error as a multiple of PyTorch's own."""
    return MISSING if value is None else f"{value:.2f}x"


def figure(value: float | None) -> str:
    """An error figure."""
    return MISSING if value is None else f"{value:.2g}"


def duration(seconds: float | None) -> str:
    """Seconds as ``42 s``, ``3 min 20 s`` or ``1 h 05 min``."""
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def cluster(value: Cluster, a_minute: float) -> str:
    """A cluster in one line: ``2 nodes, 16 devices (15 busy), 212 candidates/min``."""
    nodes, devices = (
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((value.nodes, "node"), (value.devices, "device"))
    )
    rate = f", {a_minute:.0f} candidates/min" if a_minute else ""
    return f"{nodes}, {devices} ({value.busy} busy){rate}"


def moment(when: datetime) -> str:
    """A moment in the local time zone."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M")


def combinations(count: int) -> str:
    """The number of a search's combinations: ``165``, or ``over 2 billion`` where it is more than is counted."""
    return str(count) if count < COUNTABLE else "over 2 billion"


def params(values: Mapping[str, ParamValue], most: int | None = None) -> str:
    """Parameters in one line: ``k0.block=256 k0.reduce=warp``; a count where that has over ``most`` characters."""
    found = " ".join(f"{name}={value}" for name, value in values.items()) or MISSING
    return found if most is None or len(found) <= most else f"{len(values)} parameters"


def plan(name: str, data: Plan, most: int = 0) -> str:
    """A plan as a count: ``2 kernels, 1 library call``, for each mode. Names of up to ``most`` characters are whole.

    `kgen show` has a plan whole.
    """
    if len(name) <= most or not data.steps:
        return cut(name, max(most, _NAME))
    modes = {
        mode: [step for step in data.steps if step.mode == mode] for mode in dict.fromkeys(s.mode for s in data.steps)
    }
    return " / ".join(f"{mode}: {_counted(own)}" if mode else _counted(own) for mode, own in modes.items())


def _counted(steps: Sequence[PlanStep]) -> str:
    """The numbers of kernels and of library calls."""
    kernels = sum(bool(step.schedule) for step in steps)
    found = {"kernel": kernels, "library call": len(steps) - kernels}
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in found.items() if count)


def cut(value: str, most: int) -> str:
    """A text of at most ``most`` characters; an ellipsis stands for the rest."""
    return value if len(value) <= most else f"{value[: most - 1]}…"


def baselines(values: Mapping[str, float]) -> str:
    """The baselines' medians in one line: ``eager 54.1 ms, compile 52.0 ms``."""
    return ", ".join(f"{name} {milliseconds(value)}" for name, value in values.items()) or "not timed"


def conditions(values: Mapping[str, str | float]) -> str:
    """The conditions of a timing in one line: ``cache cold, sm clock mhz 1980``."""
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def environment(value: Environment) -> str:
    """A machine in one line."""
    parts = [value.device, value.arch, value.toolkit, value.compiler, f"torch {value.torch}"]
    threads = f"{value.threads} threads" if value.device_type == HOST.name else ""
    return ", ".join(part for part in (*parts, threads) if part)


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}" if value >= 100 else f"{value:.3g}"
