"""``kgen serve``: a real process on loopback, asked over real sockets by two clients."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import Home

from kgen.serve.asked import FIELDS, MOST_BYTES
from kgen.serve.openapi import ERRORS, OPERATIONS

MINE, THEIRS = "token-of-one-client", "token-of-the-other"
PROBLEM = """import torch
import torch.nn as nn

ROWS = 8


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.rand(ROWS, 16)]
"""
RIGHT = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
"""
WRONG = RIGHT.replace("* 2", "* 3")
#: Tells what it sees of kgen's own folder, then fails.
SPY = """import os

found = [name for name in ("kgen.db", "candidates") if os.path.exists(os.path.join({home!r}, name))]
print("sees", found, sorted(name for name in os.environ if name.startswith("KGEN_T")))
raise SystemExit
"""
#: Has the compiler read the database of all clients.
INCLUDES = """from torch.utils.cpp_extension import load_inline

NAME = "includes"
CPP_SOURCE = '#include "{home}/kgen.db"'
load_inline(name=NAME, cpp_sources=CPP_SOURCE, is_python_module=False, no_implicit_headers=True)
"""
#: Its own code looks for a network and for kgen's folder.
FOREIGN = PROBLEM.replace("    return [torch", """    import os
    import socket

    names = [name for _, name in socket.if_nameindex()]
    raise RuntimeError(f"{names} {os.path.exists(os.path.join({home!r}, 'kgen.db'))}")
    return [torch""")

_SECONDS = 300.0  # s; a test that waits longer hangs


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Served:
    """A service that runs."""

    home: Home
    process: subprocess.Popen[str]
    port: int

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = MINE, **headers: str) -> Answer:
        """``body`` is JSON, or the very bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        sent = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        given = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {}), **headers}
        try:
            connection.request(method, path, sent, given)
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read().decode())
        finally:
            connection.close()

    def judged(self, id: str, *, token: str = MINE) -> Any:
        """The answer of an evaluation, once it is there."""
        deadline = time.monotonic() + _SECONDS
        while (found := self.ask("GET", f"/evaluations/{id}", token=token).json)["state"] != "done":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def send(self, id: str, candidate: str = WRONG, *, token: str = MINE, **more: Any) -> Answer:
        named = {} if "problem_text" in more else {"problem": "doubled"}
        return self.ask("POST", "/evaluations", {**named, "candidate": candidate, "id": id, **more}, token=token)

    def rows(self) -> int:
        return self.home.ask("SELECT count(*) FROM request")[0][0]


def serve(home: Home, *options: str) -> Served:
    (home.folder / "files").mkdir(exist_ok=True)
    (home.folder / "files" / "doubled.py").write_text(PROBLEM)
    (home.folder / "tokens").write_text(f"{MINE}\n{THEIRS}\n")
    arguments = ("--port", "0", "--device", "cpu", "--tokens", "tokens", "--problems", "files", "--time", "0.2")
    process = home.start_brief("serve", *arguments, *options)
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:"), process.communicate()
    return Served(home, process, int(line.split()[0].rpartition(":")[2]))


def slow(served: Served, text: bytes) -> socket.socket:
    """A connection that has sent a part of a request."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=_SECONDS)
    connection.sendall(text)
    return connection


@dataclass(frozen=True)
class Filled:
    """A service with a few evaluations that were judged, and two connections that stopped halfway at its begin."""

    served: Served
    slow: tuple[socket.socket, ...]
    sent: dict[str, Answer]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    home = Home(tmp_path_factory.mktemp("served"))
    served = serve(home, "--accept-problems")
    try:
        head = f"POST /evaluations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {MINE}\r\ncontent-type: application/json\r\n"
        late = slow(served, b"GET /health HT"), slow(served, f"{head}content-length: 100\r\n\r\n{{".encode())
        runs = str(home.folder / "runs")
        sent = {
            "right": served.send("right", RIGHT),
            "wrong": served.send("wrong"),
            "again": served.send("again", RIGHT, token=THEIRS),
            "spy": served.send("spy", SPY.format(home=runs)),
            "includes": served.send("includes", INCLUDES.format(home=runs)),
            "foreign": served.send("foreign", problem_text=FOREIGN.replace("{home!r}", repr(runs))),
        }
        for id in sent:
            served.judged(id, token=THEIRS if id == "again" else MINE)
        yield Filled(served, late, sent)
    finally:
        served.process.kill()
        served.process.communicate()


def test_accepted_evaluation_is_told_with_202_and_its_place(filled: Filled) -> None:
    found = filled.sent["wrong"]
    assert (found.status, found.headers["location"], found.json["state"]) == (202, "/evaluations/wrong", "queued")


def test_right_candidate_has_its_speedup_with_an_interval_and_its_coverage(filled: Filled) -> None:
    found = filled.served.judged("right")
    assert (found["status"], found["compiled"], found["right"], found["gradable"]) == ("ok", True, True, True)
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert (found["baseline"], found["coverage"]) == ("eager", 0.0)


