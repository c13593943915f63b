"""Nodes told apart: equal ones form a kind, and every other one has a reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray")

from kgen.cluster import devices, fleet
from kgen.cluster.connection import connected
from kgen.cluster.devices import reserved
from kgen.cluster.fleet import Fleet, Node, kinds, own_version
from kgen.errors import InputError

GB = 1 << 30


def node(name: str, cpus: float = 8, gpus: float = 0, **other: Any) -> Node:
    facts = {
        "host": name, "kgen": own_version(), "python": "3.11.7", "torch": "2.13.0", "ninja": "/bin/ninja",
        "compiler": "g++ 12.2", "nvcc": "V13.0.88" if gpus else None, "gpu": "NVIDIA H200" if gpus else None,
        "driver": "580.1" if gpus else None, "cpu": "AMD EPYC", "instructions": "806a", "cores": 8,
        "folder": "/tmp/kgen", "free": 99 * GB,
    }  # fmt: skip
    return Node(name, name, cpus, gpus, 64 * GB, facts | other)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    """The live nodes, to be changed."""
    alive: list[Node] = []
    monkeypatch.setattr(fleet, "survey", lambda known=(): list(alive))
    yield alive


def test_nodes_of_another_environment_are_named_with_the_difference(nodes: list[Node]) -> None:
    nodes += [node("a"), node("b"), node("c", torch="2.12.0")]
    notices: list[str] = []
    chosen = Fleet(None, notices.append)
    assert [one.name for one in chosen.fitting()] == ["a", "b"]
    assert notices == ["c is left out: torch 2.12.0, not 2.13.0"]


def test_device_chooses_among_kinds_and_gpus_come_first(nodes: list[Node]) -> None:
    nodes += [node("a"), node("b", gpus=8), node("c", gpus=4, gpu="NVIDIA A100")]
    assert [(kind.name, kind.devices) for kind in kinds(nodes)] == [
        ("NVIDIA H200", 8), ("NVIDIA A100", 4), ("AMD EPYC", 3),
    ]  # fmt: skip
    assert Fleet(None).kind.name == "NVIDIA H200"
    assert Fleet("a100").kind.name == "NVIDIA A100"
    assert Fleet("cpu").kind.devices == 3


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        (node("a", compiler=None), "a: no C\\+\\+ compiler: install g\\+\\+, or set CXX"),
        (node("a", torch=None), "a: no torch: pip install torch"),
        (node("a", free=GB // 2), "a: full disk: 0.5 GB free at /tmp/kgen"),
        (node("a", kgen="0.0.9 (12345678)"), "a: has kgen 0.0.9 \\(12345678\\), and this is kgen"),
        (node("a", gpus=1, nvcc=None), "a: no nvcc on PATH"),
        (node("a", cpus=0), "a: offers neither CPUs nor GPUs to Ray"),
    ],
)
def test_cluster_without_a_fitting_node_is_refused_with_what_each_lacks(
    nodes: list[Node], lacking: Node, reason: str
) -> None:
    nodes.append(lacking)
    with pytest.raises(InputError, match=f"no node of the cluster fits.*{reason}"):
        Fleet("cuda" if lacking.gpus else None)


def test_kind_that_no_node_has_is_refused(nodes: list[Node]) -> None:
    nodes += [node("a"), node("b", gpus=8)]
    with pytest.raises(InputError, match="--device H100: a: is AMD EPYC | b: is NVIDIA H200"):
        Fleet("H100")


def test_node_that_joins_serves_and_node_in_trouble_does_not(nodes: list[Node]) -> None:
    nodes.append(node("a"))
    notices: list[str] = []
    chosen = Fleet(None, notices.append)
    nodes.append(node("b"))
    chosen.leave_out("a", "no space left on device")
    assert [one.name for one in chosen.fitting()] == ["b"]
    assert notices == ["a is left out: no space left on device"]


def test_code_travels_where_a_node_lacks_it(nodes: list[Node]) -> None:
    nodes += [node("a"), node("b", kgen=None)]
    assert Fleet(None).with_code and Fleet(None).kind.devices == 2


def test_cpu_nodes_build_for_gpus_with_the_same_compilers(nodes: list[Node]) -> None:
    nodes += [node("a", gpus=8), node("b", nvcc="V13.0.88"), node("c", nvcc="V12.8.93")]
    assert [one.name for one in Fleet("cuda").building()] == ["a", "b"]


def test_devices_reserve_what_they_use() -> None:
    assert reserved("cpu", [node("a")]) == {"num_cpus": 8, "memory": 8 * GB}
    assert reserved("cuda", [node("a", cpus=64, gpus=8)]) == {"num_gpus": 1, "num_cpus": 4, "memory": 4 * GB}


@pytest.mark.parametrize("address", ["localhost", "ray://a:1", "local:0", "local:x", "a:b"])
def test_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="say auto, HOST:PORT or local:N"), connected(address):
        pass


def test_address_where_nothing_answers_is_refused() -> None:
    with pytest.raises(InputError, match="nothing answers at 127.0.0.1:1"), connected("127.0.0.1:1"):
        pass


def test_without_ray_one_line_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['ray'] = None; from kgen.cli import main; main()"
    words = ["sweep", "linear_gelu_softmax", "--cluster", "auto"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "kgen: --cluster needs Ray: pip install 'kgen[ray]'\n")


@pytest.mark.parametrize(("device", "gpus", "started"), [("cuda", 8, 20), ("cuda", 1, 16), ("cpu", 8, 0)])
def test_processes_of_builds_for_gpus_start_once(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, started: int
) -> None:
    """One for each core that devices leave on the nodes that build."""
    nodes += [node("a", gpus=gpus), node("b", cpus=12, nvcc="V13.0.88")]
    tasks: list[object] = []

    class Task:
        options = lambda self, **how: self
        remote = lambda self: tasks.append(self)

    monkeypatch.setattr(devices.ray, "remote", lambda **how: lambda function: Task())
    fitting = Fleet(device)
    devices.prepare_builds(fitting)
    devices.prepare_builds(fitting)
    assert len(tasks) == started
