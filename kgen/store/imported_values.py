"""Checks of imported values beyond their types: numbers in their range, text without control characters, logs of
kgen."""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath
from statistics import median
from typing import Any, Iterable, Mapping

from kgen.candidate import Plan

#: Texts that keep any character: they are shown only where they are asked for.
SOURCES = {("problem", "source"), ("source", "text")}

#: Columns whose numbers are divisors or quotients.
_ABOVE_ZERO = {"cold_ms", "warm_ms", "median_ms", "speedup", "speedup_low", "speedup_high"}

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LOGS = "logs"  # a folder above each log of kgen


def check(table: str, row: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a value that kgen never writes. The types of the columns were checked before."""
    for name, value in row.items():
        where = f"{table}.{name}"
        if (table, name) not in SOURCES:
            check_text(where, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            check_number(where, value, above_zero=name in _ABOVE_ZERO)


def check_number(where: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ``ValueError`` for a value that is no finite number, or is below zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{where} is {value!r}, which is no number")
    if value < 0 or (above_zero and value == 0):
        raise ValueError(
            f"{where} is {value!r}, and must be above zero" if above_zero else f"{where} is {value!r}, below zero"
        )


def check_numbers(where: str, values: Iterable[Any], *, above_zero: bool = False) -> None:
    """:func:`check_number` for each of the values."""
    for value in values:
        check_number(where, value, above_zero=above_zero)


def check_bursts(bursts: Iterable[Iterable[Any]]) -> None:
    """Raise ``ValueError`` for sample blocks in milliseconds that no clock measured."""
    for burst in bursts:
        samples = [float(sample) for sample in burst]
        check_numbers("timing.bursts", samples)
        if samples and not median(samples):
            raise ValueError("timing.bursts has a burst of zeros")


def check_log(where: str, log: Any) -> None:
    """Raise ``ValueError`` for a path that is no log of kgen, on any machine."""
    path = PurePosixPath(log or "")
    if log and (path.suffix != ".log" or _LOGS not in path.parts[:-1] or ".." in path.parts):
        raise ValueError(f"{where} is {log!r}, which is no log of kgen")


def check_plan(where: str, value: Any, name: str) -> None:
    """Raise ``ValueError`` for a plan that no compiler made, or whose name is not ``name``. An empty plan may have any
    name."""
    try:
        plan = Plan.from_json(value)
    except ValueError as error:
        raise ValueError(f"{where} is no plan: {error}") from error
    if plan != Plan() and plan.name != name:
        raise ValueError(f"{where} is the plan {plan.name!r:.160}, and the row's is {name!r:.160}")


def check_text(where: str, value: Any) -> None:
    """Raise ``ValueError`` for text with control characters, or that is no text, anywhere in ``value``."""
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text
        if found := _CONTROL.search(value):
            raise ValueError(f"{where} has the control character {found[0]!r}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(where, key)
            check_text(where, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_text(where, item)


def without_control_characters(text: str) -> str:
    """``text`` as :func:`check_text` takes it."""
    return _CONTROL.sub("?", text)
