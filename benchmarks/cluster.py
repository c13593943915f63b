"""The costs of a Ray cluster: the time that the engine adds to a candidate, the rate on many devices, equal verdicts.

    python benchmarks/cluster.py engine | devices | verdicts | gpu

`engine`: candidates whose judge answers at once, on one device with and without a cluster. `devices`: 1,000 candidates on
16 simulated devices, whose judges answer after a drawn time. `verdicts`: a suite of 8 small problems with and without a
cluster of two local nodes. `gpu`: candidates per minute of sweeps on this machine's GPU, and on a cluster of this machine
alone. Each part has a record of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import throughput
from _record import ROOT, Cell, record

from kgen.candidate import Candidate
from kgen.cluster import host
from kgen.cluster.devices import open_devices
from kgen.cluster.fleet import opened
from kgen.cluster.host import Built, Library
from kgen.devices import hardware
from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import Problem, read_problem
from kgen.protocol import Accuracy, BuildReport, Depth, Environment, Evaluation, Health, Status, Timing
from kgen.tuning import events, sweep

MEAN_SECONDS = 0.2  # of a simulated judge
DEVICES, CANDIDATES = 16, 1000
DEVICES_RUNS = 3
START_SECONDS = 60.0  # for all simulated devices
ENGINE_CANDIDATES = 200
GPU_RUNS, GPU_CANDIDATES = 2, 64  # each way
PORT = 6399  # of the cluster of one machine
CONTENT = os.urandom(200_000)  # as large as a library for the CPU

#: Problems whose verdicts are clear: chains that fuse, one that kgen leaves to the library, one that cannot be captured.
FORWARDS = {
    "gelu": "torch.nn.functional.gelu(x * 2.0 + 1.0) * 0.5",
    "tanh": "torch.tanh(torch.sigmoid(x) * 3.0 - 1.0)",
    "mish": "torch.nn.functional.mish(x + 1.0) * torch.sigmoid(x)",
    "softmax": "torch.softmax(torch.nn.functional.gelu(torch.tanh(x) * 2.0), dim=-1)",
    "erf": "torch.erf(torch.sigmoid(x) - torch.tanh(x)) * 0.5",
    "silu": "torch.nn.functional.silu(torch.tanh(x) + 1.0) * torch.sigmoid(x)",
    "product": "torch.matmul(x, x.t())",
    "refused": "x if float(x.sum()) > 0 else -x",
}


def timing(subject: str, ms: float, depth: Depth = Depth.SCREEN) -> Timing:
    return Timing(subject, depth, "simulated", ((ms, ms), (ms, ms)))


class Builder:
    """Builds in no time. Libraries are written on the device's node."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.gettempdir(), "kgen-simulated")
        self.directory.mkdir(exist_ok=True)

    def binary(self, name: str) -> None: ...

    def build(self, source: str) -> BuildReport:
        return BuildReport(True, False, 0.0, False, "", hashlib.sha256(source.encode()).hexdigest(), "", "")


class Judge:
    """A simulated device: each candidate is right, after a drawn time."""

    def __init__(self, problem: Problem, seconds: float, device: str = "cpu") -> None:
        self.problem, self.device, self.at_once, self.accuracy = problem, device, 1, Accuracy.FP32
        self.environment = Environment("cpu", "simulated", "none", "", "", "", "", "", 1, "")
        self.hardware = hardware.cpu()
        self._seconds = seconds

    def start(self) -> None: ...

    def close(self) -> None: ...

    def builder(self) -> Builder:
        return Builder()

    def health(self) -> Health:
        return Health()

    def baselines(self) -> tuple[Timing, ...]:
        return (timing("eager", 1.5),)

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        drawn = random.Random(candidate.id)
        time.sleep(drawn.uniform(0.0, 2.0) * self._seconds)
        timed = timing(candidate.id, 1.0 + drawn.random())
        return Evaluation(candidate.id, Status.OK, "", self.accuracy, build=build, timing=timed)

    def finals(self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float) -> tuple[Timing, ...]:
        return tuple(timing(name, 1.0, Depth.FINAL) for name in ("eager", *(one.id for one, _ in candidates)))


