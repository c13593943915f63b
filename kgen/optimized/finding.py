"""Finding: the submodules that take the time of a forward, each kind once.

one forward, timed by hooks ──> Hot(paths of equal submodules, a call of them, their share of the time)
"""

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Iterator

from torch import nn

from kgen.devices.runtime import wait_for
from kgen.optimized.calls import copied, is_ordinary, tensors_of
from kgen.optimized.fingerprint import fingerprint
from kgen.optimized.trial import apart

LEAST_SHARE = 0.05  #: of the time of a forward; submodules that take less are left as they are


@dataclass
class Hot:
    """Submodules that are equal and are called alike. ``share`` is theirs together, of the forward's time."""

    name: str
    paths: list[str]
    call: tuple[tuple[Any, ...], dict[str, Any]] = field(repr=False)
    share: float = 0.0


@dataclass
class _Visit:
    path: str
    module: nn.Module
    call: Any
    started: float
    seconds: float = 0.0


def hot(module: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Hot]:
    """The kinds of submodules that take at least :data:`LEAST_SHARE` of a forward, those with the largest share
    first."""
    visits = [*_visits(module, call)]
    whole = sum(v.seconds for v in visits if v.path == "") or 1.0
    kinds: dict[str, Hot] = {}
    for visit in visits:
        given = [visit.call[0], visit.call[1]]
        if visit.path == "" or not tensors_of(given) or not is_ordinary(given):
            continue
        key = fingerprint(visit.module, [visit.call], ())
        kind = kinds.setdefault(key, Hot(type(visit.module).__name__, [], visit.call))
        if visit.path not in kind.paths:
            kind.paths.append(visit.path)
        kind.share += visit.seconds / whole
    return sorted((k for k in kinds.values() if k.share >= LEAST_SHARE), key=lambda k: -k.share)


def children_of(kind: Hot, kinds: list[Hot]) -> list[Hot]:
    """The kinds whose submodules stand right below those of a kind, with none of another kind between."""
    below = [other for other in kinds if any(p.startswith(f"{q}.") for p in other.paths for q in kind.paths)]
    inner = {
        id(o)
        for o in below
        for b in below
        if o is not b and any(p.startswith(f"{q}.") for p in o.paths for q in b.paths)
    }
    return [other for other in below if id(other) not in inner]


def tops(kinds: list[Hot]) -> list[Hot]:
    """The kinds that stand below no other one."""
    return [
        k
        for k in kinds
        if not any(p.startswith(f"{q}.") for o in kinds if o is not k for p in k.paths for q in o.paths)
    ]


def _visits(module: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Iterator[_Visit]:
    """The calls of submodules in one forward, with their times."""
    found: list[_Visit] = []
    open_visits: list[_Visit] = []
    wait = partial(wait_for, [x.device for x in tensors_of([*call[0], *call[1].values()])])
    handles = []

    def before(path: str) -> Any:
        def hook(part: nn.Module, args: Any, kwargs: Any) -> None:
            wait()
            visit = _Visit(path, part, (args, kwargs), time.perf_counter())
            open_visits.append(visit)
            found.append(visit)

        return hook

    def after(*_: Any) -> None:
        wait()
        visit = open_visits.pop()
        visit.seconds = time.perf_counter() - visit.started

    try:
        for path, part in module.named_modules():
            handles.append(part.register_forward_pre_hook(before(path), with_kwargs=True))
            handles.append(part.register_forward_hook(after))
        with apart(module):
            for _ in range(2):  # the first one warms up
                found.clear()
                open_visits.clear()
                args, kwargs = copied(call)
                module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    yield from found
