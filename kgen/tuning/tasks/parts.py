"""The steps of options, each with its task: what a network's tuning is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kgen.store.kernel_task import THE_LIBRARY, Variant
from kgen.store.tasks import NewTask
from kgen.tuning.search import KernelSpace
from kgen.tuning.tasks.task import KernelTask


@dataclass(frozen=True)
class Part:
    """One step of an option. ``space`` has the combinations of a kernel; a library call has none.

    ``name`` is the kernel's prefix in a candidate's parameters, or the operator of a library call, and ``reason`` says
    why that is one. ``operators`` are the step's. ``task`` is ``None`` where it does not stand alone. Times are
    predicted milliseconds.
    """

    task: KernelTask | None
    name: str
    operators: str
    space: KernelSpace | None
    schedule: str
    ms: float
    limit_ms: float
    reason: str = ""

    def left(self, reason: str) -> Part:
        """The step of a kernel that is left to the library."""
        return replace(self, name=self.operators, space=None, schedule="", reason=reason)

    def variants(self) -> Iterator[Variant]:
        """The variants that a candidate of the option may have here, the simplest first."""
        if self.space is None:
            yield THE_LIBRARY
        for params in self.space or ():
            yield Variant.of(self.schedule, params)


@dataclass(frozen=True)
class Catalogue:
    """The steps of the options that are worth tuning, by the option's number in the design."""

    options: dict[int, tuple[Part, ...]]
    best: int  #: the option with kernels that is predicted to be fastest

    @property
    def tasks(self) -> dict[str, list[Part]]:
        """The steps of all options by the id of their task. The option that is predicted best comes first."""
        found: dict[str, list[Part]] = {}
        for number in sorted(self.options, key=lambda number: number != self.best):
            for part in self.options[number]:
                if part.task:
                    found.setdefault(part.task.id, []).append(part)
        return found

    @property
    def stored(self) -> list[NewTask]:
        """The tasks as the database keeps them."""
        uses = self.uses
        return [
            NewTask(part.task.key, part.task.label, part.limit_ms, uses[key])
            for key, (part, *_) in self.tasks.items()
            if part.task
        ]

    @property
    def uses(self) -> Counter[str]:
        """How many steps of an option are a task, at most."""
        counts = [Counter(part.task.id for part in parts if part.task) for parts in self.options.values()]
        found: Counter[str] = Counter()
        for count in counts:
            found |= count
        return found