def test_wrong_candidate_is_told_how_far_off_it_is_and_where(filled: Filled) -> None:
    found = filled.served.judged("wrong")
    assert (found["status"], found["compiled"], found["right"]) == ("wrong_values", True, False)
    assert (found["worst"]["distribution"], found["worst"]["output"]) == ("as given", "output") and found["worst"]["used"] > 1
    assert "times" in found["reason"] or "x what is allowed" in found["reason"]


def test_equal_candidates_are_judged_once(filled: Filled) -> None:
    assert filled.served.judged("again", token=THEIRS)["evaluation"] == filled.served.judged("right")["evaluation"]
    assert filled.served.home.ask("SELECT count(*) FROM evaluation WHERE status = 'ok'") == [(1,)]


def test_candidate_sees_neither_the_folder_of_all_nor_tokens(filled: Filled) -> None:
    assert "sees [] []" in filled.served.ask("GET", "/evaluations/spy/log").text


def test_compiler_does_not_see_the_folder_of_all(filled: Filled) -> None:
    found = filled.served.judged("includes")
    assert (found["status"], found["compiled"], found["right"]) == ("build_error", False, False)
    assert found["reason"].endswith("kgen.db: No such file or directory")


def test_foreign_problem_runs_without_network_and_without_the_folder_of_all(filled: Filled) -> None:
    found = filled.served.judged("foreign")
    assert (found["status"], found["right"]) == ("problem_error", None)
    assert "['lo'] False" in found["reason"]


def test_same_id_is_the_same_evaluation(filled: Filled) -> None:
    again = filled.served.send("wrong")
    assert (again.status, again.json["evaluation"]) == (200, filled.served.judged("wrong")["evaluation"])
    assert filled.served.send("wrong", RIGHT).status == 409


def test_events_end_with_the_answer(filled: Filled) -> None:
    found = filled.served.ask("GET", "/evaluations/wrong/events")
    assert found.headers["content-type"].startswith("text/event-stream")
    assert json.loads(found.text.rpartition("event: answer\ndata: ")[2])["status"] == "wrong_values"


@pytest.mark.parametrize("part", ["", "/log", "/source", "/events"])
def test_client_sees_its_own_evaluations_alone(filled: Filled, part: str) -> None:
    assert filled.served.ask("GET", f"/evaluations/wrong{part}", token=THEIRS).status == 404
    assert filled.served.ask("GET", f"/evaluations/wrong{part}").status == 200


@pytest.mark.parametrize("token", [None, "another-token-than-theirs", ""])
def test_without_a_token_of_a_client_only_health_is_told(filled: Filled, token: str | None) -> None:
    assert filled.served.ask("GET", "/problems", token=token).status == 401
    assert filled.served.ask("GET", "/health", token=token).json["status"] == "ok"


_OK = {"problem": "doubled", "candidate": WRONG}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"priority": NaN}', 400),
        (b"\xff\xfe", 400),
        ([], 422),
        ({}, 422),
        ({"candidate": WRONG}, 422),
        ({**_OK, "unknown": 1}, 422),
        ({**_OK, "candidate": "\0"}, 422),
        ({**_OK, "candidate": "\ud800"}, 422),
        ({**_OK, "candidate": 3}, 422),
        ({**_OK, "problem": "../../etc/passwd"}, 422),
        ({**_OK, "problem": "files/doubled.py"}, 422),
        ({**_OK, "baselines": ["compile"]}, 422),
        ({**_OK, "baselines": [["eager"]]}, 422),
        ({**_OK, "priority": True}, 422),
        ({**_OK, "priority": 10**30}, 422),
        ({**_OK, "seconds": -1}, 422),
        ({**_OK, "accuracy": {}}, 422),
        ({**_OK, "id": "a/b"}, 422),
        ({**_OK, "overrides": {"ROWS": "import os"}}, 422),
        ({"problem_text": "def f(:", "candidate": WRONG}, 422),
        ({"problem_text": "x = 1", "candidate": WRONG}, 422),
        ({"problem_text": PROBLEM + "# other", "candidate": WRONG, "overrides": {"ROWS": "3"}}, 422),
        ({**_OK, "dtype": "bfloat16", "accuracy": "fp32"}, 422),
        (b" " * (MOST_BYTES + 1), 413),
    ],
)
def test_malformed_request_is_refused_in_one_line_and_changes_nothing(filled: Filled, body: Any, status: int) -> None:
    before = filled.served.rows()
    found = filled.served.ask("POST", "/evaluations", body)
    assert found.status == status
    assert found.json.keys() == {"error"} and "\n" not in found.json["error"]
    assert filled.served.rows() == before


