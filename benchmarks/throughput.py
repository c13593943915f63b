"""Candidates per minute of whole sweeps, beside a plain pipeline with one Python process and build per candidate.

    python benchmarks/throughput.py [--device cuda] [--device cuda:0,cuda:1] [--budget 64] [--plain 2]

Each device has two sweeps, started as a user starts them: one with empty build folders, and one with ``--fresh`` that
finds everything built. Both use the strategy ``random``, because the points of a learning strategy depend on times. The
script counts candidates that were validated and timed in that sweep. It measures the search only: it ends a sweep when
the finals begin, because their time does not depend on the number of candidates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from _record import ROOT, Cell, record

from kgen.problems.problem import Problem, read_problem

NAME = "linear_gelu_softmax"
#: The sizes of the problem by device type.
SIZES = {
    "cuda": {"batch_size": "1024"},
    "cpu": {"batch_size": "1024", "in_features": "256", "out_features": "8192"},
}
BUDGET = {"cuda": 64, "cpu": 24}  # candidates of a sweep, by device type
GOAL = {"cuda": 20, "cpu": 10}  # times the plain pipeline, by device type
PLAIN = Path(__file__).parent / "_plain.py"


@dataclass(frozen=True)
class Measured:
    """The search of one sweep: seconds from the start of its process, and numbers of candidates."""

    setup: float  #: seconds until the first evaluation
    whole: float  #: seconds until the last evaluation
    timed: int  #: candidates that were validated and timed
    judged: int
    built: int  #: candidates that had to be compiled
    order: list[str]  #: right candidates that had to be compiled

    @property
    def per_minute(self) -> float:
        """Candidates per minute over the whole search, set-up included."""
        return 60 * self.timed / self.whole

    @property
    def steady(self) -> float:
        """Candidates per minute after the first evaluation."""
        return 60 * (self.timed - 1) / (self.whole - self.setup)


def sweep(device: str, home: Path, budget: int, baselines: str, *extra: str) -> Measured:
    """Run ``kgen sweep`` until its finals begin."""
    kind = device.partition(":")[0]
    sizes = [word for name, value in SIZES[kind].items() for word in ("-D", f"{name}={value}")]
    words = ["sweep", NAME, *sizes, "--device", device, "--strategy", "random", "--budget", str(budget)]
    words += ["--baselines", baselines, "--json"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "KGEN_HOME": str(home), "PYTHONPATH": path}
    environment.pop("KGEN_DB", None)
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "kgen", *words, *extra], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    verdicts, compiled = [], set()
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "built" and not event["cached"] and event["seconds"]:
            compiled.add(event["candidate"])
        if event["event"] == "notice":
            print(event["text"], flush=True)
        if event["event"] == "evaluated":
            verdicts.append((time.monotonic() - started, event))
        if event["event"] == "finals":
            process.send_signal(signal.SIGINT)
    process.wait()
    right = [event["candidate"] for _, event in verdicts if event["status"] == "ok" and not event["taken_over"]]
    order = [candidate for candidate in right if candidate in compiled]
    return Measured(verdicts[0][0], verdicts[-1][0], len(right), len(verdicts), len(compiled), order)


def plain_seconds(problem: Problem, home: Path, device: str, candidates: list[str]) -> Iterator[float]:
    """The seconds of the plain pipeline for each candidate, with an empty build folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.py"
        file.write_text(problem.source)
        for candidate in candidates:
            path = home / "candidates" / candidate[:2] / f"{candidate}.py"
            environment = {**os.environ, "TORCH_EXTENSIONS_DIR": f"{folder}/{candidate}"}
            started = time.monotonic()
            subprocess.run([sys.executable, str(PLAIN), str(file), str(path), device], env=environment, check=True)
            yield time.monotonic() - started


def row(device: str, builds: str, measured: Measured, plain: float | None) -> dict[str, Cell]:
    """A row of the table; ``plain`` is the plain pipeline's time per candidate in seconds."""
    return {
        "device": device,
        "builds": builds,
        "validated and timed": measured.timed,
        "of": measured.judged,
        "compiled": measured.built,
        "first verdict, s": measured.setup,
        "search, s": measured.whole,
        "per minute": measured.per_minute,
        "per minute after the first": measured.steady,
        "x plain": plain and measured.per_minute * plain / 60,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", help="one of those of kgen sweep; may be repeated (default: cpu)")
    parser.add_argument("--budget", type=int, help="candidates of each sweep, for one device; more get as many each")
    parser.add_argument("--baselines", default="eager")
    parser.add_argument("--plain", type=int, default=2, help="candidates for the plain pipeline")
    parser.add_argument("--cold-only", action="store_true", help="skip the sweeps that find everything built")
    parser.add_argument("--name", help="of the record (default: throughput_cpu or throughput_cuda)")
    arguments = parser.parse_args()
    devices = arguments.device or ["cpu"]
    kind = devices[0].partition(":")[0]
    budget = arguments.budget or BUDGET[kind]
    measured: list[tuple[str, str, Measured]] = []
    plain: list[float] = []
    for device in devices:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            count = budget * (1 + device.count(","))
            cold = sweep(device, home, count, arguments.baselines)
            measured.append((device, "none", cold))
            if not arguments.cold_only:
                measured.append((device, "all", sweep(device, home, count, arguments.baselines, "--fresh")))
            if not plain and arguments.plain:
                problem = read_problem(NAME, SIZES[kind])
                plain = list(plain_seconds(problem, home, kind, cold.order[: arguments.plain]))
        print(*itertools.chain(measured[-2:]), plain, sep="\n", flush=True)
    seconds = mean(plain) if plain else None
    rows = [row(*one, seconds) for one in measured]
    compared = (
        f" The plain pipeline takes {seconds:.1f} s for a candidate, {60 / seconds:.2f} per minute, one after the other "
        f"(mean of {len(plain)}: {', '.join(f'{s:.1f}' for s in plain)} s); the goal is {GOAL[kind]} times that."
        if seconds
        else ""
    )
    notes = (
        f"{NAME}, {', '.join(f'{k}={v}' for k, v in SIZES[kind].items())}; baselines: {arguments.baselines}; random candidates. "
        "Counted are candidates that were validated and timed in that sweep, per minute of its search: from the start of "
        "its process, and after its first evaluation. Finals are left out. `builds`: the builds that existed before." + compared
    )
    record(arguments.name or f"throughput_{kind}", "Candidates per minute", rows, notes)


if __name__ == "__main__":
    main()
