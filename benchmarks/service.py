"""Measures a service that runs: how fast it accepts evaluations, how many it answers, and whether each answer is its own.

    kgen serve --problems FOLDER --time 0.5 &
    python benchmarks/service.py http://127.0.0.1:8002 FOLDER --problems 48 --clients 32

Candidates are made of the text of each problem. Some are right, and some of these have a kernel to compile. Others are
wrong, slow, raise, crash or cheat. Some come twice. ``--record`` writes ``results/service.md`` and ``.json``, and
``--record-as NAME`` to ``results/NAME``. A token is read from ``KGEN_TOKEN``.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _record import Cell, record

#: The bodies of ``forward`` by kind, with the statuses that are right for it. ``{n}`` makes a text its own.
KINDS = {
    "right": ("return super().forward(*inputs)  # {n}", {"ok"}),
    "slow": ("time.sleep(0.01 + {n} / 1e6); return super().forward(*inputs)", {"ok"}),
    "wrong": ("return tree_map(lambda x: x * (1.5 + {n}), super().forward(*inputs))", {"wrong_values", "wrong_type"}),  # integers become floats
    "raises": ("raise RuntimeError('{n}')", {"runtime_error"}),
    "crashes": ("os.abort()  # {n}", {"crashed"}),
    "compiled": ("return tree_map(lambda x: copied({n}, x), super().forward(*inputs))", {"ok"}),
    "cheats": ("return remembered(self, inputs, super().forward)  # {n}", {"wrong_values", "suspicious", "aliased_output"}),
}
#: The candidates of one problem: a kind, and the number of its text. Equal ones are duplicates.
CANDIDATES = (("right", 0), ("wrong", 0), ("raises", 0), ("right", 0), ("compiled", 0), ("right", 1), ("crashes", 0), ("slow", 0),
              ("wrong", 0), ("cheats", 0), ("raises", 1), ("compiled", 1), ("wrong", 1), ("raises", 0), ("right", 1), ("wrong", 2))  # fmt: skip
_CLASS = """

import os
import time

from torch.utils._pytree import tree_map


def remembered(module, inputs, forward):
    key = tuple(x.data_ptr() for x in inputs if isinstance(x, torch.Tensor))
    kept = module.__dict__.setdefault("kept", {{}})
    if key not in kept:
        kept[key] = forward(*inputs)
    return tree_map(torch.clone, kept[key])


class ModelNew(Model):
    def forward(self, *inputs):
        {body}
"""
#: In front of the class of a candidate with a kernel, which copies bytes. Names make the library the candidate's own.
_KERNEL = """

import ctypes

from torch.utils.cpp_extension import load_inline

_LAUNCH = '''
extern "C" void copy_{name}(const char* from, char* to, long size, void* stream) {{
  copy_kernel<<<(size + 255) / 256, 256, 0, (cudaStream_t)stream>>>(from, to, size);
}}
'''
_KERNEL = '''
__global__ void copy_kernel(const char* from, char* to, long size) {{
  long i = blockIdx.x * 256l + threadIdx.x;
  if (i < size) to[i] = from[i];
}}
'''
_PLAIN = '''
#include <cstring>
extern "C" void copy_{name}(const char* from, char* to, long size, void*) {{ std::memcpy(to, from, size); }}
'''
_sources = {{"cpp_sources": "", "cuda_sources": _KERNEL + _LAUNCH}} if torch.cuda.is_available() else {{"cpp_sources": _PLAIN}}
_library = ctypes.CDLL(load_inline(name="copy_{name}", is_python_module=False, no_implicit_headers=True, **_sources))


def copied(number, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else None
    _library.copy_{name}(*map(ctypes.c_void_p, (x.data_ptr(), y.data_ptr())), ctypes.c_long(x.numel() * x.element_size()), ctypes.c_void_p(stream))
    return y
"""
_FIRST = "return super().forward(*inputs)  # the first"  # of the candidates by which problems get known
_LOOK_SECONDS = 0.5  # s; between looks at an evaluation


@dataclass(frozen=True)
class Sent:
    """An evaluation that was sent at a time, the seconds until it was accepted, and its answer; none where the time was up."""

    at: float
    problem: str
    kind: str
    seconds: float
    answer: dict[str, Any] | None


class Client:
    """One connection after another to a service; a full queue is waited for."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        token = os.environ.get("KGEN_TOKEN")
        self._headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            found = connection.getresponse()
            return found.status, dict(found.getheaders()), json.loads(found.read())
        finally:
            connection.close()

    def send(self, body: dict[str, Any]) -> tuple[str, float]:
        """The id of an accepted evaluation, and the seconds that the last try took."""
        while True:
            started = time.perf_counter()
            status, headers, found = self.ask("POST", "/evaluations", body)
            if status in (200, 202):
                return found["id"], time.perf_counter() - started
            if status != 429:
                raise SystemExit(f"{status}: {found['error']}")
            time.sleep(float(headers["retry-after"]))

    def answer(self, id: str, until: float) -> dict[str, Any] | None:
        while (found := self.ask("GET", f"/evaluations/{id}")[2])["state"] != "done":
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK_SECONDS)
        return found


