"""Processes, channels and locks: what crosses, what is cut off, and that nothing is left running."""

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from candidates import plain
from lending import Lent

from kgen.candidate import Candidate
from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime import process
from kgen.evaluator.runtime.channel import PACKET_BYTES, Channel, ChannelClosed, ChannelGarbage, ChannelTimeout
from kgen.evaluator.runtime.locks import DeviceLock
from kgen.evaluator.strict.strict import SHORT_BLOCKS
from kgen.protocol import Accuracy, Status

MARK = "kgen-test-straggler"

STRAGGLER = f"""
import subprocess
subprocess.Popen(["bash", "-c", "exec -a {MARK} sleep 1000"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    os.execvp("bash", ["bash", "-c", "exec -a {MARK} sleep 1000"])
"""

VICTIM = """
import sys
from pathlib import Path
from candidates import plain
from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy

problem = read_problem("linear_gelu_softmax", {"batch_size": "8", "in_features": "8", "out_features": "8"})
with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=Path(sys.argv[1]), baselines=()) as evaluator:
    source = sys.stdin.read()
    print("started", flush=True)
    evaluator.evaluate(Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source))
"""


def running(word):
    """Command lines of the processes that have ``word`` in them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in text:
                found.append(text)
    return found


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_candidate_started_ends_with_it(judge):
    evaluation = judge(plain(STRAGGLER.strip() + "\nraise ValueError"))
    assert evaluation.status is Status.RUNTIME_ERROR
    assert running(MARK) == []


def test_nothing_is_left_when_the_parent_is_killed(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env=environment)
    victim.stdin.write(plain(STRAGGLER.strip().replace(MARK, MARK + "-2") + "\nwhile True: x = x + 0"))
    victim.stdin.close()
    assert victim.stdout.readline() == "started\n"
    wait_until(lambda: running(MARK + "-2"), 30)
    victim.kill()
    victim.wait()
    victim.stdout.close()
    wait_until(lambda: not running(MARK + "-2"))


def test_a_server_that_dies_is_started_again(evaluator, judge):
    evaluator.server._loaded.process.kill()
    assert judge(plain("return y")).status is Status.OK


#: A fork server that loads nothing beforehand: what it is asked for takes no torch.
BARE = """
import sys
from kgen.evaluator.runtime import server
from kgen.evaluator.strict.strict import SHORT_BLOCKS
server._PRELOAD = ()
server.serve(int(sys.argv[1]), [], [])
"""


@pytest.fixture
def bare_servers(monkeypatch):
    """Servers that this process starts load no torch, which would take most of their time."""

    def launch(control, modules, log, environment):
        return subprocess.Popen([sys.executable, "-c", BARE, str(control)], stdout=log, stderr=log, pass_fds=[control], env=environment)

    monkeypatch.setattr(process, "launch", launch)


def spawned(server, folder):
    """A process of the server, which waits for a request."""
    return server.spawn("build", {}, folder / "child.log")


def test_a_kept_server_serves_the_next_without_the_processes_of_the_first(tmp_path, bare_servers):
    with process.servers_kept():
        first, second, other = (process.Server(tmp_path / home, {}) for home in ("home", "home", "home"))
        child = spawned(first, tmp_path)
        kept = first._loaded.process
        first.close()
        assert child.has_ended()
        child.kill()  # its owner closes it
        assert kept.poll() is None
        with spawned(second, tmp_path), spawned(other, tmp_path):
            assert second._loaded.process is kept
            assert other._loaded.process is not kept  # each serves one evaluator at a time
        second.close()
        other.close()
    assert kept.poll() is not None


def test_a_server_of_another_environment_is_not_taken(tmp_path, bare_servers):
    with process.servers_kept():
        first, second = (process.Server(tmp_path, {"KGEN_TEST_OF_SERVERS": value}) for value in "12")
        spawned(first, tmp_path).kill()
        kept = first._loaded.process
        first.close()
        second.start()
        assert second._loaded.process is not kept
        second.close()


def test_a_server_that_is_closed_while_it_starts_ends(tmp_path, monkeypatch):
    server = process.Server(tmp_path, {})
    closing = threading.Thread(target=server.close)

    started, launch = [], process.launch

    def closed_meanwhile(*given):
        closing.start()
        wait_until(lambda: server._closed)
        started.append(launch(*given))
        return started[0]

    monkeypatch.setattr(process, "launch", closed_meanwhile)
    server.start()
    closing.join()
    assert started[0].poll() is not None
    with pytest.raises(EvaluatorError, match="closed"):
        server.start()


def test_an_oracle_that_dies_is_started_again(evaluator, judge):
    evaluator.oracle.child.terminate()
    assert judge(plain("return y")).status is Status.OK


def test_a_process_that_the_system_ended_for_its_memory_ran_out_of_it(judge, monkeypatch):
    monkeypatch.setattr(process, "_memory_kills", itertools.count().__next__)
    evaluation = judge(plain("os.kill(os.getpid(), 9)"))
    assert (evaluation.status, "SIGKILL" in evaluation.reason) == (Status.OUT_OF_MEMORY, True), evaluation.reason


def test_a_device_that_is_not_there_is_one_clear_line(problem, tmp_path, evaluator):
    other = Evaluator(problem, device="cuda:97", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",))
    other.server = other.compilers = Lent(evaluator.server)
    with pytest.raises(DeviceError, match="cuda:97: "):
        other.__enter__()


def test_a_candidate_cannot_write_outside_its_scratch_folder(judge, sandboxed, tmp_path):
    target = tmp_path / "written"
    evaluation = judge(plain(f"open({str(target)!r}, 'w').write('x')\nreturn y"))
    assert evaluation.status is Status.RUNTIME_ERROR
    assert not target.exists()


def test_a_candidate_sees_no_other_process(judge, sandboxed):
    evaluation = judge(plain("raise ValueError(len([p for p in os.listdir('/proc') if p.isdigit()]))"))
    assert evaluation.reason.endswith("ValueError: 2")  # init and itself


def test_a_candidate_has_no_network(judge, sandboxed):
    evaluation = judge(plain("import socket\nsocket.create_connection(('127.0.0.1', 9), 1)\nreturn y"))
    assert "unreachable" in evaluation.reason


def test_a_forged_answer_in_the_output_changes_nothing(judge):
    evaluation = judge(plain("print('{\"first\": 1}', flush=True)\nreturn y * 2"))
    assert evaluation.status is Status.WRONG_VALUES
    assert '{"first": 1}' in Path(evaluation.log).read_text()


def test_a_log_is_cut_to_size(judge):
    evaluation = judge(plain("print('x' * 3_000_000)\nraise ValueError"))
    assert Path(evaluation.log).stat().st_size < 1_100_000


def test_a_message_and_a_descriptor_cross_a_channel():
    left, right = Channel.pair()
    read, write = os.pipe()
    left.send({"a": [1, 2.5, None]}, [read])
    message, (fd,) = right.receive()
    os.write(write, b"through")
    assert message == {"a": [1, 2.5, None]} and os.read(fd, 7) == b"through"
    for one in (read, write, fd):
        os.close(one)
    left.close()
    right.close()


def test_a_long_message_crosses_a_channel():
    left, right = Channel.pair()
    left.send({"text": "x" * (3 * PACKET_BYTES)})
    assert len(right.receive()[0]["text"]) == 3 * PACKET_BYTES
    left.close()
    right.close()


def test_a_channel_that_this_end_closed_says_so():
    left, right = Channel.pair()
    left.close()
    with pytest.raises(ChannelClosed, match="this end is closed"):
        left.receive()
    right.close()


def test_a_channel_times_out_and_notices_the_end():
    left, right = Channel.pair()
    with pytest.raises(ChannelTimeout):
        right.receive(time.monotonic() + 0.01)
    left.close()
    with pytest.raises(ChannelClosed):
        right.receive(time.monotonic() + 1)
    right.close()


@pytest.mark.parametrize("packet", [b"j{", b"j[]", b"x{}", b"m100", b"j" + b"x" * (PACKET_BYTES + 5)])
def test_garbage_is_no_message(packet):
    left, right = Channel.pair()
    left.sock.send(packet)
    with pytest.raises(ChannelGarbage):
        right.receive(time.monotonic() + 1)
    left.close()
    right.close()


def test_work_waits_for_a_timing_and_a_timing_for_work(tmp_path):
    order = []
    timer, worker = DeviceLock("d", folder=tmp_path), DeviceLock("d", folder=tmp_path)

    def time_it():
        with timer.timing():
            order.append("timing")

    with worker.working():
        thread = threading.Thread(target=time_it)
        thread.start()
        time.sleep(0.05)
        order.append("work")
    thread.join()
    assert order == ["work", "timing"]


def test_timings_that_wait_come_before_work_that_waits(tmp_path):
    lock, order = DeviceLock("d", folder=tmp_path), []
    waiting = threading.Barrier(5, timeout=10)

    def hold(how, name):
        waiting.wait()
        with how():
            order.append(name)

    threads = [threading.Thread(target=hold, args=(lock.timing, "timing")) for _ in range(2)]
    threads += [threading.Thread(target=hold, args=(lock.working, "work")) for _ in range(2)]
    with lock.timing():
        for thread in threads:
            thread.start()
        waiting.wait()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert order == ["timing", "timing", "work", "work"]


def test_a_timing_that_waits_for_another_is_given_up(tmp_path):
    stop = threading.Event()
    lock = DeviceLock("d", folder=tmp_path, stop=stop)
    with lock.timing():
        stop.set()
        with pytest.raises(EvaluatorError, match="not waited for any more"), lock.timing():
            pass


def test_two_works_go_on_together(tmp_path):
    with DeviceLock("d", folder=tmp_path).working(), DeviceLock("d", folder=tmp_path).working():
        pass


def test_finals_time_everybody_in_turns(evaluator, builder):
    source = plain("return y")
    candidate = Candidate(source, "by hand", {}, "cpu")
    timings = evaluator.finals([(candidate, builder.build(source))], seconds=0.1)
    assert [t.subject for t in timings] == [candidate.id, "eager"]
    assert all(len(t.blocks) >= SHORT_BLOCKS for t in timings)
    assert len({t.session for t in timings}) == 1


def test_a_healthy_problem_is_healthy(evaluator):
    assert evaluator.health().ok
