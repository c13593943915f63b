"""Test cases as the oracle has them: inputs with their expected values."""

from dataclasses import dataclass, field
from typing import Any

import torch

from kgen.evaluator.correctness import moments
from kgen.evaluator.correctness.distributions import Distribution
from kgen.evaluator.correctness.tolerance import Expected
from kgen.evaluator.runtime.arena import Arena, Node, describe, nodes


@dataclass(eq=False)
class Case:
    """One distribution in one mode: inputs, and the expected output and buffers."""

    distribution: Distribution
    mode: str
    rng: int
    inputs: list[Any]  # in the memory of the arena
    expected: list[Expected]
    aside: list[Expected] = field(default_factory=list)  # the same on the host, while it is on the device again
    arena: Arena | None = None
    node: Node | None = None  # of the inputs
    weights: str = "drawn"
    outputs: Node = field(default_factory=lambda: {"items": []})  # of [output, buffers], or [output] where names differ
    end: int = 0  # the byte behind them
    note: str = ""  # why it is skipped
    raises: bool = False  # whether the reference refuses these shapes
    # Whether runs with roundings added to the reference error, after a value was refused without them.
    widened: bool = False
    noise: bool = True  # whether such runs may add to it for a foreign output of a timed call
    spreads: list[moments.Spread | None] = field(default_factory=list)  # of random outputs, once they are asked for
    seconds: float = 0.0  # of its runs in float32 and float64; on a CPU, at most its processor time
    draws: "Draws | None" = None  # once a tensor of few errors is judged over several inputs


@dataclass(eq=False)
class Draws:
    """Fresh inputs of a case: two sets, which keys mix. ``numbers`` are the numbers of the tensors with kept expected
    values: one list of values for each key."""

    sets: list[list[Any]]
    arena: Arena
    node: Node
    keys: list[int]
    numbers: list[int]
    expected: list[list[Expected]] = field(default_factory=list)


def few_leaves(case: Case, numbers: list[int]) -> tuple[list[Node], int]:
    """Where the tensors of few errors lie, behind each other without gaps in a tensor, and the bytes of all of them."""
    every = [leaf for leaf in nodes(case.outputs) if leaf["kind"] == "tensor"]
    plain = [torch.empty(every[n]["size"], dtype=getattr(torch, every[n]["dtype"]), device="meta") for n in numbers]
    node, end = describe(plain)
    return [leaf | {"device": every[n]["device"]} for n, leaf in zip(numbers, node["items"])], end


def tensor_count(outputs: Node) -> int:
    """The number of tensors that a node describes."""
    return sum(leaf["kind"] == "tensor" for leaf in nodes(outputs))
