"""Measures a service that runs: how fast it accepts evaluations, how many it answers, and whether each answer is its own.

    kgen serve --problems FOLDER --time 0.5 &
    python benchmarks/service.py http://127.0.0.1:8002 FOLDER --problems 48 --clients 32

``--record`` writes ``results/service.md`` and ``.json``. For each problem, it sends candidates made of the problem's own text: right ones, wrong ones, slow ones, ones that raise or crash, and
duplicates. A token is read from ``KGEN_TOKEN``.
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
    "wrong": ("return tree_map(lambda x: x * (1.5 + {n}), super().forward(*inputs))", {"wrong_values"}),
    "raises": ("raise RuntimeError('{n}')", {"runtime_error"}),
    "crashes": ("os.abort()  # {n}", {"crashed"}),
}
#: The candidates of one problem: a kind, and the number of its text. Equal ones are duplicates.
CANDIDATES = (("right", 0), ("wrong", 0), ("raises", 0), ("right", 0), ("wrong", 1), ("right", 1), ("crashes", 0), ("slow", 0),
              ("wrong", 0), ("wrong", 2), ("raises", 1), ("right", 2), ("wrong", 3), ("raises", 0), ("right", 1), ("wrong", 4))  # fmt: skip
_CLASS = """

import os
import time

from torch.utils._pytree import tree_map


class ModelNew(Model):
    def forward(self, *inputs):
        {body}
"""
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
        code = _CLASS.format(body=KINDS[kind][0].replace("{n}", str(number)))
        yield kind, {"problem": file.stem, "candidate": file.read_text(encoding="utf-8") + code}


def accepted(which: str, sent: Sequence[Sent]) -> dict[str, Cell]:
    """A row of the record: the milliseconds until requests were accepted."""
    times = sorted(1e3 * one.seconds for one in sent)
    p95 = times[int(0.95 * (len(times) - 1))]
    return {"requests": which, "number": len(times), "median, ms": statistics.median(times), "p95, ms": p95, "longest, ms": times[-1]}


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
    parser.add_argument("--record", metavar="BESIDE", help="record the times to accept, with what ran beside")
    options = parser.parse_args()
    client, lock, sent = Client(options.url), threading.Lock(), []
    files = sorted(options.folder.rglob("*.py"))[: options.problems]
    started = time.monotonic()
    until = started + 60 * options.minutes

    def evaluate(job: tuple[str, dict[str, Any]]) -> None:
        kind, body = job
        if time.monotonic() > until:
            return
        at = time.monotonic()
        id, seconds = client.send(body)
        answer = client.answer(id, until)
        with lock:
            sent.append(Sent(at, body["problem"], kind, seconds, answer))

    with ThreadPoolExecutor(options.clients) as clients:
        list(clients.map(evaluate, islice(bodies(files, options.each, options.grouped), options.evaluations)))
    minutes = (time.monotonic() - started) / 60
    at_once = sorted(sent, key=lambda one: one.at)[: options.clients]
    rows = [accepted("all", sent), accepted("the first of each client, at once", at_once),
            accepted("later ones", [one for one in sent if one not in at_once])]  # fmt: skip
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
        record("service", "A service under load: the time to accept a request", rows,
               f"{what}, with clients and service on one machine. {right}. Beside them ran: {options.record}.")  # fmt: skip


if __name__ == "__main__":
    main()
