"""Candidates: a plan with its parameters filled in, rendered to source, named by the hash of that source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Mapping

from kgen.plan import Plan

#: A value of one parameter: block size, reduction strategy, ...
ParamValue = int | float | str | bool

#: Parameters by name. Parameters of the K-th kernel of a plan are named ``kK.axis`` (``k0.block``).
Params = Mapping[str, ParamValue]

LAUNCHING = "launching"  #: a parameter of a whole candidate, where forward is launched in another way than by Python
CALL, GRAPH = WAYS = "call", "graph"  #: its values: one call of C does all of forward, or a CUDA graph is replayed

COUNTABLE = (1 << 31) - 1  #: combinations; the largest integer of a column in every database, which stands for more, too
SHORT = 12  #: how many characters of an identity people are shown


#: The function of a rendered file that runs kernels: pointers are among its arguments. One that begins a part of an allocation
#: has unused bytes of the allocation in front of it, :data:`GAP` at least.
LAUNCH, GAP = "launch", 256
ENTRY = "_entry"  #: the function of a rendered file that does all of forward in one call of C, or returns None


class Trust(StrEnum):
    """How far a candidate's text is trusted; it decides how strictly the evaluator judges it."""

    OWN = "own"  #: kgen renders the same text again, byte for byte
    FOREIGN = "foreign"  #: everything else: files of users, imported or proposed text


@dataclass(frozen=True)
class Candidate:
    """One rendered ``ModelNew``.

    ``id`` is the SHA-256 of ``source`` in hexadecimal, so that the same text is the same candidate everywhere.
    ``plan`` is the readable name of the fusion plan (:mod:`kgen.plan_name`), and ``plan_data`` the plan itself. A file
    from outside has no plan.
    ``origin`` is own where rendering gives this text, byte for byte, and foreign otherwise.
    ``control`` marks a candidate without a kernel of its own. It is shown, and never exported as a speedup.
    ``kernels`` counts its own kernels: the first tie-break between equally fast candidates.
    """

    source: str
    plan: str
    params: Params
    device_type: str  # "cuda" or "cpu"
    kernels: int = 0
    control: bool = False
    origin: Trust = Trust.OWN
    rewrites: tuple[str, ...] = ()
    plan_data: Plan = Plan()

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def source_lines(self) -> int:
        return self.source.count("\n") + 1


@dataclass(frozen=True)
class Rejection:
    """A combination that a constraint ruled out before rendering, with the reason in one line."""

    plan: str
    params: Params
    constraint: str
    reason: str
