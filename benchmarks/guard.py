"""Measures what the guard and the dispatch of an optimised module add to a call, in processor time of one thread.

    python benchmarks/guard.py

The winner is a function that does nothing, so that a call of the module is the guard alone. Modules take one, two and four
tensors by position, one of them by name, and a dict of two. ``checked by contents`` holds an object of forty attributes, as
models of transformers do. The last row calls a real operator inside a compiled program, beside the original's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from _record import Cell, record
from torch import nn

from kgen.optimized import trial
from kgen.optimized.optimize import FoundPart, attach_part, shapes_of
from kgen.optimized.twin import RUN, twin
from kgen.optimized.winner import Winner
from kgen.problems import exported, live
from kgen.protocol.statistics import Interval

CALLS, ROUNDS = 20_000, 9
GOAL, GOAL_OPERATOR = 3.0, 6.0  # us


class Sum(nn.Module):
    def forward(self, *tensors: torch.Tensor, named: torch.Tensor | None = None) -> torch.Tensor:
        return sum(tensors, torch.zeros(())) + (0 if named is None else named)


class OfDict(nn.Module):
    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return tensors["a"] + tensors["b"]


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(**{f"attribute_{n}": n for n in range(40)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.attribute_3


def optimised(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module:
    """The module with its own problem's text as its winner."""
    fast = twin(module)
    program = live.program_of(module, args, kwargs)
    text = exported.source_of(program, "guard", (args, kwargs))
    source = re.sub(r"\bModel\b", "ModelNew", text)
    winner = Winner("0" * 64, source, "", text, shapes_of(program, (args, kwargs)), Interval(1.0, 1.0, 1.0), (), "", 0.0)
    attach_part(fast, FoundPart(("",), "guard", (winner,)), [(args, kwargs)], [trial.outcome(fast, (args, kwargs))], {})
    return fast


def microseconds(call: Callable[[], Any], calls: int = CALLS) -> float:
    """Processor time of one call."""
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(calls):
            call()
        found.append((time.process_time() - started) / calls * 1e6)
    return median(found)


def guard(module: nn.Module, *args: Any, **kwargs: Any) -> float:
    """The guard of a call beyond the call of a function that does nothing."""
    fast = optimised(module, args, kwargs)
    (entry,) = vars(fast)[RUN].entries
    result = entry.model(*args, *kwargs.values())
    entry.forward = lambda *_: result
    with torch.no_grad():
        fast(*args, **kwargs)
        return microseconds(lambda: fast.forward(*args, **kwargs)) - microseconds(lambda: entry.forward(*args, *kwargs.values()))


def operator(x: torch.Tensor) -> float:
    """The operator inside of a compiled program, beyond the winner's own call."""
    fast = optimised(Configured(), (x,), {})
    (entry,) = vars(fast)[RUN].entries
    result = entry.model(x)
    entry.forward = lambda *_: result
    handle = vars(fast)[RUN].handle
    with torch.no_grad():
        return microseconds(lambda: torch.ops.kgen.run(handle, [x])) - microseconds(lambda: entry.forward(x))


def main() -> None:
    torch.set_num_threads(1)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    figures = {
        "one tensor": guard(Sum(), x),
        "two tensors": guard(Sum(), x, y),
        "four tensors": guard(Sum(), x, y, x + 1, y + 1),
        "one by position, one by name": guard(Sum(), x, named=y),
        "a dict of two": guard(OfDict(), {"a": x, "b": y}),
        "checked by contents": guard(Configured(), x),
        "the operator of compiled programs": operator(x),
    }
    rows: list[dict[str, Cell]] = [
        {"call": name, "us": us, "goal, us": GOAL_OPERATOR if "operator" in name else GOAL} for name, us in figures.items()
    ]
    note = "Processor time of one thread, beyond the call of the winner itself: the median of nine rounds of 20,000 calls."
    record("guard", "Guard and dispatch of an optimised module", rows, note)


if __name__ == "__main__":
    main()
