"""The driver of a sweep on a cluster with cheap judges: ``python cluster_sweeps.py ADDRESS BUDGET GRAPHS``.

It prints one line for each candidate that it tells of. Judges write ``KGEN_HOME/begun`` when a candidate begins, and
``KGEN_HOME/actors`` when they start. The file ``GRAPHS`` has the problem's capture, so that no process loads torch.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from designs import CheapDesign
from judges import CheapBuilder, CheapJudge, number_of

from kgen import paths
from kgen.candidate import Candidate
from kgen.cluster import host
from kgen.cluster.devices import open_devices
from kgen.cluster.fleet import opened
from kgen.cluster.host import Asked, Built, Library
from kgen.evaluator.pool import DeviceEvaluator
from kgen.problems.problem import read_problem
from kgen.protocol import BuildReport
from kgen.tuning import events, sweep

DEVICES = 2
SECONDS = 0.1  #: of a candidate, in the mean


def note(file: str, line: object) -> None:
    paths.home().mkdir(parents=True, exist_ok=True)
    with open(paths.home() / file, "a", buffering=1) as out:
        print(line, file=out)


class Sources(CheapBuilder):
    """Libraries are written beside the database; no judge looks at them."""

    directory = paths.home()


class Judge(CheapJudge):
    """Tells of its process when it starts, and of each candidate that it begins."""

    def start(self) -> None:
        note("actors", os.getpid())

    def evaluate(self, candidate: Candidate, build: BuildReport) -> object:
        note("begun", candidate.id)
        time.sleep(2 * SECONDS * number_of(f"{os.getpid()} {candidate.id}", 100) / 100)
        return super().evaluate(candidate, build)


def make(asked: Asked, notice: host.Tell, step: host.Tell) -> DeviceEvaluator:
    return Judge(asked.problem, "cpu", sources=Sources())


def build(source: str, device_type: str, arch: str) -> tuple[Built, Library]:
    """A build that takes no time."""
    return Built("", Judge(PROBLEM).builder().build(source)), Library("library", b"a library")


PROBLEM = replace(read_problem("linear_gelu_softmax"), mode="train")


def main(address: str, budget: int, file: Path) -> int:
    graphs = pickle.loads(file.read_bytes())
    sweep.capture_apart, sweep.Design, host.build = lambda problem, *_, **__: (problem, graphs), CheapDesign, build
    with opened(address, "cpu", print) as (_, fleet):
        request = sweep.SweepRequest(PROBLEM, device=fleet.device, budget=budget, jobs=2, strategy="random")

        def tell(event: events.Event) -> None:
            if isinstance(event, events.Evaluated):
                print("told", event.candidate.id, event.device, flush=True)

        return 0 if sweep.run(request, tell, open_devices(fleet, DEVICES, make)).state == "finished" else 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
