"""Dataclasses to JSON values and back. Infinities and NaN are stored as strings, because JSON has none."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Mapping, Sequence, TypeVar

from kgen.candidate import Plan
from kgen.protocol import BuildReport, CaseErrors, KernelResources

T = TypeVar("T")

_NUMBERS = ("rms", "maximum", "eager_rms", "eager_maximum", "ratio", "used")


def dumps(value: Any) -> str:
    """JSON in one line. Raises ``ValueError`` for an infinity or a NaN."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def printable(text: str) -> str:
    """``text`` with a sign in place of each NUL, which PostgreSQL cannot store; candidates may print any text."""
    return text.replace("\0", "\u2400")


def storable(value: Any) -> Any:
    """``value`` with JSON values alone, and without what PostgreSQL cannot store."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): storable(item) for key, item in value.items()}
    return [storable(item) for item in value] if isinstance(value, (list, tuple)) else plain(value)


def canonical(value: Mapping[str, Any]) -> str:
    """One text for equal mappings, whatever the order of their keys; hashes are made of it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def plain(value: Any) -> Any:
    """``value`` as JSON values: infinities and NaN as strings, sequences as lists, other objects by ``repr``."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return repr(value)


def errors_to_json(errors: Sequence[CaseErrors]) -> list[Any]:
    """Error figures as a list of objects. The test case is stored under its older name, ``regime``."""
    renamed = {"case": "regime"}
    return [{renamed.get(name, name): plain(value) for name, value in asdict(error).items()} for error in errors]


def errors_from_json(values: Sequence[Mapping[str, Any]]) -> tuple[CaseErrors, ...]:
    """The inverse of :func:`errors_to_json`."""
    return tuple(
        _make(CaseErrors, {**value, "case": value["regime"]}, **{name: _number(value[name]) for name in _NUMBERS})
        for value in values
    )


@lru_cache(maxsize=1024)
def plan_from_text(text: str) -> Plan:
    """A plan from its JSON text; equal texts give one object."""
    return Plan.from_json(json.loads(text))


def build_to_json(build: BuildReport | None) -> dict[str, Any] | None:
    """A build report as an object."""
    return plain(asdict(build)) if build else None


def build_from_json(value: Mapping[str, Any] | None) -> BuildReport | None:
    """The inverse of :func:`build_to_json`."""
    if value is None:
        return None
    return _make(BuildReport, value, kernels=tuple(_make(KernelResources, kernel) for kernel in value["kernels"]))


def _make(cls: type[T], value: Mapping[str, Any], **replaced: Any) -> T:
    """An instance from stored fields. Fields that the class no longer has are ignored: old rows stay readable."""
    known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}  # type: ignore[attr-defined]
    return cls(**{**known, **replaced})


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)
