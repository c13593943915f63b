"""Shared by all tests: a folder of their own to write to, workers, and the skipping of GPU tests where there is no GPU."""

from __future__ import annotations

import fcntl
import functools
import gc
import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import postgres
import pytest
from running import SHORT_SWEEP, Ended, Home, wait
from turns import Turn

if TYPE_CHECKING:
    from lending import Lender

# Processes that a shell runs in the background ignore Ctrl-C, and so would the commands that these tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Processes that these tests start write bytecode, as on most machines.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""


#: Fixtures of a whole session that take long to make: tests that use the same one run in the same worker.
_SHARED = {"swept": "swept", "evaluator": "evaluator", "postgres_server": "postgresql"}
#: Files whose tests capture and plan the same problems, or use the same server, which a process does or starts once.
_TOGETHER = {"test_evaluation.py": "test_operators.py", "test_windows_and_scans.py": "test_operators.py", "test_overwriting.py": "test_fusion.py", "test_plan_name.py": "test_render.py", "test_state.py": "test_problems.py", "test_cli_render.py": "test_cli_plan.py", "test_sweep.py": "test_eval.py", "test_network_sweep.py": "test_eval.py", "test_run.py": "test_eval.py", "test_own_template.py": "test_eval.py", "test_devices.py": "test_eval.py"}
#: Groups that take longest. They begin first, so that the workers end together. Those that time on the CPU, or start processes that do,
#: stand between others: side by side, they would wait for each other.
_LONGEST = (
    "evaluator", "test_candidates_cpu.py", "test_adversarial.py", "test_operators.py", "test_emulation.py", "test_eval.py", "test_cuda_compiles.py", "test_problems.py",
    "test_kills.py", "test_breadth.py", "test_robustness.py", "test_fusion.py", "test_moments.py", "test_capture.py", "swept",
    "test_convolution_kernels.py", "test_own.py", "test_rewrites.py", "test_cluster.py", "test_render.py",
    "test_serve.py", "test_reductions_cpu.py", "test_oracle.py", "test_processes.py", "test_contraction.py", "test_suite.py",
    "test_space.py", "test_sandbox.py", "test_capturing.py", "test_build.py", "test_tolerance.py", "test_browser.py", "test_half_oracle.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker one processor for PyTorch's operators in this process; processes that it starts have all.
    Idle threads of OpenMP sleep, since other workers need the processors."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import torch

        torch.set_num_threads(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest in which pytest-xdist cannot name groups: each worker would make each shared fixture.

    Have Python look for cycles less often: a third of the time of many tests would be that.
    """
    if session.config.getoption("loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest ignores the groups of pytest-xdist: install the one of constraints.txt")
    gc.collect()
    gc.freeze()  # torch and the tests have a million objects, and each full collection would look at all of them
    gc.set_threshold(50_000, 20, 50)


def pytest_sessionfinish() -> None:
    """Look for cycles once: pytest looks for what could not be raised five times, each time among all objects."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        _distribute(items)
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device here"))


def _distribute(items: list[pytest.Item]) -> None:
    """Put each test into a group, which one worker runs: that of a shared fixture, the GPU's, or that of its file."""
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _LONGEST.index(groups[item]) if groups[item] in _LONGEST else len(_LONGEST))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("gpu"):
        return "gpu"
    shared = [_SHARED[name] for name in getattr(item, "fixturenames", ()) if name in _SHARED and _of_session(item, name)]
    return shared[0] if shared else _TOGETHER.get(item.path.name, item.path.name)


def _of_session(item: pytest.Item, name: str) -> bool:
    """Whether the test's fixture of that name is made once a session: some files have one of their own."""
    return item._fixtureinfo.name2fixturedefs[name][-1].scope == "session"


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that tests may make, each another one: most tests make none, and to make one takes longer than they do."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Databases that this process opens share their compiled statements."""
    from statements import compiled_once

    with compiled_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def assembled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reports of all workers share the text of the plotting library, whose assembly takes two seconds."""
    from kgen.views.report import library

    folder, assembled = tmp_path_factory.getbasetemp(), library.javascript
    file = (folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder) / "library.js"

    @functools.cache
    def javascript() -> str:
        with open(f"{file}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(assembled(), encoding="utf-8")
        return file.read_text(encoding="utf-8")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "javascript", javascript)
        yield


@pytest.fixture(scope="session", autouse=True)
def lowered_once() -> Iterator[None]:
    """Plans of a graph share its programs with plans for other devices that another file asked for long before."""
    from kgen.compiler.fusion import fusion

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "_programs_of", functools.lru_cache(maxsize=512)(fusion._programs_of.__wrapped__))
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Evaluators of this process have their fork servers forked, where they would have each of them load torch.

    On a machine with a GPU, all of them are started: modules that are loaded before a fork start CUDA, which cannot be forked.
    """
    import torch
    from forking import servers_forked

    if torch.cuda.is_available():
        yield
        return
    # Each worker starts a process of its own that forks. Some tests look for processes below the worker: they find those
    # of its own evaluators alone.
    with servers_forked(tmp_path_factory.getbasetemp(), os.getpid(), ahead="PYTEST_XDIST_WORKER" in os.environ):
        yield


@pytest.fixture(scope="session", autouse=True)
def screened_briefly() -> Iterator[None]:
    """Evaluators of this process screen on the CPU with as few calls as on a GPU.

    Comparisons around the calls take a third of an evaluation."""
    from kgen.devices.kinds import KINDS

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "cpu", replace(KINDS["cpu"], screen_calls=KINDS["cuda"].screen_calls))
        yield


@pytest.fixture(autouse=True)
def kgen_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``KGEN_HOME`` for each test, so that none reads or writes the user's ``runs/``."""
    home = next(homes)
    monkeypatch.setenv("KGEN_HOME", str(home))
    monkeypatch.delenv("KGEN_DB", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # the terminal's width: workers are given it, and output would follow it
    return home


@pytest.fixture(autouse=True)
def turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turn]:
    """The test's right to keep processors busy, which it can exchange for that to have them alone."""
    folder = tmp_path_factory.getbasetemp()
    with Turn(folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder) as turn:
        yield turn


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Ended]:
    """A short sweep that found something faster: the folder that it ran in, and what it told as JSON."""
    home = Home(tmp_path_factory.mktemp("swept"))
    return home, wait(home.start_brief(*SHORT_SWEEP, "--budget", "2", "--time", "180", "--json", FINAL_SECONDS="2"))


@pytest.fixture(scope="session")
def lender() -> Iterator[Lender]:
    """A fork server that has torch and what captures need loaded, for the commands of all files."""
    from lending import CAPTURING, Lender

    lender = Lender(CAPTURING)
    yield lender
    lender.close()


@pytest.fixture(scope="module")
def one_server(lender: Lender) -> Iterator[None]:
    """Commands of this process share one fork server."""
    from lending import one_server

    with one_server(lender):
        yield


@pytest.fixture(scope="session")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with the newest schema and no row, to copy: faster than all migrations each time."""
    from kgen.store import Database

    made = tmp_path_factory.mktemp("newest") / "kgen.db"
    Database.open(str(made)).close()
    return made


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of the tests' own; what needs it is skipped where there is none."""
    from kgen.store import Database

    try:
        with postgres.server() as server:
            Database.open(server.url(postgres.NEWEST)).close()
            yield server
    except postgres.Missing as missing:
        pytest.skip(str(missing))
