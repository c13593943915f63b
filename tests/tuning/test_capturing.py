"""Capture in a process of its own: the same graphs, and a problem whose code ends or holds that process costs it alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from lending import CAPTURING
from models import source

from kgen.compiler.capture.plain import from_json, to_json
from kgen.devices.hardware import cpu, for_arch
from kgen.errors import CaptureError, ProblemError
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.capturing import capture_apart, capture_here
from kgen.tuning.sweep import designed

NORM = ("return F.batch_norm(self.linear(x), self.mean, self.mean, training=self.training)", "torch.randn(4, 8)",
        "self.linear = nn.Linear(8, 8)\nself.register_buffer('mean', torch.zeros(8))")  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("home"), {}, first=CAPTURING)
    found.start()
    yield found
    found.close()


def problem(folder: Path, forward: str, inputs: str = "torch.randn(4, 8)", init: str = "", top: str = "", mode: str | None = None) -> Problem:
    file = folder / "problem.py"
    file.write_text(f"import ctypes, os, time\n{source(forward, inputs, init)}\n{top}\n")
    return read_problem(str(file), mode=mode)


@pytest.mark.parametrize("mode", [None, "eval", "both"])
def test_captured_apart_is_what_is_captured_here(tmp_path: Path, server: Server, mode: str | None) -> None:
    asked = problem(tmp_path, *NORM, mode=mode)
    settled, found = capture_apart(asked, "cpu", server)
    assert (settled, found) == capture_here(asked, "cpu")
    assert settled.mode == (mode or "train")


@pytest.mark.parametrize(
    ("forward", "top", "said"),
    [
        ("return x", "os._exit(3)", "its own code ended the process that ran it: left with exit code 3"),
        ("return ctypes.string_at(0)", "", "its own code ended the process that ran it: killed by SIGSEGV"),
        ("return os.kill(os.getpid(), 9)", "", "the process that ran its code was ended 3 times: killed by SIGKILL"),
    ],
)
def test_problem_that_ends_its_process_is_refused(tmp_path: Path, server: Server, forward: str, top: str, said: str) -> None:
    asked = problem(tmp_path, forward, top=top)
    with pytest.raises(ProblemError) as refused:
        capture_apart(asked, "cpu", server)
    assert str(refused.value) == f"{asked.path}: {said}"


def test_problem_that_does_not_end_is_refused_in_time(tmp_path: Path, server: Server) -> None:
    server.wait()
    with pytest.raises(ProblemError, match="does forward end"):
        capture_apart(problem(tmp_path, "return time.sleep(1000)"), "cpu", server, until=time.monotonic() + 0.5)


@pytest.mark.parametrize(
    ("forward", "kind", "said"),
    [("return x.nothing()", CaptureError, "nothing"), ("exit()", CaptureError, "exit()")],
)
def test_errors_of_the_problem_arrive_as_they_are(tmp_path: Path, server: Server, forward: str, kind: type, said: str) -> None:
    asked = problem(tmp_path, forward)
    with pytest.raises(kind, match=said.replace("(", r"\(").replace(")", r"\)")) as apart:
        capture_apart(asked, "cpu", server)
    with pytest.raises(kind) as here:
        capture_here(asked, "cpu")
    assert type(apart.value) is type(here.value) and str(apart.value) == str(here.value)


def test_processes_that_a_problem_forks_end_with_it(tmp_path: Path, server: Server) -> None:
    mark = tmp_path / "held"
    top = f"mark = open({str(mark)!r}, 'w')\nif os.fork() == 0:\n    time.sleep(1000)"
    _, found = capture_apart(problem(tmp_path, "return x + 1", top=top), "cpu", server)
    assert found.graphs and mark.exists() and mark not in open_files()


def open_files() -> set[Path]:
    """The files that any process has open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            found.add(link.readlink())
    return found


@pytest.mark.parametrize("value", [..., slice(1, None, 2), 2j, {"a": (1, [2.0, None])}, float("inf"), True])
def test_values_of_a_graph_survive_json(value: object) -> None:
    assert from_json(to_json(value)) == value


def test_what_no_graph_holds_is_no_json() -> None:
    with pytest.raises(TypeError, match="holds no PosixPath"):
        to_json(Path("a"))


@pytest.mark.parametrize("device", ["cuda:1", "device 1 of the cluster", "cpu"])
def test_a_sweep_captures_what_its_own_kind_of_device_computes(tmp_path: Path, device: str) -> None:
    hardware = cpu() if device == "cpu" else for_arch("sm_90")
    first = SimpleNamespace(
        problem=problem(tmp_path, "return F.grid_sample(x, x.movedim(1, -1)[..., :2])", "torch.randn(2, 3, 4, 5)", mode="eval"),
        device=device, hardware=hardware, accuracy=Accuracy.FP32, layouts={}, products=(),
    )  # fmt: skip
    design = designed(first.problem, SimpleNamespace(server=None, evaluators=(first,), first=first, wait=lambda: None))
    ((_, graph),) = design.capture.graphs
    assert next(n for n in graph.nodes if n.op == "grid_sample")["lost_outside"] is (device != "cpu")
