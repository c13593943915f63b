"""A small network, its design without a device, and a bench that measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from samples import environment

from kgen.devices.hardware import cpu
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, BuildReport, Environment, Status
from kgen.store.kernel_task import Measured, Variant
from kgen.tuning import events
from kgen.tuning.capturing import capture_here
from kgen.tuning.design import Design
from kgen.tuning.tasks import tuner
from kgen.tuning.tasks.unit import Unit

#: Twelve equal layers, of which the first has a name of its own, and one of another size.
NETWORK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(32, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(11))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.gelu(self.embed(x))
        for layer in self.layers:
            x = F.gelu(layer(x))
        return F.softmax(self.head(x), dim=-1)


def get_inputs():
    return [torch.randn(batch_size, 32)]


def get_init_inputs():
    return []
"""

#: Another network of the same layers, under other names.
RELATIVE = NETWORK.replace("self.embed", "self.stem").replace("range(11)", "range(13)").replace("self.layers", "self.blocks")


def network(source: str = NETWORK, mode: str = "eval") -> Problem:
    return Problem("network", "network.py", source, (), mode)


@cache
def _captured(source: str, mode: str) -> tuple[Problem, Any]:
    return capture_here(network(source, mode), "cpu")


def design(source: str = NETWORK, mode: str = "eval") -> Design:
    """A design of its own: options are added to it."""
    return Design(*_captured(source, mode), replace(cpu(), vector_bits=(512, 256)), Accuracy.FP32)


@dataclass
class Desk:
    """A place without a device."""

    environment: Environment = field(default_factory=environment)
    device: str = "cpu"


@dataclass
class QuickBench:
    """Measures nothing: ``tell`` says what becomes of a variant."""

    tell: Callable[[Variant], Measured]
    measured: list[Variant] = field(default_factory=list)

    def __call__(self, place: object, folder: Path) -> QuickBench:
        return self

    def __enter__(self) -> QuickBench:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, unit: Unit, build: BuildReport) -> Iterator[Measured]:
        for variant, text in zip(unit.variants, unit.texts):
            self.measured.append(variant)
            found = self.tell(variant)
            yield Measured(variant, text, found.status, found.reason, found.cold_ms, found.warm_ms, found.error, found.allowed)


def takes(ms: float, error: float = 1e-7) -> Measured:
    return Measured(Variant(""), "", Status.OK, "", ms, ms, error, 2e-7)


@dataclass
class Told:
    """Keeps events."""

    found: list[events.Event] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        self.found.append(event)


__all__ = ["NETWORK", "RELATIVE", "Desk", "QuickBench", "Told", "design", "network", "takes", "tuner"]
