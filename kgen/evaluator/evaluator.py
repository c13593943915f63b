"""The evaluator: judges candidates of one problem on one device. This is the parent; it never initialises CUDA.

    with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=Path("runs")) as evaluator:
        builder = evaluator.builder()
        evaluation = evaluator.evaluate(candidate, builder.build(candidate.source))
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import threading
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from kgen.candidate import SHORT, Candidate
from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.build import Builder, binary_hash, compiler_version, read_extension
from kgen.evaluator.correctness.validate import (
    OWN_NUMBERS, Cases, Failure, OracleClient, WorkerClient, check_structure, explain, raise_if_failed, validate,
)
from kgen.evaluator.protocol import (
    BASELINES, OTHER_VALUES, SCALED, Accuracy, BuildReport, Depth, Environment, Evaluation, Health, Limits, Phase,
    RegimeErrors, Status, Timing,
)
from kgen.evaluator.runtime.channel import ChannelTimeout
from kgen.evaluator.runtime.locks import DeviceLock
from kgen.evaluator.runtime.process import Child, ChildDied, Server
from kgen.evaluator.strict.labels import has_native_code, measured_labels, static_labels
from kgen.evaluator.timing.conditions import Conditions, conditions, worse
from kgen.evaluator.timing.measure import (
    FINAL_BURSTS, SCREEN_BURSTS, Habits, Runner, believe, doubts, finals, least_ms, screen, sleep_ns,
)
from kgen.hardware import Hardware
from kgen.problem import Problem

_ORACLE_SECONDS = 300.0
_READY_SECONDS = 60.0
_JOIN_SECONDS = 5.0
_CPU_COMPILE_SECONDS = 60.0
_LOG_BYTES = 1 << 20
_PROFILE_SECONDS, _PROFILE_KEYS = 10.0, 32
#: Candidates that a GPU judges at once where each gets memory for that many times its tensors: while one is timed, the
#: others wait; but they start, are validated and are ended side by side.
_AT_ONCE, _WORKING_SETS = 6, 4
#: Candidates that start or end at once, on all GPUs together. The driver does both under one lock of the machine, for some five
#: to ten in a second: of more at once, each takes longer, and its GPU waits for it.
_STARTS = threading.BoundedSemaphore(_AT_ONCE)
#: How a candidate may be held, the best way first: whether behind walls, whether as a user of its own, in words.
_HOLDS = ((True, True, "as another user"), (True, False, "behind walls"), (False, False, "at all"))
_NO_LIMIT = 1 << 62
#: The driver makes a process's queues one by one, under a lock of the whole machine: with one instead of eight, contexts begin
#: and end in half the time. What kgen renders needs one, as it has one stream; files from outside may have several.
_ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
_COMPILER = "torch._dynamo"  #: takes a second to load: baselines and files from outside may use it, kgen's files do not
#: The steps of preparing the baselines that take long.
_PREPARING = {"compile": "compiling the torch.compile baseline",
              "compile-max-autotune": "compiling the max-autotune baseline"}
LeftOut = Callable[[str, Failure], None]  #: told the id of a finalist that failed, and why
_PRINTED_WALLS: set[str] = set()


def _worker_environment(scratch: Path, extensions: Path) -> dict[str, str]:
    """Everything that torch and its compilers write goes below the worker's own scratch folder."""
    folders = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "TMPDIR", "HOME")
    return {name: str(scratch) for name in folders} | {
        "TORCH_EXTENSIONS_DIR": str(extensions),
        "USER": "kgen",  # the user that a worker runs as has no name
    }


