"""A small cluster of two nodes: a sweep that loses an actor, a node and its driver, and a suite."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, Home, seconds_until_none_is_left, wait

from kgen.problems.problem import load, read_problem
from kgen.tuning.design import captured

pytest.importorskip("ray")

from kgen.cluster import connection

BUDGET = 24
IN_FLIGHT = 2  #: candidates of a device: one is judged, and the verdict of another may still be on its way
_DRIVER = str(Path(__file__).parents[1] / "cluster_sweeps.py")


@dataclass
class Bench:
    """A cluster whose nodes can be killed, and drivers that run on it."""

    home: Home
    cluster: Any
    told: list[str] = field(default_factory=list)

    def driver(self, budget: int = BUDGET) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        graphs = str(self.home.folder / "graphs")
        command = [sys.executable, "-W", "ignore", _DRIVER, self.cluster.address, str(budget), graphs]
        return self.home.popen(command, PYTHONPATH=path)

    def hear(self, process: subprocess.Popen[str], verdicts: int) -> str:
        """Wait for so many verdicts. Returns the node of the latest one."""
        assert process.stdout is not None
        device = ""
        while verdicts and (line := process.stdout.readline()):
            if line.startswith("told "):
                _, candidate, device = line.split()
                self.told.append(candidate)
                verdicts -= 1
        return device.partition("/")[0]

    def kill_actor(self) -> None:
        alive = [int(pid) for pid in (self.home.folder / "runs" / "actors").read_text().split()]
        os.kill(next(pid for pid in reversed(alive) if Path(f"/proc/{pid}").exists()), signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        node = next(node for node in self.cluster.worker_nodes if node._ray_params.node_name == name)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    home = Home(tmp_path_factory.mktemp("cluster"))
    problem = replace(read_problem("linear_gelu_softmax"), mode="train")
    (home.folder / "graphs").write_bytes(pickle.dumps(captured(load(problem))))
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in home.environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tests")])).items():
                patched.setenv(name, value)
            cluster = stack.enter_context(connection._local(2))
        yield Bench(home, cluster)
    seconds_until_none_is_left(home)


@pytest.fixture(scope="module")
def killed(bench: Bench) -> Bench:
    """A sweep that lost an actor, its driver and a node, and then ended."""
    process = bench.driver()
    bench.hear(process, 4)
    bench.kill_actor()
    bench.hear(process, 6)
    process.kill()
    process.communicate()
    process = bench.driver()
    bench.kill_node(bench.hear(process, 4))
    bench.hear(process, BUDGET)
    assert wait(process).code == 0
    return bench


def left(home: Home) -> list[str]:
    """Actors that still live."""
    return [pid for pid in (home.folder / "runs" / "actors").read_text().split() if Path(f"/proc/{pid}").exists()]


def test_local_cluster_is_not_the_one_that_auto_finds(bench: Bench) -> None:
    noted = Path("/tmp/ray/ray_current_cluster")
    assert not noted.exists() or noted.read_text().strip() != bench.cluster.address


def test_sweep_ends_though_an_actor_a_node_and_the_driver_died(killed: Bench) -> None:
    assert killed.home.ask("SELECT state FROM sweep") == [("finished",)]
    assert not left(killed.home)


def test_no_evaluation_is_lost_or_doubled(killed: Bench) -> None:
    kept = [row[0] for row in killed.home.ask("SELECT candidate_id FROM trial")]
    assert len(kept) == len(set(kept)) == BUDGET and set(killed.told) <= set(kept)
    assert killed.home.ask("SELECT count(*), count(DISTINCT candidate_id) FROM evaluation") == [(BUDGET, BUDGET)]
    assert killed.home.ask("SELECT count(*) FROM evaluation WHERE status = 'infra_error'") == [(0,)]


def test_candidate_is_judged_again_only_where_a_kill_cut_it_off(killed: Bench) -> None:
    begun = Counter((killed.home.folder / "runs" / "begun").read_text().split())
    cut_off = IN_FLIGHT * (1 + 1 + 2)  # of an actor, of a node, and of the driver's two devices
    assert len(begun) == BUDGET and begun.total() - BUDGET <= cut_off


@pytest.mark.exhaustive  # beside a driver that is killed
def test_interrupted_driver_leaves_no_actor(killed: Bench) -> None:
    process = killed.driver(4 * BUDGET)
    killed.hear(process, BUDGET + 2)
    process.send_signal(signal.SIGINT)
    wait(process)
    assert not left(killed.home)
