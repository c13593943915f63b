"""The page: one file of HTML with all sections, the rows of their charts, and the scripts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Mapping, Sequence

from kgen.protocol import __version__
from kgen.store import effects
from kgen.store.scores import Score
from kgen.views import text
from kgen.views.report import ceilings, charts, highlight, leaders as table, library, rows, suite, suite_charts
from kgen.views.report.ceilings import Reached, Roof
from kgen.views.report.kernels import Kernel, kernels
from kgen.views.report.leaders import Leader, Scale
from kgen.views.report.sections import Section

if TYPE_CHECKING:
    import jinja2

_FOLDER = Path(__file__).parent

_SUITE_ROWS = ("scored", "curve", "marked")  #: names of the rows of the charts about all problems


@dataclass(frozen=True)
class Detail:
    """The amount of detail for each problem.

    ``cells`` is the size of the grid that thins points out. ``behind`` is that for the points behind the best so far.
    ``lines`` is the number of sweeps there, and ``leaders`` that of candidates in the table. ``whole`` adds parameters
    and source.
    """

    cells: int
    behind: int
    lines: int
    leaders: int
    whole: bool


FULL, BRIEF = Detail(48, 48, 6, 15, True), Detail(10, 4, 2, 5, False)

MOST_IN_FULL = 8  #: problems; with more of them, each is shown in brief, so that the page stays small


@dataclass(frozen=True)
class Data:
    """The rows of all charts of one section; an empty chart has none.

    ``candidates`` are described once, by the beginning of their id.
    """

    candidates: Mapping[str, rows.Named]
    points: tuple[rows.Point, ...]
    limits: tuple[rows.Limit, ...]
    beyond: tuple[rows.Beyond, ...]
    tried: tuple[rows.Point, ...]
    steps: tuple[rows.Step, ...]
    plans: tuple[rows.GroupRow, ...]
    parameters: tuple[rows.PlanRows, ...]
    roofs: tuple[Roof, ...]
    reached: tuple[Reached, ...]
    failures: tuple[rows.Count, ...]
    rejections: tuple[rows.Count, ...]

    @classmethod
    def of(cls, section: Section, detail: Detail) -> Data:
        """The rows of a section's charts."""
        plans = effects.plans(section.right, section.best.trial)
        basis = ceilings.basis(section)
        points = rows.points(section, detail.cells)
        limits, beyond = rows.limits(section, points)
        found = cls(
            candidates={},
            points=points,
            limits=limits,
            beyond=beyond,
            tried=rows.tried(section, detail.lines, detail.behind),
            steps=rows.steps(section, detail.lines),
            plans=tuple(rows.group(plan.whole) for plan in plans),
            parameters=tuple(rows.parameters(plan) for plan in plans if plan.parameters and detail.whole),
            roofs=ceilings.roofs(section, basis) if basis else (),
            reached=ceilings.reached(section, basis) if basis else (),
            failures=tuple(map(rows.failure, section.failures)),
            rejections=tuple(map(rows.rejection, section.rejections)),
        )
        return replace(found, candidates=rows.named(section, found._shown()))

    def _shown(self) -> Iterator[str]:
        """The candidates that the rows name."""
        for row in (*self.points, *self.tried, *self.steps, *self.plans, *self.reached):
            yield row.candidate
        for plan in self.parameters:
            for group in chain.from_iterable(parameter.groups for parameter in plan.parameters):
                yield group.candidate
            for cell in chain.from_iterable(pair.cells for pair in plan.pairs):
                yield cell.candidate


@dataclass(frozen=True)
class Part:
    """A section with all data of its part of the page."""

    section: Section
    detail: Detail
    data: Data
    leaders: tuple[Leader, ...]
    scale: Scale
    kernels: tuple[Kernel, ...]
    source: str | None  #: as HTML

    @classmethod
    def of(cls, section: Section, detail: Detail) -> Part:
        """The part of a section."""
        leaders = table.leaders(section, detail.leaders)
        source = highlight.html(section.source) if section.source is not None and detail.whole else None
        return cls(section, detail, Data.of(section, detail), leaders, table.scale(leaders), kernels(section), source)


def render(sections: Sequence[Section], database: str, scores: Sequence[Score] = ()) -> str:
    """The whole page; ``database`` names its origin. The page loads nothing and needs no server.

    ``scores`` of several problems are drawn together.
    """
    together = suite.of(scores, sections) if len(scores) > 1 else None
    detail = FULL if len(sections) <= MOST_IN_FULL else BRIEF
    parts = [Part.of(section, detail) for section in sections]
    template = _environment().get_template("page.html.j2")
    return template.render(
        parts=parts,
        suite=together,
        page={
            "charts": {**charts.CHARTS, **suite_charts.CHARTS},
            "config": charts.CONFIG,
            "sections": [asdict(part.data) for part in parts],
            "suite": together and {name: list(map(asdict, getattr(together, name))) for name in _SUITE_ROWS},
        },
        library=library.javascript(),
        styles=highlight.styles(),
        database=database,
        version=__version__,
        now=datetime.now(timezone.utc),
    )


def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["text"] = text
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
