"""The baselines of an evaluator: PyTorch's own ways to run the problem, prepared in a thread and timed beside
candidates."""

import threading
import time
import uuid
from math import inf
from typing import TYPE_CHECKING

from kgen.errors import EvaluatorError
from kgen.evaluator.correctness.validate import Failure, WorkerClient
from kgen.evaluator.runtime.process import Server
from kgen.evaluator.timing.measure import Runner
from kgen.evaluator.workers import FOLDERS
from kgen.protocol import GRAPH_BASELINE, Depth, Phase, Status, Timing

if TYPE_CHECKING:
    from kgen.evaluator.evaluator import Evaluator

_ATTEMPTS = 4  #: to prepare a baseline, when processes fail
_CPU_COMPILE_SECONDS = 60.0
_NO_LIMIT = 1 << 62
#: The steps of preparing the baselines that take long.
_PREPARING = {
    "compile": "compiling the torch.compile baseline",
    "compile-max-autotune": "compiling the max-autotune baseline",
    GRAPH_BASELINE: "compiling the reduce-overhead baseline",
}
#: The baselines whose compilation leaves the device to others; the search of max-autotune runs kernels.
_COMPILED_BESIDE = frozenset(("compile", GRAPH_BASELINE))


class Baselines:
    """Prepares the baselines ``names``, keeps a worker for each, and times them. With ``compiles_later``, compiled
    baselines come once :attr:`may_compile` is set."""

    def __init__(self, evaluator: "Evaluator", names: tuple[str, ...], *, compiles_later: bool) -> None:
        self._evaluator = evaluator
        self.names, self.compiles_later = names, compiles_later
        self.runners: dict[str, Runner] = {}
        self.workers: dict[str, WorkerClient] = {}  # the latest process of each
        self.preparing: threading.Thread | None = None
        self.begun = threading.Event()  # once the baselines without a compiler are prepared
        self.may_compile = threading.Event()
        self.in_finals = False
        self._timings: dict[str, Timing] = {}
        self._timing = threading.Lock()
        if not compiles_later:
            self.may_compile.set()

    def start(self) -> None:
        """Prepare the baselines in a thread."""
        self.runners = {}
        self.begun.clear()
        self.preparing = threading.Thread(target=self.prepare_all, name="kgen-baselines", daemon=True)
        self.preparing.start()

    def terminate(self) -> None:
        """End the processes for which the thread may wait."""
        for worker in [*self.workers.values()]:
            worker.child.terminate()

    def close(self) -> None:
        """End the processes, and wait for them."""
        while self.workers:
            self.workers.popitem()[1].close()

    def timed(self) -> tuple[Timing, ...]:
        """The baselines that are prepared, each timed alone and briefly; measured once."""
        evaluator = self._evaluator
        with self._timing:
            session, new = uuid.uuid4().hex, [x for x in self.prepared() if x.name not in self._timings]
            if new:
                evaluator.step("timing the baselines")
            for runner in new:
                with evaluator.timing() as conditions_now:
                    runner.worker.enter(Phase.TIME, evaluator.limits.time_seconds)
                    try:
                        runner.screen(evaluator.random)
                    except Failure as failure:
                        self.lose(runner, failure)
                        continue
                    self._timings[runner.name] = runner.timing(Depth.SCREEN, session, conditions_now())
                evaluator.checks.baseline_screened(runner)
            return tuple(self._timings[name] for name in self.names if name in self._timings)

    def ready(self, *, alone: bool) -> list[Runner]:
        """The baselines that are prepared. They are timed briefly where candidates are timed ``alone``. Where
        candidates are timed beside them, the method waits for every baseline."""
        if alone:
            self.timed()
            return self.prepared()
        self.in_finals = True
        self.may_compile.set()
        return self.prepared(every=True)

    def lose(self, runner: Runner, failure: Failure) -> None:
        self._evaluator.notice(f"baseline {runner.name} is left out: {failure.reason}")
        self._evaluator.workers.let_go(runner.worker)
        self.runners.pop(runner.name, None)

    def prepared(self, *, every: bool = False) -> list[Runner]:
        """The baselines that could be prepared, in the requested order. With ``every`` or without ``compiles_later``,
        the method waits for all of them."""
        self._evaluator.alive()
        preparing = self.preparing
        later = self.compiles_later and not every
        while preparing is not None and preparing.is_alive() and not (later and self.begun.is_set()):
            preparing.join(0.02 if later else 0.2)  # in slices, so that an interrupt gets through
        return [self.runners[name] for name in self.names if name in self.runners]

    def prepare_all(self) -> None:
        """Prepare the baselines, first eager, then those that are compiled."""
        for name in sorted(self.names, key=lambda name: name != "eager"):
            if name != "eager":
                self.begun.set()
                while not self.may_compile.wait(0.2):
                    if self.is_over():
                        return
            if not self.prepare(name):
                return
        if self.compiles_later and not self.in_finals:
            self._evaluator.step("trying candidates")

    def with_graphs(self) -> list[Runner]:
        """The baselines, with the baseline of PyTorch's own graphs where any baseline is compiled."""
        if set(self.names) - {"eager", GRAPH_BASELINE} and GRAPH_BASELINE not in self.names:
            self.names += (GRAPH_BASELINE,)
            self.preparing = threading.Thread(
                target=self.prepare, args=[GRAPH_BASELINE], name="kgen-baselines", daemon=True
            )
            self.preparing.start()
        return self.prepared(every=True)

    def is_over(self) -> bool:
        """Whether the processes of this thread's baselines have ended."""
        return (
            self._evaluator.oracle is None
            or self._evaluator.closing.is_set()
            or self.preparing is not threading.current_thread()
        )

    def prepare(self, name: str) -> bool:
        """Prepare a baseline, or leave it out with a notice. Returns whether to go on with others."""
        evaluator = self._evaluator
        server = evaluator.server if name == "eager" else evaluator.compilers
        for attempt in range(_ATTEMPTS):
            try:
                server.wait()  # others may time meanwhile
                with evaluator.lock.working():
                    if self.is_over():
                        return False
                    self.compile_seconds(name)  # before a process starts in vain
                    evaluator.step(_PREPARING.get(name, f"preparing the {name} baseline"))
                    worker = self.start_one(name, server)
                self.runners[name] = self.ready_one(name, worker)
                break
            except (Failure, EvaluatorError) as error:
                if self.is_over():
                    return False
                died = getattr(error, "status", Status.CRASHED) in (Status.CRASHED, Status.OUT_OF_MEMORY)
                if not died or attempt + 1 == _ATTEMPTS:
                    evaluator.notice(f"baseline {name} is left out: {getattr(error, 'reason', error)}")
                    break
        return True

    def start_one(self, name: str, server: Server) -> WorkerClient:
        """A worker with the baseline's module and inputs, before its first call."""
        evaluator = self._evaluator
        folder = (
            evaluator.home / "scratch" / (f"problem-{uuid.uuid4().hex}" if evaluator.foreign_problem else "baselines")
        )
        folder.mkdir(parents=True, exist_ok=True)
        options = evaluator.workers.options(worker=True) | {"scratch": str(folder), "compiles": name != "eager"}
        log = evaluator.home / "logs" / f"baseline-{name}.log"
        variables = dict(evaluator.seen_alone)
        if evaluator.foreign_problem:  # its caches serve no other problem
            options |= evaluator.workers.confinement(folder)
            variables |= dict.fromkeys(FOLDERS, str(folder))
        worker = self.workers[name] = WorkerClient(server.spawn("baseline", options, log, variables))
        try:
            worker.ready()
            worker.child.limit(_NO_LIMIT, _NO_LIMIT)  # to observe its threads
            worker.enter(Phase.LOAD, self.compile_seconds(name))
            evaluator.workers.load(worker, {"problem": evaluator.workers.problem_fields()})
            evaluator.workers.make(worker, name)
            evaluator.workers.rehearse(worker)
            return worker
        except BaseException:
            evaluator.workers.let_go(worker)
            raise

    def ready_one(self, name: str, worker: WorkerClient) -> Runner:
        """The runner of a started worker. On a GPU, others may time while torch's compiler works for it."""
        evaluator = self._evaluator
        try:
            if evaluator.kind.accelerator and name in _COMPILED_BESIDE:
                evaluator.workers.compile(worker, name)
            with evaluator.lock.working():
                return evaluator.workers.ready(name, worker)
        except BaseException:
            evaluator.workers.let_go(worker)
            raise

    def compile_seconds(self, name: str) -> float:
        """How long a baseline may take to get ready. Raises :class:`Failure` where no time is left to compile it."""
        evaluator = self._evaluator
        seconds = min(evaluator.limits.compile_seconds, inf if evaluator.kind.accelerator else _CPU_COMPILE_SECONDS)
        if name == "eager":  # is not compiled, and always compared with
            return seconds
        left = evaluator.limits.compile_until - time.monotonic()
        if left <= 0:
            raise Failure(Status.TIMEOUT, "the time for compiling baselines is over", Phase.LOAD)
        return min(seconds, left)