class OneOfMany(Judge):
    """Is ready when all devices are, as far as files in ``folder`` tell."""

    def __init__(self, problem: Problem, folder: Path) -> None:
        super().__init__(problem, MEAN_SECONDS)
        self._folder = folder

    def start(self) -> None:
        Path(self._folder, str(os.getpid())).touch()
        until = time.monotonic() + START_SECONDS
        while len(os.listdir(self._folder)) < DEVICES and time.monotonic() < until:
            time.sleep(0.05)


_builders: list[Builder] = []  # that of this process; Ray sends a cached function by its name, which its workers do not know


def build(source: str, device_type: str, arch: str) -> tuple[Built, Library]:
    if not _builders:
        host._set_up()
        _builders.append(Builder())
    report = _builders[0].build(source)
    return Built("", report), Library(f"library_{report.binary}", CONTENT)


class At:
    """Notes when each candidate was judged, and the CPU time of this process until then, in seconds."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cpu: list[float] = []

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Evaluated):
            used = resource.getrusage(resource.RUSAGE_SELF)
            self.times.append(time.monotonic())
            self.cpu.append(used.ru_utime + used.ru_stime)

    def each(self, values: list[float], tail: int = 0) -> float:
        """The mean growth of ``values`` for a candidate, without the ``tail``."""
        return (values[-1 - tail] - values[0]) / (len(values) - 1 - tail)


def request(budget: int) -> sweep.SweepRequest:
    problem = replace(read_problem("linear_gelu_softmax"), mode="train")
    return sweep.SweepRequest(problem, device="cpu", budget=budget, strategy="random", fresh=True)


def engine() -> None:
    asked, rows, seconds = request(ENGINE_CANDIDATES), [], {}
    host.build = build
    make = lambda asked, notice, step: Judge(asked.problem, 0.0)
    with opened("local:1", "cpu", print) as (_, fleet):
        for number, way in enumerate(("without", "cluster") * 3):
            at = At()
            if way == "cluster":
                sweep.run(asked, at, open_devices(fleet, 1, make, {"num_cpus": 0}))
            else:
                sweep.run(asked, at, lambda *_: DevicePool([Judge(asked.problem, 0.0)]))
            whole = at.each(at.times)
            rows.append({"run": number + 1, "way": way, "candidates": len(at.times), "ms for each": 1000 * whole})
            seconds.setdefault(way, []).append(whole)
    added = 1000 * (median(seconds["cluster"]) - median(seconds["without"]))
    notes = (
        f"Candidates one after the other on one device, whose judge answers at once; libraries of {len(CONTENT)} bytes. "
        f"The engine adds {added:.1f} ms to a candidate (difference of the medians); the goal is at most 50 ms."
    )
    print(record("cluster_engine", "Time that a Ray cluster adds to a candidate", rows, notes))


def devices() -> None:
    asked, rows, ideal = request(CANDIDATES), [], DEVICES / MEAN_SECONDS
    host.build = build
    with opened("local:2", "cpu", print) as (_, fleet), tempfile.TemporaryDirectory() as folder:
        for run in range(1, DEVICES_RUNS + 1):
            at, started = At(), Path(folder, str(run))
            started.mkdir()
            make = lambda asked, notice, step: OneOfMany(asked.problem, started)
            sweep.run(asked, at, open_devices(fleet, DEVICES, make, {"num_cpus": 0}))
            rate = 1 / at.each(at.times, DEVICES)  # the last ones leave devices idle
            peak = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1024
            rows.append({
                "run": run, "candidates": len(at.times), "a second": rate, "share of the ideal": rate / ideal,
                "driver, ms of CPU for each": 1000 * at.each(at.cpu), "driver, MB": peak,
                "load of the machine": os.getloadavg()[0],
            })  # fmt: skip
    notes = (
        f"{DEVICES} simulated devices in actors on a local cluster of two nodes; judges answer after a time drawn evenly "
        f"from 0 to {2 * MEAN_SECONDS} s, which makes {ideal:g} candidates a second the ideal. Capture, rendering, search "
        "and store are real, builds are simulated tasks. The goals: 90% of the ideal rate, and a driver below 500 MB at its "
        "peak. Driver, actors, builds and Ray share the cores of this machine with whatever else runs on it."
    )
    print(record("cluster_devices", "1,000 candidates on 16 simulated devices", rows, notes))


def verdicts() -> None:
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "suite")
        suite.mkdir()
        for number, (name, text) in enumerate(FORWARDS.items(), 1):
            (suite / f"{number}_{name}.py").write_text(
                "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
                f"        return {text}\n\n\ndef get_inputs():\n    return [torch.rand(1024, 1024)]\n"
            )
        seconds = {}
        for way, words in {"without": [], "local:2": ["--cluster", "local:2"]}.items():
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "KGEN_HOME": f"{folder}/runs{len(seconds)}", "PYTHONPATH": path}
            kgen = [sys.executable, "-W", "ignore", "-m", "kgen"]
            sweeps = [*kgen, "sweep", str(suite), "--device", "cpu", "--baselines", "eager", "--budget", "3", "--time", "20"]
            started = time.monotonic()
            subprocess.run([*sweeps, *words], env=environment, check=False)
            seconds[way] = time.monotonic() - started
            scores = subprocess.run([*kgen, "scores", str(suite), "--json"], env=environment, stdout=subprocess.PIPE, check=True)
            found[way] = {row["problem"]: row["verdict"] for row in json.loads(scores.stdout)["problems"]}
    rows = [{"problem": name, **{way: rows[name] for way, rows in found.items()}} for name in found["without"]]
    same = sum(row["without"] == row["local:2"] for row in rows)
    took = ", ".join(f"{way} {s:.0f} s" for way, s in seconds.items())
    print(record("cluster_verdicts", "Verdicts with and without a cluster", rows, f"{same} of {len(rows)} are the same. {took}."))


def gpu() -> None:
    rows, rates = [], {}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    for run in range(1, GPU_RUNS + 1):
        for way in ("without", "cluster"):
            with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
                words: tuple[str, ...] = ()
                if way == "cluster":
                    start = [*ray, "start", "--head", f"--port={PORT}", "--include-dashboard=false", "--disable-usage-stats"]
                    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "KGEN_HOME": f"{home}/node"})
                    stack.callback(subprocess.run, [*ray, "stop", "--force"], check=False, stdout=subprocess.DEVNULL)
                    words = ("--cluster", f"127.0.0.1:{PORT}")
                found = throughput.sweep("cuda", Path(home), GPU_CANDIDATES, "eager", *words)
            rates.setdefault(way, []).append(found.steady)
            rows.append({
                "run": run, "way": way, "candidates": found.timed, "of": found.judged, "compiled": found.built,
                "first verdict, s": found.setup, "per minute": found.per_minute, "per minute after the first": found.steady,
            })  # fmt: skip
            print(rows[-1], flush=True)
            if len(rates) == 2:
                _record_gpu(rows, median(rates["cluster"]) / median(rates["without"]))


def _record_gpu(rows: list[dict[str, Cell]], share: float) -> None:
    notes = (
        f"{throughput.NAME}, {', '.join(f'{k}={v}' for k, v in throughput.SIZES['cuda'].items())}; nothing built before; random "
        f"candidates; finals are left out. The cluster judges {100 * share:.1f}% of the candidates a minute without it, after "
        "the first verdict (medians); the goal is 95%."
    )
    print(record("cluster_gpu", "Sweeps on a GPU, and on a cluster of its machine alone", rows, notes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("engine", "devices", "verdicts", "gpu"))
    {"engine": engine, "devices": devices, "verdicts": verdicts, "gpu": gpu}[parser.parse_args().part]()
