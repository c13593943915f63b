"""Candidates: rendered sources of a plan with parameter values, identified by the hash of the source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Mapping

#: A value of one parameter, such as a block size or a reduction strategy.
ParamValue = int | float | str | bool

#: Parameters by name. Parameters of the first kernel of a plan begin with ``k0.``, as in ``k0.block``.
Params = Mapping[str, ParamValue]

SHORT = 12  # characters of an identity in tables


@dataclass(frozen=True)
class Candidate:
    """One rendered ``ModelNew``.

    ``id`` is the SHA-256 of ``source`` in hexadecimal: the same text is the same candidate everywhere.
    ``plan`` is the readable name of the fusion plan.
    ``origin`` is ``sweep`` for rendered files and ``file`` for files from outside.
    ``control`` marks a candidate without a kernel of its own, which is never exported as a speedup.
    ``kernels`` counts its own kernels. Among ties, the candidate with fewer kernels wins.
    """

    source: str
    plan: str
    params: Params
    device_type: str  # "cuda" or "cpu"
    kernels: int = 0
    control: bool = False
    origin: str = "sweep"
    rewrites: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def source_lines(self) -> int:
        return self.source.count("\n") + 1


@dataclass(frozen=True)
class Rejection:
    """A combination of parameters that a constraint ruled out before rendering, with the reason in one line."""

    plan: str
    params: Params
    constraint: str
    reason: str
