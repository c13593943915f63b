"""Kernels whose result nothing reads, found by leaving each out of a forward.

The forward is captured in a graph. Each replay gets fresh contents in the same buffers. The graph's own memory holds
zeros before, then NaN. Memory that the file keeps has the results of other contents. A kernel's results are read if a
replay without it gives another output or state. A forward that cannot be captured, or whose replay gives other values
than the forward itself, tells nothing.
"""

import re
from itertools import product
from typing import Any, Callable, Mapping, Protocol, Sequence

import torch

from kgen.evaluator.runtime.arena import map_tensors
from kgen.evaluator.strict.profile import is_library

_FILLS = (0x00, 0xFF)  # bytes of unwritten memory: zeros first, since NaN as an index may end the process
_MOST_NAMES = 64  # kernels that are left out in turn


class GraphError(Exception):
    """The graph of a forward gives other values than the forward, or has many kernels."""


class Graph(Protocol):
    """A captured call. ``kernels`` has the names of its kernels as keys."""

    @property
    def kernels(self) -> Mapping[str, Any]: ...
    def replay(self, without: str, fill: int) -> Any: ...


def _base(name: str) -> str:
    """A kernel's name without its result, template arguments and parameters."""
    return re.split(r"[<(]", name.replace("(anonymous namespace)", "").removeprefix("void "), maxsplit=1)[0].rpartition(
        "::"
    )[2]


def unread(
    call: Callable[[], Any],
    captured: Callable[[Callable[[], Any]], Graph],
    kernels: Sequence[str],
    renewals: Sequence[Callable[[], None]],
    state: Callable[[], Any],
    same: Callable[[Any, Any], bool],
) -> list[str]:
    """Names of kernels without which ``call`` gives the ``same`` output and ``state`` for the contents of each of
    ``renewals``, which are two or more.

    ``kernels`` are those that a profile saw. The graph has none of them that runs on another stream, such as the
    default one. Raises :class:`GraphError`, and the errors of ``captured``, which captures a call.
    """
    renewals[0]()
    call()  # a first call may make memory for later ones
    graph = captured(call)
    known = set(map(_base, graph.kernels))
    left = [name for name in graph.kernels if not is_library(name)] + [
        name for name in kernels if _base(name) not in known
    ]
    if len(left) > _MOST_NAMES:
        raise GraphError("too many kernels")
    for number, fill in product(range(len(renewals)), _FILLS):
        renew, renew_otherwise = renewals[number], renewals[number - 1]
        renew()
        expected = map_tensors([call(), state()], torch.clone)

        def changes_nothing(name: str) -> bool:
            renew_otherwise()
            graph.replay("", fill)
            renew()
            return same([graph.replay(name, fill), state()], expected)

        if not changes_nothing(""):
            raise GraphError("a graph of the forward gives other values")
        left = [name for name in left if changes_nothing(name)]
    return left
