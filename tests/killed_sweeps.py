"""Sweeps with cheap judges that are killed at random moments, again and again: ``python killed_sweeps.py FOLDER KILLS``.

The file ``FOLDER/graphs`` has the capture of :data:`PROBLEM`, so that no process loads torch.

Each sweep runs in a process of its own, forked from this one, which has everything loaded. It writes a line to
``FOLDER/begun`` when a candidate is about to be judged, and to ``FOLDER/told`` when it tells of a judged one.

Then two equal sweeps run at once, in ``FOLDER/equal``. The last lines tell of them: the process of the first one, the
notice of the second one, and how each ended.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from designs import CheapDesign
from judges import CheapBuilder, CheapJudge, number_of

from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import read_problem
from kgen.tuning import events, sweep

PROBLEM = replace(read_problem("linear_gelu_softmax"), mode="train")
BUDGET = 75
EQUAL_BUDGET = 12  # of the two equal sweeps
DEVICES = 3
#: A sweep is killed after so many verdicts, at most, and so many seconds more, at most; one of four sooner.
MOST_VERDICTS, LONGEST = 1, 0.03


def main(folder: Path, kills: int) -> None:
    request = sweep.SweepRequest(PROBLEM, budget=BUDGET, jobs=2)
    graphs = pickle.loads((folder / "graphs").read_bytes())
    design = CheapDesign(PROBLEM, graphs, CheapJudge(PROBLEM).hardware)
    assert design.options  # worked out once, for all of them
    sweep.capture_apart, sweep.Design = lambda problem, *_, **__: (problem, graphs), lambda *_: design
    generator = random.Random(5)
    for number in range(kills):
        verdicts = generator.randint(0, MOST_VERDICTS) if number % 4 else None
        kill(folder, request, verdicts, generator.uniform(0.0, LONGEST))
    process, _ = start(folder, request)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    print(*run_equal(folder / "equal", replace(request, budget=EQUAL_BUDGET)), sep="\n")


def run_equal(folder: Path, request: sweep.SweepRequest) -> list[object]:
    """Run two equal sweeps. The first one goes on when the second one has told that it waits."""
    folder.mkdir()
    os.environ["KGEN_HOME"] = str(folder / "runs")
    first, _ = start(folder, request, halts=True)
    os.waitpid(first, os.WUNTRACED)
    second, news = start(folder, request)
    notice = news.readline().strip()
    os.kill(first, signal.SIGCONT)
    return [first, notice, *(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in (first, second))]


def kill(folder: Path, request: sweep.SweepRequest, verdicts: int | None, seconds: float) -> None:
    """Start a sweep and kill it, ``seconds`` after it began and came to some verdicts, or after its start."""
    process, news = start(folder, request)
    for _ in range(0 if verdicts is None else 1 + verdicts):
        news.readline()
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status == -signal.SIGKILL, "the sweep ended before it was killed: give it a larger budget"
    news.close()


def start(folder: Path, request: sweep.SweepRequest, halts: bool = False) -> tuple[int, TextIO]:
    """A process that sweeps, and what it tells: a line when it begins, and one for each verdict and notice.

    One that ``halts`` stops itself when it has begun.
    """
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            code = sweep_once(folder, request, os.fdopen(write, "w", buffering=1), halts)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(write)
    return process, os.fdopen(read)


def sweep_once(folder: Path, request: sweep.SweepRequest, news: TextIO, halts: bool) -> int:
    begun, told = (open(folder / name, "a", buffering=1) for name in ("begun", "told"))

    def judge(number: int) -> CheapJudge:
        return CheapJudge(
            request.problem,
            f"cuda:{number}",
            seconds=lambda candidate: number_of(f"{number} {candidate.id}", 20) / 1000,
            tell=lambda candidate: print(candidate.id, file=begun),
            sources=CheapBuilder(seconds=0.001),
        )

    def tell(event: events.Event) -> None:
        if isinstance(event, events.Evaluated):
            print(event.candidate.id, file=told)
        if isinstance(event, events.Evaluated | events.Started | events.Notice):
            print(event.text if isinstance(event, events.Notice) else "", file=news)
        if halts and isinstance(event, events.Started):
            os.kill(os.getpid(), signal.SIGSTOP)

    finished = sweep.run(request, tell, lambda *_: DevicePool([judge(number) for number in range(DEVICES)]))
    return 0 if finished.state == "finished" else 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
