"""Kills on a Ray cluster: one sweep that loses actors, nodes and its driver at random moments, and goes on to its end.

    python benchmarks/cluster_kills.py [--kills 20] [--drivers 5]

The cluster has two nodes, each a process of this machine. The sweep is a whole `kgen sweep --cluster HOST:PORT` with real
compilers and judges. After each kill it has to come to another verdict. A killed node is replaced; a killed driver is
followed by the same command. Every candidate that the sweep told of has to be in its database, once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _record import ROOT, record

from kgen.cluster import connection
from kgen.store import Database

NODES = 2
LONGEST = 3.0  # seconds from a verdict to the kill after it
PATIENCE = 300.0  # seconds without a verdict
SPARE = 10  # candidates beside those that kills wait for
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.nn.functional.gelu(x * 2.0 + 1.0), dim=-1)


def get_inputs():
    return [torch.rand(256, 1024)]
"""


@dataclass
class Bench:
    """The cluster, the sweep that runs on it, and everything that it told."""

    folder: Path
    cluster: Any
    budget: int
    generator: random.Random
    told: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # from each kill to the next verdict
    codes: list[int] = field(default_factory=list)
    replaced: int = 0

    def start(self) -> None:
        """Start the sweep, or continue it."""
        words = ["sweep", str(self.folder / "soft.py"), "--cluster", self.cluster.address, "--device", "cpu"]
        words += ["--baselines", "eager", "--strategy", "random", "--budget", str(self.budget), "--json"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kgen", *words], cwd=self.folder, env=os.environ, stdout=subprocess.PIPE, text=True
        )

    def verdict(self) -> bool:
        """Wait for one; false where the sweep ended."""
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                event = json.loads(line)
                if event["event"] == "notice":
                    print(event["text"], flush=True)
                if event["event"] == "evaluated" and not event["taken_over"]:
                    self.told[event["candidate"]] += 1
                    return True
            return False
        finally:
            timer.cancel()

    def kill(self, what: str) -> None:
        """Kill an actor, a node or the driver, and wait for the next verdict."""
        time.sleep(self.generator.uniform(0.0, LONGEST))
        started = time.monotonic()
        if what == "actor":
            actors = processes("ray::Host")
            if actors:
                os.kill(self.generator.choice(actors), signal.SIGKILL)
        elif what == "node":
            node = self.generator.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id))
            self.cluster.remove_node(node, allow_graceful=False)
            self.replaced += 1
            with environment(self.folder):
                connection.add_local_node(self.cluster, f"local-{NODES + self.replaced}", NODES)
        else:
            self.process.kill()
            for line in self.process.stdout or ():
                event = json.loads(line) if line.endswith("\n") else {}
                if event.get("event") == "evaluated" and not event["taken_over"]:
                    self.told[event["candidate"]] += 1
            self.process.wait()
            self.start()
        if not self.verdict():
            raise SystemExit(f"the sweep ended with {self.process.wait()} after the kill of a {what}")
        self.seconds.setdefault(what, []).append(time.monotonic() - started)
        print(f"{what}: {self.seconds[what][-1]:.1f} s to the next verdict, {len(self.told)} judged", flush=True)


def processes(mark: str) -> list[int]:
    """Processes with ``mark`` in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def strays(folder: Path) -> int:
    """How many processes were started with this folder as KGEN_HOME, and live."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += int(process.name) != os.getpid() and str(folder).encode() in (process / "environ").read_bytes()
        except OSError:
            continue
    return found


def environment(folder: Path) -> ExitStack:
    """Sets the environment of processes that start meanwhile."""
    stack = ExitStack()
    before = dict(os.environ)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ |= {"KGEN_HOME": str(folder / "runs"), "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}

    def restore() -> None:
        os.environ.clear()
        os.environ.update(before)

    stack.callback(restore)
    return stack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of actors and nodes, in turns")
    parser.add_argument("--drivers", type=int, default=5, help="kills of the driver")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    kills = [("actor", "node")[number % 2] for number in range(arguments.kills)] + ["driver"] * arguments.drivers
    generator.shuffle(kills)
    folder = Path(tempfile.mkdtemp(prefix="kgen-kills-"))
    (folder / "soft.py").write_text(PROBLEM)
    started = time.monotonic()
    with environment(folder), connection._local(NODES) as cluster:
        bench = Bench(folder, cluster, 2 * len(kills) + SPARE, generator)
        bench.start()
        bench.verdict()
        for what in kills:
            bench.kill(what)
        while bench.verdict():
            pass
        code = bench.process.wait()
    time.sleep(5)
    with Database.open(str(folder / "runs" / "kgen.db"), create=False) as database, database.connections.read() as connected:
        ask = connected.exec_driver_sql
        kept = {row[0] for row in ask("SELECT candidate_id FROM trial")}
        trials = ask("SELECT count(*) FROM trial").scalar_one()
        evaluations = ask("SELECT count(*) FROM evaluation").scalar_one()
        infra = ask("SELECT count(*) FROM evaluation WHERE status = 'infra_error'").scalar_one()
        states = [tuple(row) for row in ask("SELECT state, count(*) FROM sweep GROUP BY state")]
    rows = [
        {
            "killed": what,
            "times": len(seconds),
            "seconds to the next verdict, median": sorted(seconds)[len(seconds) // 2],
            "longest": max(seconds),
        }
        for what, seconds in sorted(bench.seconds.items())
    ]
    notes = (
        f"One sweep of {bench.budget} candidates on two nodes, which are processes of this machine. It ended with exit code "
        f"{code} after {time.monotonic() - started:.0f} s; its state: {states}. Of {len(bench.told)} candidates that it told "
        f"of, {len(set(bench.told) - kept)} are missing in the database; {max(bench.told.values(), default=0) - 1} were told "
        f"of twice. The database has {trials} trials and {evaluations} evaluations of {len(kept)} candidates, {infra} of them "
        f"infra_error. Processes left: {strays(folder)}."
    )
    print(notes)
    record("cluster_kills", "Kills on a Ray cluster", rows, notes)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
