"""Candidates per minute of whole sweeps, beside a plain pipeline that starts a Python and a build for each of them.

    python benchmarks/throughput.py [--device cuda] [--device cuda:0,cuda:1] [--budget 64] [--plain 2]

Two sweeps for each device: one that has nothing built, one with ``--fresh`` that finds everything built, which is why
candidates are drawn at random: those of a search that learns depend on times. Each is a process as a user would start
it. Counted are candidates that were validated and timed in that very sweep. The search is
what is measured: a sweep is ended when its finals begin, which take the same time however many candidates there were.
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

from kgen.problem import Problem, read_problem

NAME = "linear_gelu_softmax"
#: The sizes of the problem: on the CPU, those of the other benchmarks there.
SIZES = {
    "cuda": {"batch_size": "1024"},
    "cpu": {"batch_size": "1024", "in_features": "256", "out_features": "8192"},
}
BUDGET = {"cuda": 64, "cpu": 24}
GOAL = {"cuda": 20, "cpu": 10}  #: times the plain pipeline
PLAIN = Path(__file__).parent / "_plain.py"


@dataclass(frozen=True)
class Measured:
    """A sweep's search: seconds from the start of its process, and candidates that it validated and timed."""

    setup: float  #: until the first verdict
    whole: float  #: until the last verdict
    timed: int
    judged: int
    built: int  #: of them not found built
    order: list[str]  #: candidates that were right and had something to compile

    @property
    def per_minute(self) -> float:
        """Over the whole search, all that is set up once included."""
        return 60 * self.timed / self.whole

    @property
    def steady(self) -> float:
        """From the first verdict on."""
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
    """Seconds of the plain pipeline for each candidate, built from nothing."""
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
    parser.add_argument("--cold-only", action="store_true", help="leave the sweeps out that find everything built")
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
        f"{NAME}, {', '.join(f'{k}={v}' for k, v in SIZES[kind].items())}; baselines: {arguments.baselines}; drawn candidates. Those "
        "that were validated and timed in that sweep, per minute of its search from the start of its process, and from "
        "its first verdict on; finals are left out. `builds`: what was built already." + compared
    )
    record(arguments.name or f"throughput_{kind}", "Candidates per minute", rows, notes)


if __name__ == "__main__":
    main()
