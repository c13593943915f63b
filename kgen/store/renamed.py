"""Names that revisions before 0004 stored, and their names since: of schedules, operators, parameters and constraints.

Histories in JSON Lines of format 1 have the old names, too. The names since are those of revision 0004: a later
renaming is a revision and a table of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Mapping

_SCHEDULES = {
    "gemm": "contraction",
    "map": "pointwise",
    "row": "inner_reduction",
    "column": "outer_reduction",
}
_OPERATORS = {"statistics": "moments"}
_PARAMETERS = {"interval": "promotion_interval", "band": "swizzle_group"}
_CONSTRAINTS = {
    "interval_of_one": "promotion_of_one_product",
    "intervals": "promotion_intervals",
    "multicast_of_parts": "multicast_of_splits",
    "one_band": "one_swizzle_group",
    "one_interval": "one_promotion",
    "parts_of_large_tiles": "splits_of_large_tiles",
    "parts_to_fill": "splits_to_fill",
    "short_parts": "short_splits",
}

_KERNEL = re.compile(rf"\b({'|'.join(_SCHEDULES)})\[([^\]]*)\]")
_PARAMETER = re.compile(rf"((?:train\.|eval\.)?k\d+)\.({'|'.join(_PARAMETERS)})")


def plan(name: str) -> str:
    """The name of a plan, with the schedules and operators of its kernels as they are called now."""

    def kernel(found: re.Match[str]) -> str:
        operators = (_OPERATORS.get(operator, operator) for operator in found[2].split(", "))
        return f"{_SCHEDULES[found[1]]}[{', '.join(operators)}]"

    return _KERNEL.sub(kernel, name)


def params(old: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate's parameters, in their order, with their names as they are now."""
    return {_parameter(name): value for name, value in old.items()}


def _parameter(name: str) -> str:
    found = _PARAMETER.fullmatch(name)
    return f"{found[1]}.{_PARAMETERS[found[2]]}" if found else name


def rejection(old: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a rejection with its names as they are now, and the key that follows from them."""
    new = {
        **old,
        "plan": plan(old["plan"]),
        "constraint_name": _CONSTRAINTS.get(old["constraint_name"], old["constraint_name"]),
        "params": params(old["params"]),
    }
    canonical = json.dumps(new["params"], sort_keys=True, separators=(",", ":"))
    text = "\0".join((new["plan"], new["constraint_name"], canonical))
    return {**new, "key": hashlib.sha256(text.encode()).hexdigest()[:32]}


def candidate(old: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a rendered candidate with its names as they are now. A file from outside keeps its own."""
    if old["origin"] != "sweep":
        return dict(old)
    return {**old, "plan": plan(old["plan"]), "params": params(old["params"])}
