"""The judge: takes accepted requests from the queue, has them judged, and keeps one answer for each.

The same candidate that several requests ask about is judged once: they share a job.
"""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Sequence

from kgen import paths
from kgen.devices.machine import find_own_tools, keep_bytecode
from kgen.errors import EvaluatorError, InputError, KgenError, ProblemError
from kgen.protocol import Status
from kgen.serve import answers
from kgen.serve.asked import Asked, RequestError, from_json
from kgen.serve.bench import Bench
from kgen.serve.metrics import Metrics
from kgen.serve.together import Added, Together
from kgen.store import Database, requests
from kgen.store.requests import StoredRequest
from kgen.tuning import eval_file, events

TRIES = 2  #: of an evaluation whose processes fail
#: Limit of services that end while they judge one candidate. People kill some services: the candidate is not at fault.
SERVICES = 10
_BURST_SECONDS = 0.3  #: s; the longest wait of a job while requests come: its processes would delay them
_IN_A_ROW = 32  #: jobs of open evaluators that go before an older job of another
_MOST_EVENTS = 200  #: of one job
_MOST_WAIT = 300.0  #: s; that a refused client is told to wait
_AGAIN_SECONDS = 1.0  #: s; until an answer that could not be stored is stored again
_PROBLEM_ERROR = "problem_error"  #: the status of an answer whose problem cannot be judged

Key = tuple[str, str]  #: a request's owner and id
Wanted = tuple[StoredRequest, Asked]  #: a request, and the evaluation that it describes