def bodies(files: list[Path], each: int, grouped: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """The kinds and the requests: one candidate of each problem after the other, or all of one problem, then of the next."""
    pairs = [(file, kind) for kind in CANDIDATES[:each] for file in files]
    for file, (kind, number) in sorted(pairs, key=lambda pair: pair[0]) if grouped else pairs:
        code = _KERNEL.format(name=f"{file.stem}_{number}") if kind == "compiled" else ""
        code += _CLASS.format(body=KINDS[kind][0].replace("{n}", str(number)))
        yield kind, {"problem": file.stem, "candidate": file.read_text(encoding="utf-8") + code}


def accepted(which: str, sent: Sequence[Sent]) -> dict[str, Cell]:
    """A row of the record: the milliseconds until requests were accepted."""
    times = sorted(1e3 * one.seconds for one in sent)
    p95 = times[int(0.95 * (len(times) - 1))]
    return {"requests": which, "number": len(times), "median, ms": statistics.median(times), "p95, ms": p95, "longest, ms": times[-1]}


def _know(client: Client, files: Sequence[Path], seconds: float) -> None:
    """Have a candidate of each problem judged, so that its baselines are known: none of those that are sent later."""
    until = time.monotonic() + seconds
    bodies = [{"problem": file.stem, "candidate": file.read_text(encoding="utf-8") + _CLASS.format(body=_FIRST)} for file in files]
    for id, _ in [client.send(body) for body in bodies]:
        client.answer(id, until)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path, help="problem files, which the service knows by name")
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--each", type=int, default=len(CANDIDATES), help="candidates of each problem")
    parser.add_argument("--evaluations", type=int, help="the most to send")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which nothing more is sent or waited for")
    parser.add_argument("--grouped", action="store_true", help="send all candidates of a problem, then those of the next")
    parser.add_argument("--ahead", action="store_true", help="send everything before any answer is waited for, as a step of training does")
    parser.add_argument("--known", action="store_true", help="first have one candidate of each problem judged, which is not counted")
    parser.add_argument("--record", metavar="BESIDE", help="record the times to accept, with what ran beside")
    parser.add_argument("--record-as", metavar="NAME", default="service", help="the record's name (default service)")
    options = parser.parse_args()
    client, lock, sent = Client(options.url), threading.Lock(), []
    files = sorted(options.folder.rglob("*.py"))[: options.problems]
    if options.known:
        _know(client, files, 60 * options.minutes)
    started = time.monotonic()
    until = started + 60 * options.minutes
    ids: dict[int, tuple[float, str, float]] = {}

    def send(number: int, body: dict[str, Any]) -> None:
        at = time.monotonic()
        if at <= until:
            ids[number] = (at, *client.send(body))

    def wait(number: int, kind: str, problem: str) -> None:
        if number in ids:
            at, id, seconds = ids[number]
            answer = client.answer(id, until)
            with lock:
                sent.append(Sent(at, problem, kind, seconds, answer))

    def evaluate(job: tuple[int, tuple[str, dict[str, Any]]]) -> None:
        number, (kind, body) = job
        if not options.ahead:
            send(number, body)
        wait(number, kind, body["problem"])

    jobs = list(enumerate(islice(bodies(files, options.each, options.grouped), options.evaluations)))
    with ThreadPoolExecutor(options.clients) as clients:
        if options.ahead:
            list(clients.map(lambda job: send(job[0], job[1][1]), jobs))
        list(clients.map(evaluate, jobs))
    minutes = (time.monotonic() - started) / 60
    at_once = sorted(sent, key=lambda one: one.at)[: options.clients]
    parts = {"all": sent, "the first of each client, at once": at_once, "later ones": [one for one in sent if one not in at_once]}
    rows = [accepted(which, part) for which, part in parts.items() if part]
    answered = [(one, one.answer) for one in sent if one.answer is not None]
    other = [(one, answer) for one, answer in answered if answer["status"] not in KINDS[one.kind][1]]
    shares = {answer["evaluation"] for _, answer in answered if answer.get("median_ms") is not None and not answer.get("reused")}
    print(f"{len(sent)} evaluations of {len(files)} problems from {options.clients} clients in {minutes:.2f} min")
    for row in rows:
        print(row)
    print(f"right and timed: {len(shares)} candidates, {len(shares) / minutes:.0f} a minute; all: {len(answered) / minutes:.0f} a minute")
    print(f"no answer when the time was up: {len(sent) - len(answered)}")
    print("by kind and status:", dict(Counter(f"{one.kind} {answer['status']}" for one, answer in answered)))
    for one, answer in other[:20]:
        print(f"OTHER {one.problem} {one.kind}: {answer['status']}: {answer['reason'][:160]}")
    if options.record is not None:
        what = f"{len(sent)} evaluations of {len(files)} problems from {options.clients} clients in {minutes:.1f} minutes"
        right = f"{len(answered) - len(other)} of {len(answered)} answers were the expected ones"
        timed = f"{len(shares)} right candidates were timed, {len(shares) / minutes:.0f} a minute"
        record(options.record_as, "A service under load: the time to accept a request", rows,
               f"{what}, with clients and service on one machine. {right}. {timed}. Beside them ran: {options.record}.")  # fmt: skip


if __name__ == "__main__":
    main()
