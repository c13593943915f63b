"""Kills on a Ray cluster: one sweep that loses actors, nodes and its driver at random moments, and goes on to its end.

    python benchmarks/cluster_kills.py [--kills 20] [--drivers 5] [--seconds 200 --folder FOLDER]

The cluster has two nodes, each a process of this machine. The sweep is a whole `kgen sweep --cluster HOST:PORT` with real
compilers and judges. After each kill it has to come to another verdict. A killed node is replaced; a killed driver is
followed by the same command. Every candidate that the sweep told of has to be in its database, once.

A part ends with the first kill after `--seconds`. The same command with the same `--folder` goes on. Each part has a new
cluster, and continues the sweep from the database.
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
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _record import ROOT, record

from kgen.cluster import connection
from kgen.store import Database

NODES = 2
LONGEST = 3.0  # seconds from a verdict to the kill after it
PATIENCE = 300.0  # seconds without a verdict
END_SECONDS = 5.0  # for processes of a cluster that has ended
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
class Done:
    """The kills that are left, and the figures of all parts so far."""

    kills: list[str]  # that are left
    budget: int
    told: dict[str, int] = field(default_factory=dict)  # how often the sweep told of each candidate
    seconds: dict[str, list[float]] = field(default_factory=dict)  # from each kill to the next verdict
    elapsed: float = 0.0
    parts: int = 0
    strays: int = 0  # processes that a part left behind


@dataclass
class Bench:
    """The cluster, the sweep that runs on it, and everything that it told."""

    folder: Path
    cluster: Any
    generator: random.Random
    done: Done
    session: str  # the folder of Ray's files
    replaced: int = 0

    def start(self) -> None:
        """Start the sweep, or continue it."""
        words = ["sweep", str(self.folder / "soft.py"), "--cluster", self.cluster.address, "--device", "cpu"]
        words += ["--baselines", "eager", "--strategy", "random", "--budget", str(self.done.budget), "--json"]
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
                if self.heard(line):
                    return True
            return False
        finally:
            timer.cancel()

    def heard(self, line: str) -> bool:
        """Whether a line of the sweep is a new verdict; notices are printed. The last line of a killed driver may be half."""
        event = json.loads(line) if line.endswith("\n") else {"event": "none"}
        if event["event"] == "notice":
            print(event["text"], flush=True)
        if event["event"] != "evaluated" or event["taken_over"]:
            return False
        self.done.told[event["candidate"]] = self.done.told.get(event["candidate"], 0) + 1
        return True

    def end(self, number: signal.Signals) -> None:
        """Send the driver a signal, and hear it out."""
        self.process.send_signal(number)
        for line in self.process.stdout or ():
            self.heard(line)
        self.process.wait()

    def kill(self, what: str) -> None:
        """Kill an actor, a node or the driver, and wait for the next verdict."""
        time.sleep(self.generator.uniform(0.0, LONGEST))
        started = time.monotonic()
        if what == "actor":
            while not (actors := [pid for pid in processes(self.session) if "ray::Host" in command(pid)]):
                time.sleep(0.1)
            os.kill(self.generator.choice(actors), signal.SIGKILL)
        elif what == "node":
            node = self.generator.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id))
            self.cluster.remove_node(node, allow_graceful=False)
            self.replaced += 1
            with environment(self.folder):
                connection.add_local_node(self.cluster, f"local-{NODES + self.replaced}", NODES)
        else:
            self.end(signal.SIGKILL)
            self.start()
        if not self.verdict():
            raise SystemExit(f"the sweep ended with {self.process.wait()} after the kill of a {what}")
        self.done.seconds.setdefault(what, []).append(time.monotonic() - started)
        print(f"{what}: {self.done.seconds[what][-1]:.1f} s to the next verdict, {len(self.done.told)} judged", flush=True)


def processes(*marks: str) -> list[int]:
    """Other processes with a mark in their environment or in the paths of their open files.

    Ray's workers write their titles over their environment; their logs are in the folder of their cluster.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "environ").read_bytes().decode(errors="replace")
            text += " ".join(map(os.readlink, (process / "fd").iterdir()))
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(mark in text for mark in marks):
            found.append(int(process.name))
    return found


def command(pid: int) -> str:
    """The command line of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


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


def part(folder: Path, file: Path, done: Done, generator: random.Random, seconds: float) -> int | None:
    """Kill until none is left, or for so long. Returns the exit code of the sweep; ``None`` where kills are left.

    ``file`` is written after each kill, so that a part that dies goes on as well.
    """
    started = time.monotonic()
    done.parts += 1
    with environment(folder), connection._local(NODES) as cluster:
        session = cluster.head_node.get_session_dir_path()
        bench = Bench(folder, cluster, generator, done, session)
        bench.start()
        bench.verdict()
        while done.kills and time.monotonic() - started < seconds:
            bench.kill(done.kills[0])
            del done.kills[0]
            file.write_text(json.dumps(asdict(done)))
        code = None
        if done.kills:
            bench.end(signal.SIGINT)
        else:
            while bench.verdict():
                pass
            code = bench.process.wait()
    done.elapsed += time.monotonic() - started
    time.sleep(END_SECONDS)
    done.strays += len(processes(str(folder), session))
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of actors and nodes, in turns")
    parser.add_argument("--drivers", type=int, default=5, help="kills of the driver")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which a part ends")
    parser.add_argument("--folder", type=Path, help="of the parts; it is removed after the last")
    arguments = parser.parse_args()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="kgen-kills-"))).resolve()
    folder.mkdir(exist_ok=True)
    file = folder / "done.json"
    if file.exists():
        done = Done(**json.loads(file.read_text()))
    else:
        (folder / "soft.py").write_text(PROBLEM)
        kills = [("actor", "node")[number % 2] for number in range(arguments.kills)] + ["driver"] * arguments.drivers
        random.Random(arguments.seed).shuffle(kills)
        done = Done(kills, 3 * len(kills) + SPARE)
    code = part(folder, file, done, random.Random(arguments.seed + done.parts), arguments.seconds)
    file.write_text(json.dumps(asdict(done)))
    if code is None:
        print(f"{len(done.kills)} kills are left: the same command with --folder {folder} goes on")
        return
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
        for what, seconds in sorted(done.seconds.items())
    ]
    notes = (
        f"One sweep of {done.budget} candidates on two nodes, which are processes of this machine, in {done.parts} parts. It "
        f"ended with exit code {code} after {done.elapsed:.0f} s; its state: {states}. Of {len(done.told)} candidates that it "
        f"told of, {len(done.told.keys() - kept)} are missing in the database; {sum(n > 1 for n in done.told.values())} were "
        f"told of twice. The database has {trials} trials and {evaluations} evaluations of {len(kept)} candidates, {infra} of "
        f"them infra_error. Processes left: {done.strays}."
    )
    print(notes)
    record("cluster_kills", "Kills on a Ray cluster", rows, notes)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
