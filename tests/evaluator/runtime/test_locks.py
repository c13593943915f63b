"""Shares of a device's memory among processes, some of which are killed."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kgen.errors import EvaluatorError
from kgen.evaluator.runtime import holders, locks
from kgen.evaluator.runtime.locks import DeviceLock, MemoryShare

HOLDER = """
import sys, threading
from pathlib import Path
from kgen.evaluator.runtime.locks import MemoryShare
MemoryShare("gpu 0", 100, threading.Event(), folder=Path(sys.argv[1])).ask(int(sys.argv[2]))
print("holds", flush=True)
sys.stdin.readline()
"""


def ask(folder: Path, size: int, stop: threading.Event | None = None, **others: object) -> MemoryShare:
    share = MemoryShare("gpu 0", 100, stop or threading.Event(), folder=folder, **others)
    share.ask(size)
    return share


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds 60 of 100 bytes."""
    words = [sys.executable, "-c", HOLDER, str(tmp_path), "60"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_who_fits_beside_others_does_not_wait(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    share = ask(tmp_path, 40)
    share.close()


def test_memory_of_a_killed_process_is_given_to_who_waits(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, tmp_path, 41)
        with pytest.raises(TimeoutError):
            waiting.result(0.4)
        holder.kill()
        waiting.result(5.0).close()
    assert not list(tmp_path.glob("*.share"))


def test_small_request_does_not_overtake_a_large_one(tmp_path: Path) -> None:
    first = ask(tmp_path, 60)
    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(ask, tmp_path, 50)
        with pytest.raises(TimeoutError):
            large.result(0.3)
        small = threads.submit(ask, tmp_path, 10)
        with pytest.raises(TimeoutError):
            small.result(0.3)
        first.close()
        for waiting in (large, small):
            waiting.result(5.0).close()


def test_request_for_more_than_there_is_waits_until_nobody_holds_a_share(tmp_path: Path) -> None:
    ask(tmp_path, 500).close()
    held, stop = ask(tmp_path, 1), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, tmp_path, 500, stop)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        stop.set()
        with pytest.raises(EvaluatorError, match="not waited for any more"):
            waiting.result(5.0)
    held.close()


def test_share_that_turns_out_smaller_leaves_room(tmp_path: Path) -> None:
    held = ask(tmp_path, 100)
    assert held.grows(10)
    ask(tmp_path, 90).close()
    held.close()


def test_share_grows_at_once_or_not_at_all(tmp_path: Path) -> None:
    first, second = ask(tmp_path, 50), ask(tmp_path, 30)
    assert not second.grows(60)
    assert second.grows(50)
    first.close()
    assert second.grows(500)
    second.close()


def test_share_does_not_grow_before_one_who_waits(tmp_path: Path) -> None:
    first, second = ask(tmp_path, 50), ask(tmp_path, 10)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, tmp_path, 90)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        assert not second.grows(20)
        second.close()
        first.close()
        waiting.result(5.0).close()


def test_waiting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_MEMORY_NOTICE_SECONDS", 0.0)
    held, stop, told = ask(tmp_path, 100), threading.Event(), []

    def tell(text: str) -> None:
        told.append(text)
        stop.set()

    with pytest.raises(EvaluatorError):
        ask(tmp_path, 3 << 30, stop, notice=tell)
    assert told == ["waiting for 3 GiB of gpu 0: others hold 0 of 0"]
    held.close()


TIMER = """
import sys
from pathlib import Path
from kgen.evaluator.runtime.locks import DeviceLock
sys.argv[:] = ["/usr/lib/kgen/__main__.py", "sweep", "a problem.py"]
with DeviceLock("gpu 0", folder=Path(sys.orig_argv[-1])).timing():
    print("holds", flush=True)
    sys.stdin.readline()
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def timer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that times on a device until it reads a line."""
    with subprocess.Popen([sys.executable, "-c", TIMER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_notice_of_a_timing_that_waits_names_the_command_that_holds_the_device(
    tmp_path: Path, timer: subprocess.Popen[str]
) -> None:
    said = DeviceLock("gpu 0", folder=tmp_path)._waiting()
    expected = rf"waiting for gpu 0, held by process {timer.pid} since \d\d:\d\d:\d\d: kgen sweep 'a problem.py'"
    assert re.fullmatch(expected, said), said


def test_command_that_has_let_the_device_go_or_was_killed_holds_nothing(tmp_path: Path, timer: subprocess.Popen[str]) -> None:
    stem = tmp_path / "gpu_0"
    assert len(holders.others(stem)) == 1
    print(file=timer.stdin, flush=True)
    assert timer.stdout is not None and timer.stdout.readline() == "held\n"
    assert holders.others(stem) == [] and len(list(tmp_path.glob("*.holder"))) == 1
    timer.kill()
    timer.wait()
    assert holders.others(stem) == [] and not list(tmp_path.glob("*.holder"))
