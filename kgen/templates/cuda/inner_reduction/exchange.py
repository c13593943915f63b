"""Results of blocks that share a row: where each block leaves them for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kgen.codegen.combines import PLACE, WHOLE
from kgen.codegen.template import Argument
from kgen.templates.cuda.inner_reduction.schedule import InnerReduction

Result = tuple[str, str, str]  #: its name, its C type, and its value before any column


@dataclass(frozen=True)
class Partial:
    """A result, and the memory of the parts that blocks of a row find of it, as C; clusters need none."""

    name: str
    type: str
    start: str
    memory: str


class Exchange:
    """The workspace of blocks that share rows: a counter of arrivals for each row, then the parts of each result.

    A team has one for each of its rounds, since it writes to one half while slower blocks may still read the other.
    ``counters`` is the number of counters, empty where blocks need no workspace.
    """

    def __init__(self, schedule: InnerReduction, results: Sequence[Result]) -> None:
        self.counters, self.arguments = "", ()
        if schedule.merge not in ("team", "last_block"):
            return
        size, team = schedule.program.row_size, schedule.merge == "team"
        rows = self.counters = str(schedule.teams) if team else "rows" if not isinstance(size, int) else str(size)
        self._first = f"({rows} + 1) / 2 * 2" if rows == "rows" else str((int(rows) + 1) // 2 * 2)
        wide = any(type_ in (PLACE, WHOLE) for _, type_, _ in results)
        self._part = f"{(2 if wide else 1) * (2 if team else 1) * schedule.blocks} * {rows}"
        self._used = 0
        parts = sum(len(r.names) for r in schedule.program.reductions)
        self.arguments = (Argument("workspace", "workspace", size=f"({rows} + 1) // 2 * 2 + {parts} * {self._part}"),)

    def partials(self, results: Sequence[Result]) -> list[Partial]:
        """The results with memory of their own."""
        return [Partial(*result, self._memory(result[1])) for result in results]

    def _memory(self, type_: str) -> str:
        if not self.counters:
            return ""
        at = f"workspace + {self._first}" + (f" + {self._used} * {self._part}" if self._used else "")
        self._used += 1
        return f"reinterpret_cast<{type_}*>({at})" if type_ != "float" else at
