"""Versions of namespaces: CPython counts the changes of each dict until 3.13 (PEP 509)."""

import ctypes
import gc
import sys
from typing import Any, Mapping

_OFFSET = 24  # bytes of a dict's version in its object


def version_of(space: Mapping[str, Any]) -> memoryview:
    """The memory of a namespace's version, which differs after each change. ``space`` is a dict or a class's view of
    one."""
    found = space if isinstance(space, dict) else next(one for one in gc.get_referents(space) if isinstance(one, dict))
    return memoryview(ctypes.c_uint64.from_address(id(found) + _OFFSET))


def tells_changes() -> bool:
    """Whether this Python keeps versions, seen from changes of a dict and of a class."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False
    some: dict[str, int] = {"a": 1}
    kind = type("Kind", (), {"a": 1})
    of_dict, of_class = version_of(some), version_of(vars(kind))
    seen = [bytes(of_dict)]
    for change in (lambda: some.update(a=2), lambda: some.update(b=1), lambda: some.pop("b"), some.clear):
        change()
        seen.append(bytes(of_dict))
    before = bytes(of_class)
    kind.a = 2  # type: ignore[attr-defined]
    return len(set(seen)) == len(seen) and bytes(of_dict) == seen[-1] and bytes(of_class) != before