class Evaluator:
    """Judges candidates of ``problem`` on ``device`` (``cpu``, ``cuda`` or ``cuda:N``) in one class of accuracy.

    A context manager: entering starts the server and the oracle, leaving ends every process. Everything is written
    below ``home``. ``notice`` is called with one line for people, and ``step`` with the phase that begins, from any
    thread. After entering, ``problem`` has its
    mode settled, ``environment`` says where candidates are judged, ``hardware`` what the device can hold, and
    ``at_once`` how many threads may call :meth:`evaluate`; :meth:`finals` is for one thread.

    Entering raises :class:`ProblemError` where the problem itself is wrong, :class:`DeviceError` where the device is
    not there, and :class:`EvaluatorError` where the evaluator's processes fail.
    """

    def __init__(
        self, problem: Problem, *, device: str, accuracy: Accuracy, home: Path, limits: Limits = Limits(),
        baselines: Sequence[str] = BASELINES, notice: Callable[[str], None] | None = None, cache: str = "cold",
        step: Callable[[str], None] | None = None,
    ) -> None:
        if accuracy is Accuracy.TF32 and device == "cpu":
            raise DeviceError("the class tf32 is for CUDA devices: the CPU has no TF32")
        self.problem = problem
        self.device = "cuda:0" if device == "cuda" else device
        self.accuracy = Accuracy(accuracy)
        self.home = Path(home).resolve()
        self.limits = limits
        self.environment: Environment
        self.hardware: Hardware
        self.at_once = 1
        self._baseline_names = tuple(baselines)
        self._notice = notice or (lambda text: None)
        self._step = step or (lambda text: None)
        self._cuda = device != "cpu"
        self._shared = self._cuda  # whether tensors cross processes in device memory
        self._cold = cache == "cold"
        self._threads = len(os.sched_getaffinity(0))
        self._secret = secrets.randbits(40)
        self._construction = secrets.randbits(31)
        self._random = random.Random(secrets.randbits(64))
        self._server = Server(self.home, {
            "TORCHINDUCTOR_CACHE_DIR": str(self.home / "cache" / "inductor"),
            "TRITON_CACHE_DIR": str(self.home / "cache" / "triton"),
            "TORCH_NO_COMPILER_WRAPPER": "1",
            # torch otherwise asks CUDA itself whether it is there, and cannot be forked afterwards.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # OpenBLAS, NumPy's, otherwise has its threads spin for 0.1 s once they have nothing to do, which looks as
            # though a candidate went on with its work. Theirs is 2^20 ticks. (It is read when NumPy is imported.)
            "OPENBLAS_THREAD_TIMEOUT": "20",
        }, [] if set(baselines) <= {"eager"} else [_COMPILER])
        self._oracle: OracleClient | None = None
        self._cases: Cases | None = None
        self._about: dict[str, Any] = {}  # what the oracle told of the device, and of the problem
        self._opened: dict[str, Any] = {}
        self._fds: list[int] = []
        self._pool_fd = -1
        self._closing = threading.Event()
        self._lifecycle = threading.RLock()
        self._own_numbers: dict[str, bool] = {}  # whether a candidate's random numbers are its own
        self._life = 0  # how often the processes have ended
        self._lock = DeviceLock("cpu", self._notice, stop=self._closing)
        self._alone: dict[str, str] = {}  # the environment in which a process sees this device and no other
        self._runners: dict[str, Runner] = {}
        self._preparing: threading.Thread | None = None
        self._starting: Child | None = None  # the baseline that is being prepared
        self._baseline_timings: tuple[Timing, ...] = ()
        self._timing_baselines = threading.Lock()
        self._eager: Habits | None = None  # what PyTorch's own calls take
        self._health: Health | None = None
        self._held = 0  # how candidates are held: an index of _HOLDS
        self._holds = False  # a worker has started so

    # ---- life ----------------------------------------------------------------------------------------------

    def __enter__(self) -> "Evaluator":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and the oracle; what entering does."""
        try:
            self._server.start()
            self._alive()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process that the evaluator started; whoever waits for one gets :class:`EvaluatorError`."""
        self._closing.set()
        self._server.close()
        with self._lifecycle:
            self._stop()

    def builder(self) -> Builder:
        """A builder for this evaluator's device; on the CPU it does not build during a timing."""
        device_type = "cuda" if self._cuda else "cpu"
        lock = None if self._cuda else DeviceLock(self._lock.key, stop=self._closing)
        return Builder(self.home, device_type, self.environment.arch, self._server, limits=self.limits, lock=lock,
                       stop=self._closing)

    def _alive(self) -> int:
        """Start the processes where they do not run; how often they have ended before."""
        with self._lifecycle:
            if self._oracle is None:
                self._start()
            return self._life

    def _end(self, life: int) -> None:
        """End the processes, unless they have ended since that many ends."""
        with self._lifecycle:
            if life == self._life:
                self._stop()

    def _start(self) -> None:
        """Start the oracle, and prepare the baselines beside whatever comes next."""
        child = self._server.spawn("oracle", self._options() | {
            "problem": self._problem_fields(), "secret": self._secret, "construction": self._construction,
        }, self.home / "logs" / "oracle.log")
        self._oracle = OracleClient(child, _ORACLE_SECONDS)
        named, _ = self._oracle.ask("key")
        self._lock = DeviceLock(named["key"], self._notice, stop=self._closing)
        self._alone = named["alone"]
        with self._lock.working():
            self._about, _ = self._oracle.ask("about")
            limits = self._about["hardware"]
            self.hardware = Hardware(**limits | {"vector_bits": tuple(limits["vector_bits"])})
            self.environment = self._environment(self._about)
            self._cases = Cases(self._oracle)
            self._opened, self._fds = self._oracle.ask("open")
            self._opened["pool"], fds = self._oracle.ask("pool")
        self._pool_fd = fds[0]
        self.problem = replace(self.problem, mode=self._opened["mode"])
        self.at_once = self._fit() if self._cuda else 1
        self._preparing = threading.Thread(target=self._prepare_baselines, name="kgen-baselines", daemon=True)
        self._preparing.start()

    def _fit(self) -> int:
        """How many candidates find enough memory on the device side by side."""
        tensors = self._opened["state_bytes"] + self._opened["pool"]["pool_bytes"] + 2 * self._opened["output_bytes"]
        shared = self.limits.device_share * self.hardware.global_bytes
        return max(1, min(_AT_ONCE, int(shared / (_WORKING_SETS * tensors))))

    def _stop(self) -> None:
        self._life += 1
        runners, self._runners = self._runners, {}
        oracle, self._oracle = self._oracle, None
        if self._preparing is not None:
            deadline = time.monotonic() + _JOIN_SECONDS
            while self._preparing.is_alive() and time.monotonic() < deadline:
                if self._starting is not None:
                    self._starting.terminate()
                self._preparing.join(0.05)
            self._preparing = None
        for runner in (*runners.values(), *self._runners.values()):
            runner.worker.close()
        self._runners = {}
        if oracle is not None:
            oracle.close()
        if self._cases is not None:
            self._cases.close()
            self._cases = None
        for fd in [*self._fds, self._pool_fd]:
            if fd >= 0:
                os.close(fd)
        self._fds, self._pool_fd = [], -1

    def _problem_fields(self) -> dict[str, Any]:
        p = self.problem
        return {"name": p.name, "path": p.path, "source": p.source, "mode": p.mode,
                "asked_mode": p.asked_mode or p.mode}

    def _options(self) -> dict[str, Any]:
        return {"device": self.device, "accuracy": str(self.accuracy), "threads": self._threads, "walled": False,
                "shared": self._shared}

    def _worker_options(self) -> dict[str, Any]:
        """What candidates and baselines are told: to them, their device is the first."""
        return self._options() | ({"device": "cuda:0"} if self._alone else {})

    def _environment(self, found: dict[str, Any]) -> Environment:
        return Environment(
            self.hardware.device_type, self.hardware.name, self.hardware.arch, _driver() if self._cuda else "",
            compiler_version("nvcc") if self._cuda else "", compiler_version(os.environ.get("CXX", "g++")),
            found["torch"], found["python"], self._threads, found["host"])

    # ---- judging -------------------------------------------------------------------------------------------

    def evaluate(self, candidate: Candidate, build: BuildReport, *, depth: Depth = Depth.SCREEN) -> Evaluation:
        """Validate ``candidate`` under every regime, then time it.

        Never raises for the candidate's fault. When the evaluator's own processes fail they are started again, and
        the candidate is tried once more before its status is ``infra_error``.
        """
        if not build.ok:
            status = Status.BUILD_TIMEOUT if build.timed_out else Status.BUILD_ERROR
            return Evaluation(candidate.id, status, build.reason, self.accuracy, Phase.BUILD, build=build,
                              seconds=((Phase.BUILD, build.seconds),), log=build.log)
        for attempt in range(2):
            life = self._life
            try:
                life = self._alive()
                evaluation = _Judgement(self, candidate, build, depth).run()
                if life == self._life:
                    return evaluation
                reason = "its processes ended meanwhile"
            except EvaluatorError as error:
                reason = str(error)
                self._end(life)
        return Evaluation(candidate.id, Status.INFRA_ERROR, reason, self.accuracy, build=build)

    def health(self) -> Health:
        """Whether the problem's gate can tell right from wrong."""
        if self._health is None:
            try:
                self._health = self._found_health()
            except EvaluatorError:  # another thread may have ended the oracle, because of its candidate
                self._health = self._found_health()
        return self._health

    def _found_health(self) -> Health:
        oracle = self._asked()
        with self._lock.working():
            reply, _ = oracle.ask("health")
        return Health(tuple(reply["passed"]))

    def _asked(self) -> OracleClient:
        self._alive()
        return self._running()[0]

    def _running(self) -> tuple[OracleClient, Cases]:
        """The oracle and its cases. Raises :class:`EvaluatorError` where another thread has just ended them."""
        oracle, cases = self._oracle, self._cases
        if oracle is None or cases is None:
            raise EvaluatorError("the evaluator's processes ended")
        return oracle, cases

    # ---- timing --------------------------------------------------------------------------------------------

    def baselines(self) -> tuple[Timing, ...]:
        """Each baseline timed alone and briefly; measured once."""
        with self._timing_baselines:
            if not self._baseline_timings:
                self._baseline_timings = self._time_baselines()
            return self._baseline_timings

    def _time_baselines(self) -> tuple[Timing, ...]:
        session = uuid.uuid4().hex
        timings = []
        prepared = self._prepared()
        self._step("timing the baselines")
        for runner in prepared:
            with self._lock.timing():
                runner.worker.enter(Phase.TIME, self.limits.time_seconds)
                before = self._conditions()
                try:
                    screen(runner, self._random)
                except Failure as failure:
                    self._lose_baseline(runner, failure)
                    continue
                under = worse(before, self._conditions())
            timings.append(runner.timing(Depth.SCREEN, session, under))
            if runner.name == "eager":
                self._eager = runner.habits()
        return tuple(timings)

    def finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float,
        failed: LeftOut | None = None,
    ) -> tuple[Timing, ...]:
        """Time ``candidates`` and all baselines in turns: at least 20 bursts each, for about ``seconds``.

        A candidate that fails on the way is left out; ``failed`` is told its id and why, or a notice says so.
        """
        left_out = failed or (lambda name, failure: self._notice(
            f"finalist {name[:SHORT]} is left out: {failure.reason}"))
        baselines = self._prepared()
        judgements: list[_Judgement] = []
        try:
            finalists = []
            for candidate, build in candidates:
                judgement = _Judgement(self, candidate, build, Depth.FINAL)
                judgements.append(judgement)
                try:
                    finalists.append(judgement.runner())
                except Failure as failure:
                    left_out(candidate.id, failure)
            for runner in (*finalists, *baselines):
                runner.worker.enter(Phase.TIME, self.limits.time_seconds + 4 * seconds)
            with self._lock.timing():
                before = self._conditions()
                lost = partial(self._failed_in_finals, left_out)
                kept = finals([*finalists, *baselines], seconds, self._random, lost, self._doubted)
                under = worse(before, self._conditions())
            session = uuid.uuid4().hex
            return tuple(runner.timing(Depth.FINAL, session, under) for runner in self._believed(kept, left_out))
        finally:
            for judgement in judgements:
                judgement.close()

    def _doubted(self, runners: Sequence[Runner]) -> bool:
        """Whether samples of one of the candidates cannot be believed."""
        eager, floor_ms = _eager_habits(runners), self._floor_ms()
        candidates = (runner for runner in runners if runner.name not in self._runners)
        reason = next(filter(None, (doubts(runner, eager=eager, floor_ms=floor_ms) for runner in candidates)), "")
        if reason:
            self._notice(f"finals are timed once more: of a candidate, {reason}")
        return bool(reason)

    def _believed(self, runners: Sequence[Runner], left_out: LeftOut) -> list[Runner]:
        """The baselines, and those candidates that can be believed: their samples, and that they kept to themselves."""
        eager = _eager_habits(runners)
        kept = []
        for runner in runners:
            try:
                if runner.name not in self._runners:
                    believe(runner, eager=eager, floor_ms=self._floor_ms())
            except Failure as failure:
                left_out(runner.name, failure)
            else:
                kept.append(runner)
        return kept

    def _conditions(self) -> Conditions:
        return conditions(self._lock.key, self._cold)

    def _failed_in_finals(self, left_out: LeftOut, runner: Runner, failure: Failure) -> None:
        if runner.name in self._runners:
            self._lose_baseline(runner, failure)
        else:
            left_out(runner.name, failure)

    def _lose_baseline(self, runner: Runner, failure: Failure) -> None:
        self._notice(f"baseline {runner.name} is left out: {failure.reason}")
        self._let_go(runner.worker)
        del self._runners[runner.name]

    def _prepared(self) -> list[Runner]:
        """The baselines that could be prepared, in the order asked for."""
        self._asked()
        preparing = self._preparing
        while preparing is not None and preparing.is_alive():
            preparing.join(0.2)  # in slices, so that an interrupt gets through
        return [self._runners[name] for name in self._baseline_names if name in self._runners]

    def _prepare_baselines(self) -> None:
        for name in self._baseline_names:
            try:
                with self._lock.working():
                    if self._oracle is None:
                        return
                    self._step(_PREPARING.get(name, f"preparing the {name} baseline"))
                    runner = self._prepare_baseline(name)
                    self._runners[name] = runner
            except (Failure, EvaluatorError) as error:
                if self._oracle is not None and not self._closing.is_set():
                    self._notice(f"baseline {name} is left out: {getattr(error, 'reason', error)}")

    def _prepare_baseline(self, name: str) -> Runner:
        folder = self.home / "scratch" / "baselines"
        folder.mkdir(parents=True, exist_ok=True)
        child = self._server.spawn("baseline", self._worker_options() | {"scratch": str(folder)},
                                   self.home / "logs" / f"baseline-{name}.log", self._alone)
        worker = WorkerClient(child, uuid.uuid4().hex)
        self._starting = child
        try:
            _await_ready(child, self.home / "logs" / f"baseline-{name}.log")
            child.watch(_NO_LIMIT)  # for what it does while nothing is asked of it
            worker.enter(Phase.LOAD, self._compile_seconds(name))
            self._load(worker, {"baseline": name, "problem": self._problem_fields()})
            return self._ready(name, worker)
        except BaseException:
            self._starting = None
            self._let_go(worker)
            raise
        finally:
            self._starting = None

    def _compile_seconds(self, name: str) -> float:
        """How long a baseline may take to get ready. Raises :class:`Failure` where no time is left to compile it."""
        seconds = self.limits.compile_seconds
        if not self._cuda:
            seconds = min(seconds, _CPU_COMPILE_SECONDS)
        if name == "eager":  # is not compiled, and always compared with
            return seconds
        left = self.limits.compile_until - time.monotonic()
        if left <= 0:
            raise Failure(Status.TIMEOUT, "the time for compiling baselines is over", Phase.LOAD)
        return min(seconds, left)

    def _start_worker(self, options: dict[str, Any], log: Path, environment: dict[str, str]) -> WorkerClient:
        """A worker behind its walls, ready for a candidate. Where no process starts behind them (a GPU's driver may
        refuse), candidates run with fewer, and that is said once."""
        limits = self.limits
        while True:
            walled, own_user, words = _HOLDS[self._held]
            child = self._server.spawn("candidate", self._worker_options() | options | {
                "walled": walled, "own_user": own_user, "watched": True, "host_bytes": limits.host_bytes,
                "scratch_bytes": limits.scratch_bytes, "device_share": limits.device_share / self.at_once,
                "processes": limits.processes + 4 * self._threads}, log, environment | self._alone)
            try:
                self._warn_of_walls(_await_ready(child, log))
            except EvaluatorError as error:
                child.kill()
                if self._holds or self._held + 1 == len(_HOLDS):
                    raise
                self._held += 1
                self._notice(f"no process starts {words} here, so candidates run without: {error}")
                continue
            self._holds = True
            child.watch(limits.host_bytes)
            return WorkerClient(child, uuid.uuid4().hex)

    def _load(self, worker: WorkerClient, what: dict[str, Any]) -> dict[str, Any]:
        """Have a worker construct its module. Raises :class:`Failure`."""
        oracle, _ = self._running()
        memory, fds = oracle.ask("output", subject=worker.subject)
        try:
            reply = worker.ask("load", [*self._fds, *fds], state=self._opened["state"],
                               state_bytes=self._opened["state_bytes"], init=self._opened["init"],
                               output_bytes=memory["bytes"], modes=self.problem.modes,
                               construction=self._construction, views=self._opened["views"],
                               counters=self._opened["counters"], ties=self._opened["ties"],
                               flush_bytes=self._about["flush_bytes"] if self._cold else 0, **what)
        finally:
            for fd in fds:
                os.close(fd)
        if reply.get("unshared") is True and self._shared:
            self._shared = False
            self._notice("this system does not share device memory between processes: tensors go through host memory")
            raise EvaluatorError(str(reply["error"]))
        raise_if_failed(reply, worker.phase)
        return reply

    def _ready(self, name: str, worker: WorkerClient) -> Runner:
        """Have a worker get ready to be timed. Raises :class:`Failure`."""
        reply = worker.ask("prepare", [self._pool_fd], pool=self._opened["pool"]["pool"],
                           pool_bytes=self._opened["pool"]["pool_bytes"])
        raise_if_failed(reply, worker.phase)
        try:
            first, steady, launch = (int(reply[name]) for name in ("first_ns", "steady_ns", "launch_ns"))
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(Status.SUSPICIOUS, "what it answers makes no sense", worker.phase) from error
        return Runner(name, worker, self._cuda, self.problem.modes, first / 1e6, steady / 1e6,
                      sleep_ns=sleep_ns(launch) if self._cuda else 0, cold=self._cold)

    def _let_go(self, worker: WorkerClient) -> None:
        """End a worker, and free what the oracle keeps for it."""
        with _STARTS:
            worker.close()
        if self._oracle is not None:
            try:
                self._oracle.ask("forget", subject=worker.subject)
            except EvaluatorError as error:
                self._notice(f"the oracle failed: {error}")

    def _other_values(self, matched: bool) -> list[str]:
        """The values, beside the problem's own, of which it is known what every mode makes of them in full. With other
        random numbers, what is not finite comes to other places: nothing is known of that."""
        _, cases = self._running()

        def is_known(values: str, regime: str) -> bool:
            modes = [mode for name, mode in self._opened["regimes"] if name == regime]
            known = [cases.get(regime, mode, "drawn" if matched else "constructed") for mode in modes]
            return bool(known) and not any(case.note or case.random and values != SCALED for case in known)

        return [values for values, regime in OTHER_VALUES.items() if is_known(values, regime)]

    def _floor_ms(self) -> float:
        moved = self._opened["pool"]["bytes"] + self._opened["output_bytes"]
        return least_ms(moved, self._about["copy_rate"], self.hardware.device_type)

    def _warn_of_walls(self, missing: Any) -> None:
        for wall in missing if isinstance(missing, list) else []:
            if wall not in _PRINTED_WALLS:
                _PRINTED_WALLS.add(wall)
                self._notice(f"this system does not allow {wall}: candidates run without")


