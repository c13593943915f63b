"""The table of a network's kernels: equal kernels of the best candidate are one row, those that take longest first."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.views.report.sections import Section


@dataclass(frozen=True)
class Kernel:
    """A kernel or a library call with its ``uses``. ``ms`` and ``share`` add up all uses.

    ``of_limit`` is the share of the roofline. ``how`` is the variant, or why it is a library call.
    """

    label: str
    uses: int
    ms: float | None
    share: float | None
    of_limit: float | None
    library: bool
    how: str


def kernels(section: Section) -> tuple[Kernel, ...]:
    """The kernels of a section's best candidate; none where it was not assembled."""
    rows: dict[tuple[str, str], list] = {}
    for step in section.steps:
        rows.setdefault((step.task, step.reason), []).append(step)
    found = []
    for (_, reason), steps in rows.items():
        first, times, shares = (
            steps[0],
            [s.ms for s in steps if s.ms is not None],
            [s.share for s in steps if s.share is not None],
        )
        how = reason or (first.variant.name if first.variant else "")
        found.append(
            Kernel(
                first.label,
                len(steps),
                sum(times) if times else None,
                sum(shares) if shares else None,
                first.of_limit,
                bool(reason),
                how,
            )
        )
    return tuple(sorted(found, key=lambda row: (-(row.ms or 0.0), row.label)))
