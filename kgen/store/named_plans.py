"""Plans of revisions before 0005 and of histories before format 3, which stored their names alone.

    linear(library) + SCHEDULE[gelu, softmax] after merge_affine        one mode
    train: ... / eval: ...                                              a plan for each of both modes

Only the migration and the import of older files read names. The names are those of revision 0004.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from kgen.candidate import Plan

_STEP = re.compile(r"(?P<schedule>[\w.]+)\[(?P<operators>[^\[\]]*)\]|(?P<call>[\w.]+)\(library\)")
_BOTH_MODES = re.compile(r"train: (?P<train>.*) / eval: (?P<eval>.*)")


def read(name: str) -> Plan:
    """The plan of a name; no plan where the text is no plan's name."""
    both = _BOTH_MODES.fullmatch(name)
    plan = Plan.of_modes([(mode, _of_mode(text)) for mode, text in (both.groupdict() if both else {"": name}).items()])
    try:
        return Plan.from_json(plan.to_json()) if plan.name == name else Plan()
    except ValueError:
        return Plan()


def _of_mode(name: str) -> Plan:
    """The plan of one mode; texts that are no step are left out."""
    shown, _, rewrites = name.partition(" after ")
    found = filter(None, map(_STEP.fullmatch, shown.split(" + ")))
    steps = [
        ("", [step["call"]]) if step["call"] else (step["schedule"], step["operators"].split(", ")) for step in found
    ]
    return Plan.of_mode(steps, rewrites.split(", ") if rewrites else ())


def candidate(old: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a candidate with its plan. A file from outside has none."""
    return {**old, "plan_data": read(old["plan"]).to_json() if old["origin"] == "sweep" else {}}