def _eager_habits(runners: Sequence[Runner]) -> Habits | None:
    """What PyTorch's own calls took in this session, where it was timed."""
    return next((runner.habits() for runner in runners if runner.name == "eager"), None)


class _Judgement:
    """One candidate on its way through the phases, with the process that holds it."""

    def __init__(self, evaluator: Evaluator, candidate: Candidate, build: BuildReport, depth: Depth) -> None:
        self._evaluator = evaluator
        self._candidate = candidate
        self._build = build
        self._depth = depth
        self._worker: WorkerClient | None = None
        self._matched = True
        self._errors: list[RegimeErrors] = []
        self._labels: list[str] = []
        self._seconds: list[tuple[str, float]] = [(Phase.BUILD, build.seconds)] if build.seconds else []
        self._timing: Timing | None = None
        name = uuid.uuid4().hex
        self._scratch = evaluator.home / "scratch" / name
        self._log = evaluator.home / "logs" / "candidates" / f"{candidate.id[:16]}-{name[:8]}.log"

    def run(self) -> Evaluation:
        """All phases. Raises :class:`EvaluatorError` when the evaluator itself fails."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")
        evaluator = self._evaluator
        try:
            with evaluator._lock.working():  # for both: a timing that waits has to wait for who is on the way to one
                self._phase(Phase.LOAD, self._load)
                self._phase(Phase.VALIDATE, self._validate)
            evaluator.baselines()
            with evaluator._lock.timing():
                self._phase(Phase.TIME, self._time)
            result = self._evaluation(Status.OK, "", None)
        except Failure as failure:
            result = self._evaluation(failure.status, failure.reason, failure.phase)
        except BaseException:
            self.close()
            raise
        with evaluator._lock.working():  # a context that ends is felt on its device
            self.close()
        self._finish_log(result)
        return result

    def _phase(self, phase: Phase, step: Callable[[], None]) -> None:
        started = time.monotonic()
        try:
            step()
        finally:
            self._seconds.append((phase, time.monotonic() - started))

    def _evaluation(self, status: Status, reason: str, phase: Phase | None) -> Evaluation:
        timing = self._timing if status in (Status.OK, Status.SUSPICIOUS) else None
        labels = [*self._labels, *static_labels(
            self._candidate.source, accuracy=self._evaluator.accuracy, plan=self._candidate.plan)]
        return Evaluation(self._candidate.id, status, reason, self._evaluator.accuracy, phase, tuple(self._errors),
                          self._build, timing, tuple(labels), tuple(self._seconds), str(self._log))

    def close(self) -> None:
        if self._worker is not None:
            self._evaluator._let_go(self._worker)
            self._worker = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _load(self) -> None:
        """Start the worker and have it construct ``ModelNew``."""
        evaluator = self._evaluator
        self._scratch.mkdir(parents=True)
        path = self._scratch / "model_new.py"
        path.write_text(self._candidate.source, encoding="utf-8")
        extension = read_extension(self._candidate.source)
        built = extension is not None and self._build.binary is not None
        extensions = Path(self._build.directory) if built else self._scratch / "extensions"
        writable = [self._scratch, *([extensions / extension.name] if extension is not None and built else [])]
        # It replaces functions of torch when it is loaded, so it must be there before anybody watches.
        rendered = self._candidate.origin == "sweep"
        modules = [] if rendered else [_COMPILER]
        options = {"scratch": str(self._scratch), "writable": [str(folder) for folder in writable], "modules": modules}
        environment = _worker_environment(self._scratch, extensions) | (_ONE_QUEUE if rendered else {})
        with _STARTS:
            self._worker = evaluator._start_worker(options, self._log, environment)
        limits = evaluator.limits
        self._worker.enter(Phase.LOAD, limits.load_seconds if built else limits.load_seconds + limits.build_seconds)
        reply = evaluator._load(self._worker, {"path": str(path)})
        self._worker.look_around()
        self._matched = reply.get("matched") is True
        if not self._matched:
            self._labels.append("kernelbench protocol")

    def _validate(self) -> None:
        evaluator, worker = self._evaluator, self._worker
        assert worker is not None
        worker.enter(Phase.VALIDATE, evaluator.limits.validate_seconds)
        regimes = [tuple(pair) for pair in evaluator._opened["regimes"]]
        # On a CPU, the oracle and the worker would take each other's cores.
        room = evaluator._opened["output_bytes"] if evaluator._cuda else 0
        validate(worker, *evaluator._running(), regimes, self._matched, self._errors, self._labels, room)

    def runner(self) -> Runner:
        """The candidate, loaded again and ready to be timed, for a session of finals. Raises :class:`Failure`."""
        with self._evaluator._lock.working():  # another evaluator may be timing
            self._load()
            return self._runner()

    def _runner(self) -> Runner:
        evaluator, worker = self._evaluator, self._worker
        assert worker is not None
        worker.enter(Phase.TIME, evaluator.limits.time_seconds)
        runner = evaluator._ready(self._candidate.id, worker)
        runner.check = self._check_output
        runner.values = evaluator._other_values(self._matched)
        return runner

    def _time(self) -> None:
        """Screen the candidate, and doubt what it says."""
        evaluator = self._evaluator
        runner, before = self._runner(), evaluator._conditions()
        try:
            screen(runner, evaluator._random, SCREEN_BURSTS if self._depth is Depth.SCREEN else FINAL_BURSTS)
            believe(runner, eager=evaluator._eager, floor_ms=evaluator._floor_ms(),
                    beside=evaluator._runners.get("eager"), generator=evaluator._random)
        finally:
            under = worse(before, evaluator._conditions())
            self._timing = runner.timing(self._depth, uuid.uuid4().hex, under) if runner.bursts else None
        if reason := self._binary_changed():
            raise Failure(Status.SUSPICIOUS, reason, Phase.TIME)
        if self._candidate.origin != "sweep":
            self._profile()

    def _profile(self) -> None:
        """Label what a right candidate's time and memory go into. That this fails is no fault of the candidate's."""
        worker = self._worker
        assert worker is not None
        worker.enter(Phase.TIME, _PROFILE_SECONDS)
        try:
            found = worker.ask("profile", keys=[secrets.randbits(48) for _ in range(_PROFILE_KEYS)])
            raise_if_failed(found, Phase.TIME)
        except Failure as failure:
            self._labels.append(f"not profiled: {failure.reason}")
            return
        native = has_native_code(self._candidate.source)
        prepare_ms = self._timing.prepare_ms if self._timing is not None else None
        self._labels += measured_labels(found, native=native, prepare_ms=prepare_ms, cuda=self._evaluator._cuda)

    def _binary_changed(self) -> str:
        """Whether the library that was built is still the one that lies there."""
        extension = read_extension(self._candidate.source)
        if extension is None or self._build.binary is None:
            return ""
        library = Path(self._build.directory) / extension.name / f"{extension.name}.so"
        try:
            same = binary_hash(library) == self._build.binary
        except (OSError, ValueError):
            same = False
        return "" if same else "its library changed while it ran"

    def _check_output(self, reply: Mapping[str, Any], mode: str, key: int, values: str, lines: bool) -> None:
        """Judge what a timed call returned, with ``lines`` its columns too. Raises :class:`Failure`."""
        evaluator, worker = self._evaluator, self._worker
        assert worker is not None
        oracle, cases = evaluator._running()
        weights = "drawn" if self._matched else "constructed"
        regime = OTHER_VALUES.get(values, evaluator._opened["regimes"][0][0])
        expected = cases.get(regime, mode, weights).outputs
        check_structure(expected, reply.get("output"), "in a timed call", self._matched, Phase.TIME)
        if self._errors:
            evaluator._own_numbers[self._candidate.id] = any(label.startswith(OWN_NUMBERS) for label in self._labels)
        # In finals of a sweep that goes on, nothing is known of how it was validated.
        own_numbers = evaluator._own_numbers.get(self._candidate.id, True)
        rows, _ = oracle.ask("judge", subject=worker.subject, key=key, regime=regime, mode=mode, weights=weights,
                                        outputs=expected if self._matched else expected["items"][0], shift=0,
                                        own_numbers=own_numbers, lines=lines)
        for row in rows["rows"]:
            if not row["ok"]:
                found = RegimeErrors(regime="timed call", **row)
                status = Status.WRONG_STATE if found.output.startswith("state ") else Status.SUSPICIOUS
                raise Failure(status, f"{found.output} is wrong in a timed call: {explain(found)}", Phase.TIME)

    def _finish_log(self, result: Evaluation) -> None:
        """Cut the candidate's own output to size, and write below it what became of the candidate."""
        with open(self._log, "r+b") as log:
            size = log.seek(0, os.SEEK_END)
            if size > _LOG_BYTES:
                log.truncate(_LOG_BYTES)
                log.seek(0, os.SEEK_END)
                log.write(f"\n[cut off: the output had {size} bytes]\n".encode())
            lines = [f"[{e.regime}] {e.output}: {'ok' if e.ok else 'WRONG'} {explain(e)}" for e in result.errors]
            lines.append(f"[{result.status}] {result.reason}")
            log.write(("\n" + "\n".join(lines) + "\n").encode())


def _await_ready(child: Child, log: Path) -> Any:
    """Wait until a worker has its walls and its device; the walls that it could not put up.

    Nothing of a candidate has run until then. Raises :class:`EvaluatorError`.
    """
    try:
        return child.ask({"do": "ready"}, deadline=time.monotonic() + _READY_SECONDS)[0]["missing_walls"]
    except (ChildDied, ChannelTimeout, KeyError) as error:
        raise EvaluatorError(f"a worker did not get ready ({error}); see {log}") from error


def _driver() -> str:
    """The version of the NVIDIA driver that is loaded."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    return found.group(1) if found else ""
