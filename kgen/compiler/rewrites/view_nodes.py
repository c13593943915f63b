"""Nodes of views that rewrites put into graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.compiler.graph.graph import Node, Tensor
from kgen.compiler.graph.library_call import Many, X, aten, torch_
from kgen.compiler.graph.source import reshape_call


def permuted(name: str, source: str, of: Tensor, dims: tuple[int, ...]) -> Node:
    """The dimensions of a value of type ``of`` in another order."""
    return Node(name, "permute", (source,), of.permuted(dims), torch_("permute", X, Many(dims)), (("dims", dims),))


def in_order(name: str, view: Node, attrs: tuple[tuple[str, Any], ...] = ()) -> Node:
    """The copy of a view whose elements lie in memory in their order."""
    return Node(name, "copy", (view.name,), view.type, X.method("contiguous"), attrs)


def reshaped(name: str, source: str, type_: Tensor) -> Node:
    """The value with the shape of ``type_``."""
    return Node(name, "view", (source,), type_, reshape_call(type_))


def sliced(name: str, source: str, of: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Node:
    """Every ``step``-th element of one dimension of a value of type ``of``, from ``start`` to below ``stop``."""
    shape = (*of.shape[:dim], (stop - start + step - 1) // step, *of.shape[dim + 1 :])
    call = aten("slice.Tensor", X, dim, start, stop, step)
    attrs = (("dim", dim), ("start", start), ("step", step))
    return Node(name, "slice", (source,), replace(of, shape=shape), call, attrs)
