"""A fusion plan drawn from its name: the chain of operators, one a line, with the kernels marked beside it.

    linear    library
    gelu    ┐ k0 row: block=256 reduction=warp_shuffle
    softmax ┘
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Mapping

from kgen.candidate import ParamValue
from kgen.views import text

LIBRARY = "library"

#: One step of a plan's name (:mod:`kgen.compiler.fusion`): a kernel's family with its operators, or a library call.
_STEP = re.compile(r"(?P<family>\w+)\[(?P<nodes>[^\]]*)\]|(?P<call>[^\[\]+]+?)\(library\)")


@dataclass(frozen=True)
class Link:
    """One operator of the chain: how it is bracketed with its neighbours, and what runs it, told beside the first."""

    operator: str
    bracket: str
    runs: str


def links(plan: str, params: Mapping[str, ParamValue]) -> list[Link]:
    """The chain of a plan's name, with the parameters of each kernel; of a plan for both modes, train first."""
    ways = re.findall(r"(?:^| / )(train|eval): (.*?)(?= / (?:train|eval): |$)", plan) or [("", plan)]
    return [link for mode, way in ways for link in _way(mode, way, params)]


def _way(mode: str, way: str, params: Mapping[str, ParamValue]) -> Iterator[Link]:
    prefix = f"{mode}." if mode else ""
    where = f" in {mode} mode" if mode else ""
    number = 0
    for step in _STEP.finditer(way):
        if step["call"] is not None:
            yield Link(step["call"].strip(), "", LIBRARY + where)
            continue
        kernel = f"{prefix}k{number}"
        number += 1
        own = {name.removeprefix(f"{kernel}."): value for name, value in params.items() if name.startswith(f"{kernel}.")}
        runs = f"{kernel} {step['family']}: {text.params(own)}" if own else f"{kernel} {step['family']}"
        operators = step["nodes"].split(", ")
        for place, operator in enumerate(operators):
            yield Link(operator, _bracket(place, len(operators)), "" if place else runs)


def _bracket(place: int, count: int) -> str:
    if count == 1:
        return "─"
    return "┐" if place == 0 else "┘" if place == count - 1 else "│"
