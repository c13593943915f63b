"""Weights that a ModelNew keeps between calls: as kernels read them, and what is made from them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Mapping, Sequence

from kgen.codegen.forward import python_name, tuple_source, weight_source
from kgen.codegen.template import Argument, Rendering
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.graph.dtypes import nbytes
from kgen.compiler.graph.library_call import LibraryCall, written


class Weights:
    """The weights of one mode: those that kernels read by a table of pointers, and those that calls of the library
    take.

    ``read`` has name and source of tensors in the table that are weights as they are, by key. ``derived`` has the
    sources of its other tensors, by key. ``sources`` are weights that anything is made from, ``taken`` what calls of
    the library take.
    """

    def __init__(self, plan: FusionPlan, renderings: Mapping[str, Rendering]) -> None:
        self._plan, self._graph, self._renderings = plan, plan.graph, renderings
        self.read: dict[str, tuple[str, str]] = {}
        self.derived: dict[str, str] = {}
        self.sources: dict[str, None] = {s: None for d in self._graph.folded for s in d.sources if self._is_own(s)}
        self.sources |= {a.tensor: None for a in self.filled.values() if self._is_own(a.tensor)}
        self.taken: dict[str, None] = {}

    @cached_property
    def keeps(self) -> bool:
        """Whether weights are kept between calls as forward takes them. A control reads each where it is used."""
        return bool(self._graph.weights) and bool(self._plan.kernels or self._graph.folded)

    @property
    def paths(self) -> dict[str, str]:
        """The paths of weights that a module's tables hold, by name."""
        return {python_name(w.name): w.path for w in self._graph.weights if "[" not in w.path}

    @property
    def listed(self) -> dict[str, str]:
        """Python source of weights that lie in a list or a dict, by name."""
        return {python_name(w.name): weight_source(w) for w in self._graph.weights if "[" in w.path}

    @cached_property
    def filled(self) -> dict[str, Argument]:
        """The memory that kernels have prepared from weights, by its name in the module, each once."""
        found: dict[str, Argument] = {}
        for rendering in self._renderings.values():
            for a in rendering.all_arguments:
                if a.filled:
                    found.setdefault(self._graph.fresh(a.name), a)
        return found

    @property
    def prepares(self) -> list[str]:
        """Statements that make what is derived from weights."""
        lines = [f"{d.name} = {_folded(d.call, [*map(self._kept_name, d.sources)])}" for d in self._graph.folded]
        for name, a in self.filled.items():
            weight = self._kept_name(a.tensor)
            lines.append(f"{name} = {weight}.new_empty({a.size})")
            source = dense(_folded(a.filled.form, [weight]), a.dtype)
            lines.append(f"fill(_{a.filled.launcher}, {a.filled.rows}, {source}, {name})")
        return lines

    @property
    def prepared_bytes(self) -> int:
        """Bytes of what is made from weights and kept."""
        folded = sum(math.prod(d.type.shape) * nbytes(d.type.dtype) for d in self._graph.folded)
        return folded + sum(int(a.size) * nbytes(a.dtype) for a in self.filled.values() if a.size.isdecimal())

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of ``Kept.take`` as source."""
        return {
            "read": tuple_source([name for name, _ in self.read.values()]),
            "pointed": tuple_source([*(source for _, source in self.read.values()), *self.derived.values()]),
            "tensors": tuple_source([*self.taken]),
            "sources": tuple_source([python_name(s) for s in self.sources]),
        }

    def _is_own(self, value: str) -> bool:
        """Whether the value is a weight of the module, and not folded from some."""
        return any(w.name == value for w in self._graph.weights)

    def _kept_name(self, value: str) -> str:
        return python_name(value) if self._is_own(value) else value

    def take(self, value: str) -> str:
        """Python source of a weight for a call of the library."""
        if not self.keeps:
            return next(weight_source(w) for w in self._graph.weights if w.name == value)
        self.taken[self._kept_name(value)] = None
        return self._kept_name(value)

    @cached_property
    def changing(self) -> set[str]:
        """Weights and buffers that forward itself changes, so that a copy of one serves one step."""
        found: set[str] = set()
        for node in self._graph.nodes:
            if node.effect:
                read = ("weight", "bias") if node.op == "batch_norm" else ()
                roles = node["roles"] if node.op == "batch_norm" else [""] * len(node.inputs)
                found |= {v for role, v in zip(roles, node.inputs) if isinstance(v, str) and role not in read}
        return found

    def pointer(self, a: Argument) -> str:
        """The key of a weight in the table of weights."""
        name = self._kept_name(a.tensor)
        if a.role == "state":
            return self._read(name, f"typed({name}, torch.{a.dtype})")
        source = dense(name, a.dtype)
        if self._is_own(a.tensor):
            return self._read(name, source)
        self.derived[source] = source
        return source

    def _read(self, name: str, source: str) -> str:
        self.read[source] = name, source
        return source


def _folded(call: LibraryCall, names: Sequence[str]) -> str:
    """Python source of a tensor that is computed from weights of these names."""
    return written(call, names.__getitem__, f"{names[0]}.device")


def dense(source: str, dtype: str) -> str:
    """Python source of a tensor as a kernel takes it."""
    return f"dense({source}, torch.{dtype})"
