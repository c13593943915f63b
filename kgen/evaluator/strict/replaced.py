"""The operators of a problem that a foreign candidate replaces: those that its own forward does not call."""

from collections import Counter
from typing import Any, Mapping

from kgen.evaluator.candidates.checks import Operators
from kgen.evaluator.correctness.validate import Failure
from kgen.protocol import Phase, Status

_MOST_NAMES, _NAME_CHARACTERS = 3, 80  # of kernels that are told


def called(answer: Mapping[str, Any]) -> Counter[str]:
    """The operators that a forward called, with their numbers, from a worker's answer. Raises :class:`Failure` for
    another one."""
    found = answer.get("operators")
    if not isinstance(found, dict) or not all(type(count) is int and count > 0 for count in found.values()):
        raise Failure(Status.SUSPICIOUS, "its operators are not counted", Phase.TIME)
    return Counter(found)


def unread_labels(answer: Mapping[str, Any]) -> list[str]:
    """Remarks on kernels that could be left out, from a worker's answer, which may hold anything."""
    names = answer.get("unread")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    shown = ("".join(c for c in name if c.isprintable())[:_NAME_CHARACTERS] for name in names[:_MOST_NAMES])
    return [f"nothing reads the result of {name}" for name in shown]


def share(problem: Operators, calls: Counter[str]) -> float | None:
    """The share of a problem's operators that a candidate with these ``calls`` replaces; ``None`` for a problem without
    any."""
    count = sum(problem.calls.values())
    return (Counter(problem.calls) - calls).total() / count if count else None


def labels(problem: Operators, calls: Counter[str]) -> list[str]:
    """Remarks on kernels that replace no operator, or a trivial one alone."""
    missing, count = Counter(problem.calls) - calls, sum(problem.calls.values())
    if count and not missing:
        return [
            f"replaces none of the problem's operators: calls the library for {'it' if count == 1 else f'all {count}'}"
        ]
    if missing.total() == 1 < count and missing.keys() <= set(problem.elementwise):
        return [f"replaces one trivial operator of {count}: {next(iter(missing))}"]
    return []