def test_syntax_error_of_a_problem_is_told_with_its_line(filled: Filled) -> None:
    found = filled.served.ask("POST", "/evaluations", {"problem_text": "x = 1\ndef f(:", "candidate": WRONG})
    assert ":2: syntax error" in found.json["error"]


def test_page_of_another_site_cannot_send_a_request(filled: Filled) -> None:
    assert filled.served.ask("POST", "/evaluations", _OK, **{"content-type": "text/plain"}).status == 415


def test_batch_with_one_fault_is_refused_as_a_whole(filled: Filled) -> None:
    before = filled.served.rows()
    found = filled.served.ask("POST", "/evaluations/batch", {"evaluations": [_OK, {**_OK, "mode": "other"}]})
    assert (found.status, filled.served.rows()) == (422, before)
    assert found.json["error"].startswith("evaluation 1: mode")


def test_batch_of_known_candidates_is_answered(filled: Filled) -> None:
    found = filled.served.ask("POST", "/evaluations/batch", {"evaluations": [{**_OK, "id": "b1"}, {**_OK, "id": "b2"}]})
    assert found.status == 202
    evaluation = filled.served.judged("wrong")["evaluation"]
    assert [filled.served.judged(id)["evaluation"] for id in ("b1", "b2")] == [evaluation] * 2


def test_kernelgym_gets_its_own_fields(filled: Filled) -> None:
    task = {"task_id": "a/b 1", "reference_code": PROBLEM, "kernel_code": WRONG, "backend": "cuda", "num_perf_trials": 10}
    found = filled.served.ask("POST", "/evaluate", task)
    assert found.status == 200
    names = ("task_id", "status", "compiled", "correctness", "decoy_kernel", "speedup")
    assert [found.json[name] for name in names] == ["a/b 1", "completed", True, False, False, None]
    assert filled.served.ask("GET", "/status/a/b%201").json["status"] == "completed"
    assert filled.served.ask("GET", "/results/a/b%201").json == found.json
    batch = filled.served.ask("POST", "/evaluate/batch", {"batch_id": "x", "tasks": [task, {**task, "task_id": "2", "kernel_code": RIGHT}]}).json
    assert (batch["total_tasks"], batch["failed_tasks"]) == (2, 0)
    assert [one["decoy_kernel"] for one in batch["results"]] == [False, True]
    assert batch["results"][1]["speedup"] == pytest.approx(batch["results"][1]["reference_runtime"] / batch["results"][1]["kernel_runtime"])


def test_problems_are_listed_with_their_constants(filled: Filled) -> None:
    found = filled.served.ask("GET", "/problems").json["problems"]
    assert {"problem": "doubled", "sizes": {"ROWS": 8}} in found


def test_metrics_count_what_was_answered(filled: Filled) -> None:
    lines = filled.served.ask("GET", "/metrics").text.splitlines()
    assert 'kgen_evaluations_total{status="ok"} ' in "\n".join(lines)
    assert "kgen_queued 0" in lines
    assert all(line.startswith("#") or float(line.rpartition(" ")[2]) >= 0 for line in lines)


def test_every_operation_of_the_document_is_there(filled: Filled) -> None:
    found = filled.served.ask("GET", "/openapi.json").json
    assert found["paths"].keys() == {path for _, path, _, _ in OPERATIONS}
    for method, path, _, _ in OPERATIONS:
        answer = filled.served.ask(method.upper(), path.replace("{id}", "none"), token=None)
        assert answer.status == (200 if path == "/health" else 401), path
    page = filled.served.ask("GET", "/docs").text
    assert all(name in page for name in (*FIELDS, *ERRORS))


def test_connection_that_stops_halfway_is_closed_with_408(filled: Filled) -> None:
    for connection in filled.slow:
        with connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_garbage_is_no_request(filled: Filled) -> None:
    with slow(filled.served, b"\x16\x03\x01\r\n\r\n") as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def test_killed_service_loses_no_accepted_evaluation(tmp_path: Path) -> None:
    home = Home(tmp_path)
    served = serve(home)
    with ThreadPoolExecutor(4) as clients:
        sent = list(clients.map(lambda n: served.send(f"e{n}", WRONG.replace("* 3", f"* {3 + n}")), range(4)))
    served.process.kill()
    served.process.communicate()
    assert [one.status for one in sent] == [202] * 4
    after = serve(home)
    try:
        assert [after.judged(f"e{n}")["status"] for n in range(4)] == ["wrong_values"] * 4
        assert home.ask("SELECT count(*), count(DISTINCT id) FROM request WHERE state = 'done'") == [(4, 4)]
        after.process.send_signal(signal.SIGTERM)
        assert after.process.wait(_SECONDS) == 0
    finally:
        after.process.kill()
        after.process.communicate()
    assert home.strays() == []


def test_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    ended = Home(tmp_path).typed("serve", "--host", "0.0.0.0", "--port", "0", "--device", "cpu")
    assert ended.code == 2 and "--tokens FILE" in ended.err and ended.err.count("\n") == 1
