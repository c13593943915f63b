"""Kernel tasks as data: what tuning measures, what the database keeps, and what views show of it."""

from __future__ import annotations

import hashlib
import json
import operator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Mapping

from kgen.candidate import ParamValue
from kgen.protocol import Status


@dataclass(frozen=True)
class Operand:
    """A tensor that a task reads: an ``input``, a ``weight`` or a ``constant``, with its strides in elements."""

    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @classmethod
    def dense(cls, kind: str, shape: tuple[int, ...], dtype: str) -> Operand:
        """A contiguous tensor."""
        strides = accumulate(reversed(shape[1:]), operator.mul, initial=1)
        return cls(kind, shape, tuple(strides)[::-1] if shape else (), dtype)


@dataclass(frozen=True)
class TaskKey:
    """All that decides which text of a task is fastest.

    ``program`` is the hash of its loop program's canonical form, or of its operator for a ``library`` call.
    ``precision`` says how exactly its products must be multiplied. ``compiler`` is the version of the compiler that
    builds its kernels.
    """

    program: str
    library: bool
    precision: str
    operands: tuple[Operand, ...]
    accuracy: str
    device_type: str
    device: str
    arch: str
    compiler: str
    threads: int

    @cached_property
    def id(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        plain = asdict(self)
        plain["operands"] = [{**o, "shape": list(o["shape"]), "strides": list(o["strides"])} for o in plain["operands"]]
        return plain

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> TaskKey:
        """The inverse of :meth:`to_json`. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for other values."""
        operands = tuple(
            Operand(o["kind"], tuple(map(int, o["shape"])), tuple(map(int, o["strides"])), o["dtype"])
            for o in found["operands"]
        )
        return cls(**{**found, "operands": operands})


@dataclass(frozen=True)
class Variant:
    """One way to compute a task: a schedule with its parameters. An empty schedule leaves the task to the library."""

    schedule: str
    params: tuple[tuple[str, ParamValue], ...] = ()

    @classmethod
    def of(cls, schedule: str, params: Mapping[str, ParamValue]) -> Variant:
        return cls(schedule, tuple(sorted(params.items())))

    @property
    def name(self) -> str:
        """The variant for people."""
        shown = ", ".join(f"{name}={value}" for name, value in self.params)
        return " ".join(filter(None, (self.schedule or "library", shown)))


#: Leaves a task to the library.
THE_LIBRARY = Variant("")


@dataclass(frozen=True)
class Measured:
    """The result of a variant of a task.

    ``text`` is the hash of its rendered text; a result of another text is history. ``cold_ms`` is the least time of a
    call after a cache flush, ``warm_ms`` of a call behind another call. ``error`` is the root mean square error against
    float64, relative to the size of the result; ``allowed`` is the limit of the error. Only ``ok`` results have times.
    """

    variant: Variant
    text: str
    status: Status
    reason: str = ""
    cold_ms: float | None = None
    warm_ms: float | None = None
    error: float | None = None
    allowed: float | None = None

    @property
    def ms(self) -> float | None:
        """Milliseconds in a network: the mean of ``cold_ms`` and ``warm_ms``. Inputs come from the previous kernel;
        other operands were not used for long."""
        return None if self.cold_ms is None or self.warm_ms is None else (self.cold_ms + self.warm_ms) / 2
