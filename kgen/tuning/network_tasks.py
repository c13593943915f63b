"""The kernel tasks of a network: tuned behind the first whole candidates of a sweep, and the times of options from
them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from traceback import format_exception
from typing import Callable, Sequence

from kgen import paths
from kgen.devices.kinds import KINDS
from kgen.evaluator.pool import SourceBuilder
from kgen.store import Database, tasks
from kgen.tuning import events
from kgen.tuning.design import Design
from kgen.tuning.network import LIKELY, catalogue, with_library, with_regions
from kgen.tuning.search import Point
from kgen.tuning.tasks import assembly
from kgen.tuning.tasks.bench import Place
from kgen.tuning.tasks.parts import Catalogue
from kgen.tuning.tasks.task import KernelTask, TaskMaker
from kgen.tuning.tasks.tuner import Tuner

_UNLIKE = 4  #: a plan with 4 times as many kernels as another one, or a quarter of them, is unlike it


def opening(design: Design) -> list[Point]:
    """The simplest points of the plan that is predicted best, of the best with fewer kernels, and of a likely one
    unlike it.

    They are first results of a network. The last one leaves to the library what the first one computes, or the other
    way round.
    """
    options = design.options
    own = sorted(
        (n for n, o in enumerate(options) if o.kernels and o.plainest is not None),
        key=lambda n: options[n].predicted_ms,
    )
    fewer = [n for n in own if len(options[n].kernels) < len(options[own[0]].kernels)]
    likely = [n for n in own if options[n].predicted_ms <= LIKELY * options[own[0]].predicted_ms]
    unlike = [n for n in likely if _are_unlike(len(options[n].kernels), len(options[own[0]].kernels))]
    return [Point(n, options[n].plainest or ()) for n in dict.fromkeys((*own[:1], *fewer[:1], *unlike[:1]))]


def _are_unlike(a: int, b: int) -> bool:
    return max(a, b) >= _UNLIKE * min(a, b)


@dataclass
class NetworkTasks:
    """The tasks of the likely options of ``design``, measured at ``place``; the database keeps them for the
    ``sweep``."""

    design: Design
    place: Place
    builder: SourceBuilder
    jobs: int
    database: Database
    sweep: str
    fresh: bool
    on_event: events.Listener
    catalogue: Catalogue | None = None  # once the tasks are tuned
    results: assembly.Results = field(default_factory=dict)

    def option_times(
        self, judge_first: Callable[[], None], until: Callable[[], float | None]
    ) -> dict[int, assembly.OptionTimes] | None:
        """Judge the first candidates, then tune the tasks ``until`` a time. Returns the times of the design's options.

        Beside an accelerator, tasks are built from the start. ``None`` where there is no plan with kernels, or too
        little time.
        """
        beside = KINDS[self.design.hardware.device_type].accelerator
        with ThreadPoolExecutor(1, thread_name_prefix="kgen-tasks") as thread:
            making = thread.submit(self._tuner, start=True) if beside else None
            try:
                judge_first()
                end = until()
                if end is None or not any(option.kernels for option in self.design.options):
                    return None
                tuner = making.result() if making else self._tuner()
                try:
                    tuner.run(end)
                finally:
                    tuner.close()
            finally:
                if making and not making.cancel() and making.exception() is None:
                    making.result().close()
        self.on_event(events.Step("trying candidates of the best kernels"))
        self.results = {key: work.found for key, work in tuner.works.items()}
        put_together = with_regions(self.design, tuner.catalogue, self.results, self._maker)
        self.catalogue = with_library(self.design, put_together, self.results)
        # Options that are put together have calls of the library that no other option has.
        tasks.add_tasks(self.database, self.sweep, self.catalogue.stored)
        return assembly.option_times(self.catalogue, self.results)

    def steps(self, point: Point) -> Sequence[assembly.Step] | None:
        """The steps of a candidate with their tasks; ``None`` before the tasks are tuned."""
        return None if self.catalogue is None else assembly.steps(self.catalogue, self.results, point)

    def _tuner(self, start: bool = False) -> Tuner:
        tuner = Tuner(
            catalogue(self.design, self.place.environment, self._maker),
            self.place,
            self.builder,
            self.database,
            self.sweep,
            jobs=self.jobs,
            home=paths.home(),
            fresh=self.fresh,
            on_event=self.on_event,
            failed=self._leave_out,
        )
        if start:
            tuner.start()
        return tuner

    @cached_property
    def _maker(self) -> TaskMaker:
        return TaskMaker(self.design.hardware, self.design.accuracy, self.place.environment)

    def _leave_out(self, task: KernelTask, error: Exception) -> None:
        """Leave a task out of which no file renders: that is a bug of kgen."""
        log = paths.bug_report(self.sweep, f"{task.label}\n{''.join(format_exception(error))}")
        text = f"the kernel {task.label} is not tuned: {error}; this is a bug in kgen: please report it, with {log}"
        self.on_event(events.Notice(text))