class QueueFull(Exception):
    """The queue has no room; the client may come again after ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full: come again in {seconds} s")
        self.seconds = seconds


class Draining(Exception):
    """The service ends: it accepts nothing more."""


@dataclass
class _Job:
    """One candidate to judge, for all requests that ask about it."""

    asked: Asked
    digest: str
    bench: str
    number: int
    priority: int
    keys: list[Key]
    device: str = ""  # on which it runs
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        return bool(self.device)

    def tell(self, event: events.Event) -> None:
        if isinstance(event, events.Step) and len(self.events) < _MOST_EVENTS:
            self.events.append({"event": "step", "text": event.text})


class Judge:
    """Judges requests on ``benches``, each with ``lanes`` threads. At most ``limit`` requests wait or run."""

    def __init__(
        self, database: Database, benches: Sequence[Bench], *, lanes: int, limit: int, metrics: Metrics,
        notice: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.metrics = metrics
        self._database = database
        self._benches = benches
        self._limit = limit
        self._notice = notice
        self._changed = threading.Condition()
        self._together = Together(database)
        self._jobs: dict[str, _Job] = {}  # by digest
        self._of: dict[Key, _Job] = {}
        self._waiting: dict[Key, StoredRequest] = {}  # those without an answer, without their texts
        self._reserved = 0  # places of requests that are being accepted
        self._numbers = itertools.count()
        self._environments: set[str] = set()  # of the devices, once an evaluator has started
        self._draining = self._ending = False
        self._streak = 0  # jobs in a row that went before an older one
        self._threads = [
            threading.Thread(target=self._lane, args=(bench,), name=f"kgen-judge-{bench.device}-{n}", daemon=True)
            for bench in benches
            for n in range(lanes)
        ]

    def start(self) -> int:
        """Adopt the requests that an ended service has left, and begin. Returns how many requests were adopted."""
        find_own_tools()
        keep_bytecode(paths.bytecode())
        adopted = requests.adopt(self._database)
        for request in adopted:
            if request.tries >= SERVICES:
                self._answer(
                    [(request.owner, request.id)],
                    answers.failed(f"the service ended {request.tries} times while it was judged"),
                    None,
                )
            else:
                self._enqueue(request, from_json(request.asked))
        for thread in self._threads:
            thread.start()
        return len(adopted)

    # Requests ------------------------------------------------------------------------------------------------------

    def accept(self, wanted: Sequence[Wanted]) -> list[StoredRequest]:
        """Keep requests of one owner, all or none, and have them judged. Returns each stored request: for an id that
        was used before, the older request.

        Raises :class:`RequestError` for an id of another evaluation, :class:`QueueFull` and :class:`Draining`.
        """
        return self.accepting(lambda: wanted).result()

    def accepting(self, read: Callable[[], Sequence[Wanted]]) -> Future[list[StoredRequest]]:
        """Like :meth:`accept`, without waiting, for the requests that ``read`` returns. The thread that stores requests
        calls ``read``."""
        wanted: list[Wanted] = []
        places = 0

        def reserved() -> list[StoredRequest]:
            nonlocal places
            wanted.extend(read())
            every = [request for request, _ in wanted]
            places = self._reserve(every)
            return every

        def released(_: object) -> None:
            with self._changed:
                self._reserved -= places

        future = self._together.submit(reserved, lambda added: self._kept(wanted, added))
        future.add_done_callback(released)
        return future

    def _kept(self, wanted: Sequence[Wanted], added: Added) -> list[StoredRequest]:
        """Have requests judged that are stored now. Raises :class:`RequestError` for an id of another evaluation."""
        for (mine, asked), (request, is_new) in zip(wanted, added, strict=True):
            if request.digest != mine.digest:
                raise RequestError(409, f"the id {mine.id} stands for another evaluation")
            if is_new:
                self._enqueue(request, asked)
                self.metrics.add("kgen_accepted_total")
        return [request for request, _ in added]

    def _reserve(self, every: Sequence[StoredRequest]) -> int:
        """Reserve places for requests, and return their number. Where not all requests have room, known requests need
        no place."""
        places = len(every)
        if not self._has_room(places):
            places -= len(requests.stored(self._database, every))
            if places and not self._has_room(places):
                raise QueueFull(self._wait_seconds())
        with self._changed:
            if self._draining:
                raise Draining
            self._reserved += places
        return places

    def _has_room(self, places: int) -> bool:
        with self._changed:
            return len(self._of) + self._reserved + places <= self._limit

    def _wait_seconds(self) -> int:
        """The seconds that about a tenth of the queue takes."""
        ended = self.metrics.total("kgen_evaluations_total")
        mean = self.metrics.total("kgen_judging_seconds_total") / ended if ended else 5.0
        return int(min(max(1.0, mean * len(self._jobs) / (10 * len(self._threads))), _MOST_WAIT))

    def _enqueue(self, request: StoredRequest, asked: Asked) -> None:
        key = (request.owner, request.id)
        with self._changed:
            job = self._jobs.get(request.digest)
            if job is None:
                job = _Job(asked, request.digest, asked.bench, next(self._numbers), request.priority, [])
                self._jobs[request.digest] = job
            job.keys.append(key)
            job.priority = max(job.priority, request.priority)
            self._of[key] = job
            self._waiting[key] = answers.brief(request)
            self._changed.notify()

    def events(self, owner: str, id: str, after: int) -> list[dict[str, Any]] | None:
        """The events of a request behind the first ``after``; ``None`` once it has its answer."""
        with self._changed:
            job = self._of.get((owner, id))
            return None if job is None else job.events[after:]

    def waiting(self, owner: str, id: str) -> StoredRequest | None:
        """A request that has no answer yet, without its texts. It takes no thread and no database."""
        with self._changed:
            job, request = self._of.get((owner, id)), self._waiting.get((owner, id))
            if job is None or request is None:
                return None
            return replace(request, state=requests.RUNNING if job.runs else requests.QUEUED)

    def position(self, owner: str, id: str) -> int | None:
        """The number of waiting jobs that were accepted before this request's job; ``None`` where the job does not
        wait."""
        with self._changed:
            job = self._of.get((owner, id))
            if job is None or job.runs:
                return None
            return sum(
                not other.runs and (-other.priority, other.number) < (-job.priority, job.number)
                for other in self._jobs.values()
            )

    def load(self) -> dict[str, int]:
        """The numbers of requests that wait and of jobs that run."""
        with self._changed:
            running = [job for job in self._jobs.values() if job.runs]
            return {"queued": len(self._of) - sum(len(job.keys) for job in running), "running": len(running)}

    # The end -------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accept and begin nothing more; running jobs go on."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    @property
    def is_draining(self) -> bool:
        """Whether the service accepts nothing more."""
        return self._draining

    def finish(self) -> None:
        """Wait until nothing runs any more, after :meth:`drain`."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """End all evaluators. The next service judges again the candidates that ran."""
        with self._changed:
            self._draining = self._ending = True
            self._changed.notify_all()
        for bench in self._benches:
            bench.close()
        self.finish()
        self._together.close()

    # The lanes -----------------------------------------------------------------------------------------------------

    def _lane(self, bench: Bench) -> None:
        while (job := self._next(bench)) is not None:
            self._together.wait_until_quiet(_BURST_SECONDS)
            started = time.monotonic()
            try:
                answer, environment = self._judged(job, bench)
            except _Ending:
                return
            except KgenError as error:  # the database
                answer, environment = answers.failed(str(error)), None
            self.metrics.add("kgen_judging_seconds_total", time.monotonic() - started)
            self._end(job, answer, environment)

    def _next(self, bench: Bench) -> _Job | None:
        """The next job, which then runs; ``None`` once the service ends."""
        with self._changed:
            while not self._draining:
                waiting = [job for job in self._jobs.values() if not job.runs]
                if waiting:
                    place = self._places(bench, waiting)
                    job = min(waiting, key=lambda job: (-job.priority, place(job), job.number))
                    oldest = min(waiting, key=lambda job: job.number)
                    self._streak = 0 if job is oldest else self._streak + 1
                    job.device = bench.device
                    return job
                self._changed.wait()
        return None

    def _places(self, bench: Bench, waiting: Sequence[_Job]) -> Callable[[_Job], int]:
        """The places of jobs of equal priority, lower ones first.

        Jobs of started evaluators go first, but not for ever. An evaluator's jobs beyond its share of the lanes do not
        go first. Then come jobs for which another evaluator starts beside them: the next problem is ready when one is
        done. Jobs of another device's evaluators come last: each device would time the same baselines.
        """
        others = {key for other in self._benches if other is not bench for key in other.opened()}
        if self._streak >= _IN_A_ROW:
            return lambda job: job.bench in others
        opened = bench.opened()
        running = Counter(job.bench for job in self._jobs.values() if job.device == bench.device)
        bench.wanted = wanted = {job.bench for job in waiting}
        has_room = len(opened) < bench.most or any(not running[key] and key not in wanted for key in opened)
        share = -(-len(self._threads) // (len(self._benches) * bench.most))

        def place(job: _Job) -> int:
            started = opened.get(job.bench)
            if started:
                return 0 if running[job.bench] < share else 2
            if started is None:
                return 5 if job.bench in others else 1 if has_room else 4
            return 3

        return place

    def _judged(self, job: _Job, bench: Bench) -> tuple[dict[str, Any], str | None]:
        """The answer to a job, and its environment; ``None`` where the same candidate has to be judged again."""
        for environment in tuple(self._environments):
            if (known := self._known(job.digest, environment)) is not None:
                return known, environment
        for key in tuple(job.keys):
            requests.begin(self._database, *key)
        answer = answers.failed("it was not judged")
        for attempt in range(TRIES):
            if attempt:
                self.metrics.add("kgen_retries_total")
            try:
                return self._once(job, bench)
            except EvaluatorError as error:
                answer = answers.failed(str(error))
            except ProblemError as error:
                return answers.failed(str(error), status=_PROBLEM_ERROR), None
            except InputError as error:  # the database, the disk, a compiler, the device
                answer = answers.failed(str(error))
            except Exception as error:
                traceback.print_exc()
                answer = answers.failed(f"a bug in kgen: {type(error).__name__}: see the log of the service")
            if self._ending:
                raise _Ending
        return answer, None

    def _once(self, job: _Job, bench: Bench) -> tuple[dict[str, Any], str]:
        asked = job.asked
        with bench.take(asked) as evaluator:
            environment = evaluator.environment.id
            if environment not in self._environments:
                self._environments.add(environment)
                if (known := self._known(job.digest, environment)) is not None:
                    return known, environment
            request = eval_file.EvalRequest(
                problem=asked.problem,
                file="candidate.py",
                source=asked.candidate,
                device=bench.device,
                accuracy=asked.accuracy,
                baselines=asked.baselines,
                seconds=asked.seconds,
                cache=asked.cache,
            )
            found = eval_file.judge(request, self._database, evaluator, bench.device, job.tell, time.monotonic())
            answer = answers.judged(asked, found)
            if answer["status"] == Status.INFRA_ERROR.value:
                raise EvaluatorError(answer["reason"])
        return answer, environment

    def _known(self, digest: str, environment: str) -> dict[str, Any] | None:
        """An earlier answer to the same in this environment."""
        known = requests.known(self._database, digest, environment)
        if known is None or known.answer is None:
            return None
        self.metrics.add("kgen_reused_total")
        return {**known.answer, "reused": True}

    def _end(self, job: _Job, answer: dict[str, Any], environment: str | None) -> None:
        """Answer all requests of a job. Requests that come meanwhile get a job of their own, which finds this
        answer."""
        with self._changed:
            keys = tuple(job.keys)
            del self._jobs[job.digest]
        self._answer(keys, answer, environment)
        with self._changed:
            for key in keys:
                self._of.pop(key, None)
                self._waiting.pop(key, None)

    def _answer(self, keys: Sequence[Key], answer: dict[str, Any], environment: str | None) -> None:
        while not self._ending:
            try:
                answered = requests.finish(self._database, keys, answer, environment)
            except KgenError as error:
                self._notice(f"an answer waits to be stored: {error}")
                time.sleep(_AGAIN_SECONDS)
            else:
                self.metrics.add("kgen_evaluations_total", len(answered), status=str(answer["status"]))
                return


class _Ending(Exception):
    """The service ends, and leaves the evaluation to the next one."""
