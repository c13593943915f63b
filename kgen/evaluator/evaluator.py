"""The evaluator: judges candidates of one problem on one device. This is the parent; it never initialises CUDA.

    with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=Path("runs"), trust=Trust.OWN) as evaluator:
        builder = evaluator.builder()
        evaluation = evaluator.evaluate(candidate, builder.build(candidate.source))
"""

import os
import random
import secrets
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, Mapping, Sequence, TypeVar

from kgen.candidate import GRAPH, LAUNCHING, SHORT, Candidate, Trust
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import HOST, KINDS, kind_of
from kgen.devices.machine import cxx
from kgen.devices.runtime import runtime
from kgen.errors import DeviceError, DiskError, EvaluatorError, ProblemError
from kgen.evaluator.candidates.build import Builder, compiler_version, copy_library, read_extension
from kgen.evaluator.candidates.checks import Checks
from kgen.evaluator.correctness.validate import (OWN_NUMBERS, Failure, OracleClient, OracleFailed, Validation, WorkerClient,
                                                 audit, check_structure, decide, explain, raise_if_failed)
from kgen.evaluator.pool import TimeIsUp
from kgen.evaluator.runtime.locks import DeviceLock, MemoryShare
from kgen.evaluator.runtime.process import Server
from kgen.evaluator.strict.strict import Strict
from kgen.evaluator.strict.timing_anomalies import least_ms
from kgen.evaluator.timing.conditions import Conditions, conditions, worse
from kgen.evaluator.timing.measure import Runner, sleep_ns
from kgen.problems.problem import Problem
from kgen.protocol import (BASELINES, COMPILER, GRAPH_BASELINE, TRIES, Accuracy, BuildReport, CaseErrors, Depth, Environment, Evaluation,
                           Health, LibraryProduct, Limits, Phase, Status, Timing, Weights, read_product)

_ORACLE_SECONDS = 300.0
_JOIN_SECONDS = 5.0
_ATTEMPTS = 4  #: to judge a candidate, or to prepare a baseline, when processes fail
_OWN_ENDS = 2  #: of the oracle, before the problem is at fault
_FEWER_ROWS = 4096  #: rows; the bound for test cases is half of it after memory ran out once
_CPU_COMPILE_SECONDS = 60.0
_LOG_BYTES = 1 << 20
_LARGE_BYTES = 1 << 30  #: of inputs and outputs; above it, memory is freed between calls
_NO_LIMIT = 1 << 62
#: The steps of preparing the baselines that take long.
_PREPARING = {"compile": "compiling the torch.compile baseline",
              "compile-max-autotune": "compiling the max-autotune baseline",
              GRAPH_BASELINE: "compiling the reduce-overhead baseline"}
_FAILED_FIRST = 3  #: candidates; after so many failures, baselines are compiled without waiting for a right one
_AT_ONCE = 6  #: candidates that a GPU judges at once; timings take turns, everything else goes on side by side
#: Device memory that a candidate may have: times PyTorch's own peak, and bytes more for workspaces.
_TIMES_PEAK, _SPARE_BYTES = 2, 2 << 30
#: Workers that start or end at once on all GPUs. The driver does both under one lock of the machine, 5 to 10 a second.
_STARTS = threading.BoundedSemaphore(_AT_ONCE)
_CANDIDATE_FILE = "model_new.py"  #: in a worker's scratch folder
_STATE_APART = "state of its own: judged by outputs"  #: label: it lacks what forward writes in no state dict
_FRONT_END = "torch._dynamo"  #: of torch's compiler; takes a second to load
#: Variables that say where torch and its compilers write: below a worker's scratch folder.
_FOLDERS = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "TMPDIR", "HOME")
Result = TypeVar("Result")
LeftOut = Callable[[str, Failure], None]  #: called with a finalist's id and its failure


class Evaluator:
    """Judges candidates of ``problem`` on ``device`` (``cpu``, ``cuda`` or ``cuda:N``) in one class of accuracy.
    ``trust`` says how strictly: an evaluator for own candidates refuses foreign ones. A context manager: entering starts
    the server and the oracle, leaving ends every process. Everything is written below ``home``. ``notice`` is called
    with one line for people, and ``step`` with the phase that begins, from any thread. ``profile`` measures the share of
    own kernels. With ``foreign_problem``, the processes that run the problem's code are in the sandbox, too. No process of
    foreign code sees the folders ``hidden``, beside its own in there. On the CPU, ``compiles_later`` compiles baselines
    after the first right candidate: compiling takes the cores from its build and its test cases. Without ``times``,
    candidates are validated only, and idle threads of OpenMP sleep: a timed call needs them awake. Its processes are so
    much ``nice`` to others.

    After entering, ``problem`` has its mode settled. ``environment`` says where candidates are judged,
    ``hardware`` describes the device, ``products`` how cuDNN multiplies. ``server`` forks its processes. ``at_once`` threads may call :meth:`evaluate`. Of threads that call :meth:`finals`, each waits for the others.

    Entering raises :class:`ProblemError` when the problem is wrong, :class:`DeviceError` when the device is missing, and
    :class:`EvaluatorError` when the evaluator's processes fail."""

    def __init__(
        self, problem: Problem, *, device: str, accuracy: Accuracy, home: Path, limits: Limits = Limits(),
        baselines: Sequence[str] = BASELINES, notice: Callable[[str], None] | None = None, cache: str = "cold",
        step: Callable[[str], None] | None = None, trust: Trust = Trust.FOREIGN, profile: bool = False,
        compiles_later: bool = False, times: bool = True, foreign_problem: bool = False, hidden: Sequence[Path] = (), nice: int = 0,
    ) -> None:
        self.kind = kind_of(device)
        if accuracy is Accuracy.TF32 and not self.kind.accelerator:
            raise DeviceError("the class tf32 is for CUDA devices: the CPU has no TF32")
        self.problem = problem
        self.device = KINDS[device].first if device in KINDS else device
        self.accuracy = Accuracy(accuracy)
        self.home = Path(home).resolve()
        self.limits = limits
        self.trust = trust
        self.environment: Environment
        self.hardware: Hardware
        self.products: tuple[LibraryProduct, ...] = ()
        self.at_once = 1
        self._checks: Checks = Checks() if trust is Trust.OWN else Strict(profile)
        self._baseline_names = tuple(baselines)
        self._listener = notice or (lambda text: None)
        self._step = step or (lambda text: None)
        self._foreign_problem = foreign_problem
        self._hidden = [str(folder.resolve()) for folder in hidden]
        self._compiles_later = compiles_later and not self.kind.accelerator
        self._may_compile = threading.Event()
        if not self._compiles_later:
            self._may_compile.set()
        self._failed = 0  # candidates
        self._in_finals = False
        self._one_final = threading.Lock()
        self._shared = self.kind.accelerator  # whether tensors cross processes in device memory
        self._cold = cache == "cold"
        self._threads = len(os.sched_getaffinity(0))
        self._secret = secrets.randbits(40)
        self._construction = secrets.randbits(31)
        self._random = random.Random(secrets.randbits(64))
        environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.home / "cache" / "inductor"),
            "TRITON_CACHE_DIR": str(self.home / "cache" / "triton"),
            "TORCH_NO_COMPILER_WRAPPER": "1",
            # Otherwise torch initialises CUDA to see whether it is there, and cannot be forked afterwards.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # OpenBLAS's idle threads otherwise spin for 0.1 s, which looks like work after a call. The unit is 2^20
            # ticks; NumPy reads it when it is imported.
            "OPENBLAS_THREAD_TIMEOUT": "20",
        }
        if not times:  # idle threads of OpenMP otherwise spin, half of all processor time where two processes compute
            environment["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
        modules, compiles = self._checks.modules, not set(baselines) <= {"eager"}
        later, idle = ([_FRONT_END], [COMPILER]) if compiles and not self.kind.accelerator else ([], [])
        self.server = self._compilers = Server(self.home, environment, later=[*modules, *later], idle=idle, nice=nice)
        if compiles and self.kind.accelerator:  # loading it takes longest, and a core is free where a GPU works
            self._compilers = Server(self.home, environment, first=[COMPILER], nice=nice)
        self._oracle: OracleClient | None = None
        self.layouts: Mapping[str, Sequence[tuple[Sequence[int], Sequence[int]]]] = {}  # by mode, of PyTorch's output tensors
        self._opened: dict[str, Any] = {}  # the oracle's description of the device and the problem
        self._large = False  # whether workers free the memory of timed calls while others run
        self._fds: list[int] = []  # of the weights, the constructor's inputs, and the inputs of timed calls
        self._resources = ExitStack()  # of the processes that run now
        self._closing = threading.Event()
        self._lifecycle = threading.RLock()
        self._failures: Counter[str] = Counter()  # of the oracle, by test case
        self._left_out: list[str] = []  # test cases
        self._rows = _NO_LIMIT  # of all test cases but the problem's own
        self._life = 0  # how often the processes have ended
        self._first_ends = 0  # how often the oracle ended while it first ran the problem
        self._found_right = False  # a candidate with a kernel of its own
        self._lock = DeviceLock(HOST.name, self._notice, stop=self._closing)
        self._alone: dict[str, str] = {}  # the environment in which a process sees this device alone
        self._runners: dict[str, Runner] = {}
        self._preparing: threading.Thread | None = None
        self._making: threading.Thread | None = None  # makes test cases
        self._begun = threading.Event()  # once the baselines are prepared that need no compiler
        self._workers: dict[str, WorkerClient] = {}  # the latest process of each baseline
        self._baseline_timings: dict[str, Timing] = {}
        self._timing_baselines = threading.Lock()
        self._health: Health | None = None
        self._level = 0  # the index of how workers are confined, in the checks' levels
        self._confined = False  # whether a worker has started so
        self._missing: set[str] = set()  # the parts of the sandbox that people know to be missing
        self._spare: _SpareWorker | None = None
        self._ends = ThreadPoolExecutor(2, thread_name_prefix="kgen-end")
        self._slots = threading.BoundedSemaphore()  # workers that hold a candidate, those that end included

    def __enter__(self) -> "Evaluator":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and the oracle, as entering does."""
        try:
            for server in {self.server, self._compilers}:
                server.start()
            self._retried(lambda: None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process that the evaluator started. Threads that wait for one get :class:`EvaluatorError`."""
        self._closing.set()
        for server in {self.server, self._compilers}:
            server.close()
        with self._lifecycle:
            self._stop()
        self._ends.shutdown()

    def _notice(self, text: str) -> None:
        """Tell people. The failures of processes that close are no news."""
        if not self._closing.is_set():
            self._listener(text)

    def builder(self) -> Builder:
        """A builder for this evaluator's device; on the CPU it never builds during a timing."""
        lock = None if self.kind.accelerator else DeviceLock(self._lock.key, stop=self._closing)
        return Builder(self.home, self.kind.name, self.environment.arch, self.server, limits=self.limits, lock=lock,
                       stop=self._closing, hidden=self._hidden)

    def _alive(self) -> int:
        """Start the processes unless they run. Returns how often they have ended before."""
        with self._lifecycle:
            if self._oracle is None:
                self._start()
            return self._life

    def _start(self) -> None:
        """Start the oracle, and prepare the baselines in a thread."""
        release = self._resources.callback
        child = self.server.spawn("oracle", self._options(worker=False) | {
            "problem": self._problem_fields(), "secret": self._secret, "construction": self._construction,
            "rows": self._rows, "without": self._left_out, "seconds": self.limits.reference_seconds,
        } | self._problem_confinement(), self.home / "logs" / "oracle.log")
        release(child.kill)
        self._oracle = oracle = OracleClient(child, _ORACLE_SECONDS)
        release(oracle.close)
        named, _ = oracle.ask("key")
        self._lock = DeviceLock(named["key"], self._notice, stop=self._closing)
        self._alone = named["alone"]
        with self._lock.working():
            about, _ = oracle.ask("about")
            limits = about["hardware"]
            self.hardware = Hardware(**limits | {"vector_bits": tuple(limits["vector_bits"])})
            self.environment = Environment(
                self.hardware.device_type, self.hardware.name, self.hardware.arch, runtime(self.device).driver(),
                "".join(map(compiler_version, self.kind.compilers)), compiler_version(cxx()),
                about["torch"], about["python"], self._threads, about["host"])
        if self.kind.accelerator:  # others may hold the device's memory; they may be timing, so nothing else is held meanwhile
            memory = MemoryShare(self._lock.key, self.hardware.global_bytes, self._closing, self._notice)
            release(memory.close)
            memory.ask(_all_bytes(max(about["least_bytes"], self._opened.get("peak_bytes", 0))))
        with self._lock.working():
            opened, self._fds = self._first_run(oracle)
        for fd in self._fds:
            release(os.close, fd)
        self._opened = about | opened
        self._large = opened["bytes"] > _LARGE_BYTES
        if self.kind.accelerator and not memory.grows(_all_bytes(opened["peak_bytes"])):
            raise EvaluatorError("others hold the memory that it needs")  # it starts again, and waits for all of it first
        self.problem = replace(self.problem, mode=self._opened["mode"])
        if self.accuracy is Accuracy.TF32 and opened["accuracy"] == Accuracy.FP32:
            self._notice("no operator of this problem can use TF32: it is measured in the class fp32")
        self.accuracy = Accuracy(self._opened["accuracy"])
        self.products = tuple(read_product(one) for one in opened["products"])
        self.layouts = self._opened["layouts"]
        if self.accuracy is Accuracy.PYTORCH and not self.kind.accelerator and not self._opened["half"]:
            self.accuracy = Accuracy.FP32  # PyTorch's flags change nothing there
        self.at_once = self._fit() if self.kind.accelerator else 1
        self._slots = threading.BoundedSemaphore(self.at_once + self._checks.ahead)
        self._runners = {}
        if self._checks.ahead:
            self._spare = _SpareWorker(self._start_worker, self._lock)
            release(self._spare.close)
        self._begun.clear()
        self._preparing = threading.Thread(target=self._prepare_baselines, name="kgen-baselines", daemon=True)
        self._preparing.start()
        if not self._large:
            self._making = threading.Thread(target=self._make_cases, args=(oracle,), name="kgen-cases", daemon=True)
            self._making.start()

    def _make_cases(self, oracle: OracleClient) -> None:
        """Have the oracle make the test cases while no candidate is there yet. A case that fails raises again where it is asked for."""
        with suppress(EvaluatorError, ProblemError, DeviceError):
            for name, mode in self._opened["cases"]:
                with self._lock.working():
                    if self._oracle is not oracle or self._closing.is_set():
                        return
                    oracle.case(name, mode, Weights.DRAWN)

    def _first_run(self, oracle: OracleClient) -> tuple[dict[str, Any], list[int]]:
        """Have the oracle run the problem. Raises :class:`ProblemError` where that takes too long, or often ends its process."""
        if time.monotonic() >= self.limits.first_until:
            raise ProblemError(f"{self.problem.path}: the time was up before its own code ran: give it more time")
        try:
            return oracle.ask("open", until=self.limits.first_until)
        except OracleFailed as error:
            if error.late:
                raise ProblemError(f"{self.problem.path}: its own code did not end: {error.text}") from error
            self._first_ends += error.died
            if self._first_ends == (_OWN_ENDS if error.by_itself and not error.memory else _ATTEMPTS):
                raise ProblemError(f"{self.problem.path}: its own code ended the process that ran it: {error.text}") from error
            raise

    def _candidate_bytes(self) -> int:
        """Bytes of device memory that a candidate may have, by PyTorch's allocator. They are a multiple of the peak of
        PyTorch's own forward, and the harness's tensors in the same process."""
        opened = self._opened
        harness = 2 * opened["load"]["state_bytes"] + 2 * opened["bytes"] + opened["output_bytes"] + opened["flush_bytes"]
        return _TIMES_PEAK * opened["peak_bytes"] + harness + _SPARE_BYTES

    def _fit(self) -> int:
        """How many candidates are judged side by side. All fit into their share of the device's memory. Those beside the
        first have the spare bytes together if each needs as much as PyTorch."""
        if self._large:
            return 1
        fitting = self.limits.device_share * self.hardware.global_bytes / self._candidate_bytes()
        return max(1, min(_AT_ONCE, int(fitting), int(1 + _SPARE_BYTES / (self._opened["peak_bytes"] + 1))))

    def _stop(self) -> None:
        """End the processes, first those for whose answers a thread of this evaluator may wait."""
        self._life += 1
        oracle, self._oracle = self._oracle, None
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in (self._making, self._preparing):
            while thread is not None and thread.is_alive() and time.monotonic() < deadline:
                if oracle is not None:
                    oracle.child.terminate()
                for worker in [*self._workers.values()]:
                    worker.child.terminate()
                thread.join(0.05)
        while self._workers:
            self._workers.popitem()[1].close()
        self._resources.close()

    def _problem_fields(self) -> dict[str, Any]:
        """The problem for other processes. Overrides are in its source."""
        return asdict(replace(self.problem, overrides=(), asked_mode=self.problem.asked_mode or self.problem.mode))

    def _problem_confinement(self, *writable: Path) -> dict[str, Any]:
        """Options of processes that run the problem's code: none, unless that is foreign."""
        if not self._foreign_problem:
            return {}
        folders = [str(folder) for folder in writable]
        return {"sandboxed": True, "own_user": True, "writable": folders, "scratch_bytes": self.limits.scratch_bytes,
                "processes": self.limits.processes + 4 * self._threads, "hidden": self._hidden, "shown": folders}

    def _options(self, *, worker: bool) -> dict[str, Any]:
        """Options of all processes. A ``worker``, of a candidate or a baseline, sees its device as the first."""
        return {"device": self.kind.first if worker and self._alone else self.device, "accuracy": str(self.accuracy),
                "threads": self._threads, "shared": self._shared, "strict": self._checks.strict,
                "subject": self._checks.subject, "flags": self._opened.get("flags", ())}

    def evaluate(self, candidate: Candidate, build: BuildReport, *, timed: bool = True) -> Evaluation:
        """Validate ``candidate`` on every input distribution, then time it if ``timed``. Never raises for the candidate's
        fault. When the evaluator's own processes fail they are started again, with less memory where that was the
        reason. A test case that fails three times is left out. Other failures give the status ``infra_error`` in the
        end. Raises :class:`TimeIsUp` where the limits cut it, and ``ValueError`` for a foreign candidate where the evaluator
        is for own ones."""
        if candidate.origin is not Trust.OWN and self.trust is Trust.OWN:
            raise ValueError("a foreign candidate needs an evaluator for foreign candidates")
        if not build.ok:
            status = Status.INFRA_ERROR if build.from_outside else (
                Status.BUILD_TIMEOUT if build.timed_out else Status.BUILD_ERROR)
            return Evaluation(candidate.id, status, build.reason, self.accuracy, Phase.BUILD, build=build,
                              seconds=((Phase.BUILD, build.seconds),), log=build.log)
        until = self.limits.judge_until if self._found_right else self.limits.first_until
        try:
            evaluation = self._evaluated(candidate, build, until, timed=timed)
            self._found_right |= evaluation.status is Status.OK and not candidate.control
            self._failed += evaluation.status is not Status.OK
            if self._found_right or self._failed >= _FAILED_FIRST:
                self._may_compile.set()
            return evaluation
        except EvaluatorError as error:
            return Evaluation(candidate.id, Status.INFRA_ERROR, str(error), self.accuracy, build=build)

    def _evaluated(self, candidate: Candidate, build: BuildReport, until: float, *, timed: bool) -> Evaluation:
        """The candidate's evaluation, made again where a signal from outside ended its process. A candidate may send it to
        itself, so that the last try counts."""
        for number in range(1, TRIES + 1):
            evaluation, from_outside = self._retried(lambda: _Evaluating(self, candidate, build, until).run(timed=timed))
            if not from_outside or number == TRIES or self._closing.is_set():
                break
            self._notice(f"{candidate.id[:SHORT]}: {evaluation.reason}; it is tried again")
        return evaluation

    def _retried(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which needs the processes: when they fail, they are started again, a few times."""
        for _ in range(_ATTEMPTS):
            life = self._life
            try:
                life = self._alive()
                result = work()
                if life == self._life:
                    return result
                error = EvaluatorError("its processes ended meanwhile")
            except EvaluatorError as failure:
                error = failure
                self._recover(error, life)
        raise error

    def _recover(self, error: EvaluatorError, life: int) -> None:
        """End the processes, which start again when they are needed. Where the oracle ran out of memory, test cases
        have fewer rows then. A test case that failed three times is left out."""
        with self._lifecycle:
            if life != self._life or self._closing.is_set():
                return  # another thread has done so
            self._stop()
            if not isinstance(error, OracleFailed):
                return
            self._notice(f"{error}; it is started again")
            self._failures[error.case] += 1
            if error.memory:
                self._rows = max(1, min(self._rows, self._opened.get("rows", _FEWER_ROWS), _FEWER_ROWS) // 2)
            if error.case and self._failures[error.case] == _ATTEMPTS - 1:
                self._left_out.append(error.case)
                self._notice(f"the test case {error.case!r} is left out: it failed {_ATTEMPTS - 1} times")

    def health(self) -> Health:
        """Whether the problem's tolerance can tell right from wrong."""
        def find() -> Health:
            with self._lock.working():
                return Health(tuple(self._running().ask("health")[0]["passed"]))

        self._health = self._health or self._retried(find)
        return self._health

    def _running(self) -> OracleClient:
        """The oracle. Raises :class:`EvaluatorError` when another thread has just ended it."""
        if (oracle := self._oracle) is None:
            raise EvaluatorError("the evaluator's processes ended")
        return oracle

    def baselines(self) -> tuple[Timing, ...]:
        """The baselines that are prepared, each timed alone and briefly; measured once."""
        with self._timing_baselines:
            session, new = uuid.uuid4().hex, [x for x in self._prepared() if x.name not in self._baseline_timings]
            if new:
                self._step("timing the baselines")
            for runner in new:
                with self._timing() as conditions_now:
                    runner.worker.enter(Phase.TIME, self.limits.time_seconds)
                    try:
                        runner.screen(self._random)
                    except Failure as failure:
                        self._lose_baseline(runner, failure)
                        continue
                    self._baseline_timings[runner.name] = runner.timing(Depth.SCREEN, session, conditions_now())
                self._checks.baseline_screened(runner)
            return tuple(self._baseline_timings[name] for name in self._baseline_names if name in self._baseline_timings)

    def finals(self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float, most: float = inf,
               failed: LeftOut | None = None) -> tuple[Timing, ...]:
        """Time ``candidates`` and all baselines in turns: 20 blocks each, or fewer where they take longer than about
        ``seconds``, or are known narrowly before. After ``most`` seconds with the loads, a few blocks are enough, and of
        candidates that are not loaded yet, the first one. A candidate that fails is left out; ``failed`` is called with its
        id and failure, or a notice says so."""
        until = time.monotonic() + most
        left_out = failed or (lambda name, why: self._notice(f"finalist {name[:SHORT]} is left out: {why.reason}"))
        with self._one_final:
            return self._finals(candidates, seconds, until, left_out)

    def _finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], seconds: float, until: float, left_out: LeftOut
    ) -> tuple[Timing, ...]:
        self._in_finals = True
        self._may_compile.set()
        baselines = self._prepared(every=True)
        if any(candidate.params.get(LAUNCHING) == GRAPH for candidate, _ in candidates):
            baselines = self._with_graph_baseline()

        def lost(runner: Runner, failure: Failure) -> None:
            if runner in baselines:
                self._lose_baseline(runner, failure)
            else:
                left_out(runner.name, failure)

        with ExitStack() as loaded:
            finalists = []
            for candidate, build in candidates:
                if finalists and time.monotonic() >= until - seconds / 2:
                    break  # the time is for those that are loaded
                evaluating = _Evaluating(self, candidate, build)
                loaded.callback(evaluating.close)
                try:
                    finalists.append(evaluating.runner())
                except Failure as failure:
                    left_out(candidate.id, failure)
            for runner in (*finalists, *baselines):
                runner.worker.enter(Phase.TIME, self.limits.time_seconds + 4 * seconds)
            with self._timing() as conditions_now:
                kept = self._checks.finals(finalists, baselines, seconds, self._random, lost, self._notice, until)
                session, under = uuid.uuid4().hex, conditions_now()
            return tuple(runner.timing(Depth.FINAL, session, under) for runner in kept)

    @contextmanager
    def _timing(self) -> Iterator[Callable[[], Conditions]]:
        """Hold the device alone. Yields a function that gives the worse of the conditions at the start and now."""
        with self._lock.timing():
            before = conditions(self.device, self._lock.key, self._cold)
            yield lambda: worse(before, conditions(self.device, self._lock.key, self._cold))

    def _lose_baseline(self, runner: Runner, failure: Failure) -> None:
        self._notice(f"baseline {runner.name} is left out: {failure.reason}")
        self._let_go(runner.worker)
        self._runners.pop(runner.name, None)

    def _prepared(self, *, every: bool = False) -> list[Runner]:
        """The baselines that could be prepared, in the order asked for: those that are ready, or ``every`` one."""
        self._alive()
        preparing = self._preparing
        later = self._compiles_later and not every
        while preparing is not None and preparing.is_alive() and not (later and self._begun.is_set()):
            preparing.join(0.02 if later else 0.2)  # in slices, so that an interrupt gets through
        return [self._runners[name] for name in self._baseline_names if name in self._runners]

    def _prepare_baselines(self) -> None:
        """Prepare the baselines, first eager, then those that are compiled."""
        for name in sorted(self._baseline_names, key=lambda name: name != "eager"):
            if name != "eager":
                self._begun.set()
                while not self._may_compile.wait(0.2):
                    if self._is_over():
                        return
            if not self._prepare(name):
                return
        if self._compiles_later and not self._in_finals:
            self._step("trying candidates")

    def _with_graph_baseline(self) -> list[Runner]:
        """The baselines with that of PyTorch's own graphs, where any is compiled."""
        if set(self._baseline_names) - {"eager", GRAPH_BASELINE} and GRAPH_BASELINE not in self._baseline_names:
            self._baseline_names += (GRAPH_BASELINE,)
            self._preparing = threading.Thread(target=self._prepare, args=[GRAPH_BASELINE], name="kgen-baselines", daemon=True)
            self._preparing.start()
        return self._prepared(every=True)

    def _is_over(self) -> bool:
        """Whether the processes have ended for which this thread prepares baselines."""
        return self._oracle is None or self._closing.is_set() or self._preparing is not threading.current_thread()

    def _prepare(self, name: str) -> bool:
        """Prepare a baseline, or leave it out with a notice. Returns whether to go on with others."""
        server = self.server if name == "eager" else self._compilers
        for attempt in range(_ATTEMPTS):
            try:
                server.wait()  # others may time meanwhile
                with self._lock.working():
                    if self._is_over():
                        return False
                    self._compile_seconds(name)  # before a process starts in vain
                    self._step(_PREPARING.get(name, f"preparing the {name} baseline"))
                    self._runners[name] = self._prepare_baseline(name, server)
                break
            except (Failure, EvaluatorError) as error:
                if self._is_over():
                    return False
                died = getattr(error, "status", Status.CRASHED) in (Status.CRASHED, Status.OUT_OF_MEMORY)
                if not died or attempt + 1 == _ATTEMPTS:
                    self._notice(f"baseline {name} is left out: {getattr(error, 'reason', error)}")
                    break
        return True

    def _prepare_baseline(self, name: str, server: Server) -> Runner:
        folder = self.home / "scratch" / (f"problem-{uuid.uuid4().hex}" if self._foreign_problem else "baselines")
        folder.mkdir(parents=True, exist_ok=True)
        options = self._options(worker=True) | {"scratch": str(folder), "compiles": name != "eager"}
        log = self.home / "logs" / f"baseline-{name}.log"
        variables = dict(self._alone)
        if self._foreign_problem:  # its caches serve no other problem
            options |= self._problem_confinement(folder)
            variables |= dict.fromkeys(_FOLDERS, str(folder))
        worker = self._workers[name] = WorkerClient(server.spawn("baseline", options, log, variables))
        try:
            worker.ready()
            worker.child.limit(_NO_LIMIT, _NO_LIMIT)  # to observe its threads
            worker.enter(Phase.LOAD, self._compile_seconds(name))
            self._load(worker, {"baseline": name, "problem": self._problem_fields()})
            return self._ready(name, worker)
        except BaseException:
            self._let_go(worker)
            raise

    def _compile_seconds(self, name: str) -> float:
        """How long a baseline may take to get ready. Raises :class:`Failure` where no time is left to compile it."""
        seconds = min(self.limits.compile_seconds, inf if self.kind.accelerator else _CPU_COMPILE_SECONDS)
        if name == "eager":  # is not compiled, and always compared with
            return seconds
        left = self.limits.compile_until - time.monotonic()
        if left <= 0:
            raise Failure(Status.TIMEOUT, "the time for compiling baselines is over", Phase.LOAD)
        return min(seconds, left)

    def bench(self, subject: str) -> WorkerClient:
        """A worker whose subject is of that class, ``module:name``, for work beside candidates. The caller closes it, and
        holds :meth:`alone` while it times. Raises :class:`EvaluatorError` where none starts."""
        with self._lock.working():
            return self._start_worker(subject=subject)

    def alone(self) -> ContextManager[None]:
        """Hold the device alone, for a timing."""
        return self._lock.timing()

    @property
    def flush_bytes(self) -> int:
        """Bytes whose writing empties the device's cache."""
        return self._opened["flush_bytes"]

    def _start_worker(self, place: Callable[[Path], None] = lambda scratch: None, subject: str = "") -> WorkerClient:
        """Start a worker; ``place`` puts the candidate's files into its scratch folder if it is known already. ``subject``
        names another class than that of candidates. Where none starts in the sandbox (a GPU's driver may refuse), workers
        run with less of it, and one notice says so."""
        name = uuid.uuid4().hex
        scratch = self.home / "scratch" / name
        scratch.mkdir(parents=True)
        place(scratch)
        log = self.home / "logs" / "candidates" / f"worker-{name}.log"
        limits, levels = self.limits, self._checks.levels
        processes = limits.processes + 4 * self._threads
        share = min(1.0, self._candidate_bytes() / self.hardware.global_bytes) if self.kind.accelerator else 1.0
        options = self._options(worker=True) | self._checks.options(scratch) | {
            "scratch": str(scratch), "host_bytes": limits.host_bytes, "scratch_bytes": limits.scratch_bytes,
            "device_share": share, "processes": processes, "hidden": self._hidden, "shown": [str(scratch)]}
        options |= {"subject": subject} if subject else {}
        variables = dict.fromkeys(_FOLDERS, str(scratch)) | {
            "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
            "USER": "kgen",  # a worker's user may have no name
        } | dict(self._checks.variables) | self._alone
        while True:
            level = levels[self._level]
            with _STARTS:
                child = self.server.spawn("candidate", options | dict(level.options), log, variables)
                worker = WorkerClient(child, scratch)
                try:
                    missing = [part for part in worker.ready() if part not in self._missing]
                except EvaluatorError as error:
                    child.kill()
                    if self._confined or self._level + 1 == len(levels):
                        raise
                    self._level += 1
                    self._notice(f"no process starts {level.missing} here, so candidates run without: {error}")
                    continue
            for part in missing:
                self._notice(f"this system does not allow {part}: candidates run without")
            self._missing.update(missing)
            self._confined = True
            child.limit(limits.host_bytes, processes)
            return worker

    def _load(self, worker: WorkerClient, what: dict[str, Any]) -> dict[str, Any]:
        """Have a worker construct its module. Raises :class:`Failure`."""
        oracle = self._running()
        judged = "baseline" not in what or self._checks.strict  # a baseline's calls cost as much as a candidate's there
        output = self._opened["output_bytes"] if judged else 0
        size = output if output > _LARGE_BYTES else 2 * output  # the second run takes the place of the first, or its own
        memory, fds = oracle.ask("output", subject=worker.subject, bytes=size)
        worker.output_bytes = memory["bytes"]
        try:
            reply = worker.ask("load", [*self._fds[:2], *fds], **self._opened["load"], output_bytes=memory["bytes"],
                               modes=self.problem.modes, dtype=self.problem.dtype, construction=self._construction,
                               flush_bytes=self._opened["flush_bytes"] if self._cold else 0, **what)
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
        """Prepare a worker for timing. Raises :class:`Failure`."""
        reply = worker.ask("prepare", self._fds[2:], **self._opened["prepare"], frees=self._large)
        raise_if_failed(reply, worker.phase)
        try:
            first, steady, launch, allocated = (int(reply[name]) for name in ("first_ns", "steady_ns", "launch_ns", "call_bytes"))
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(Status.SUSPICIOUS, "what it answers makes no sense", worker.phase) from error
        runner = self._checks.make_runner(
            name, worker, self.kind, self.problem.modes, max(0, first - steady) / 1e6, steady / 1e6,
            sleep_ns=sleep_ns(launch) if self.kind.accelerator else 0, cold=self._cold, frees=self._large,
            floor_ms=least_ms(self._opened["bytes"], self._opened["copy_rate"], self.hardware.device_type),
            launch_ms=launch / 1e6 if self.kind.accelerator else 0.0, call_mb=allocated / 1e6)
        runner.rest()
        return runner

    def _let_go(self, worker: WorkerClient) -> None:
        """End a worker, and free the oracle's memory for it."""
        with _STARTS:
            worker.close()
        if self._oracle is not None:
            try:
                self._oracle.ask("forget", subject=worker.subject)
            except EvaluatorError as error:
                self._notice(f"the oracle failed: {error}")


class _SpareWorker:
    """Keeps one worker ready before its candidate is known: a CUDA context takes some tenths of a second. Thread-safe.
    ``start`` starts one, with ``lock`` held, since it disturbs timings."""

    def __init__(self, start: Callable[[], WorkerClient], lock: DeviceLock) -> None:
        self._start = start
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kgen-spare")
        self._ready: Future[WorkerClient] | None = None
        self._guard = threading.Lock()

    def take(self) -> WorkerClient:
        """The spare worker, or a new one if there is none; another spare starts meanwhile. It never waits for a spare:
        that may wait for the device, which the caller may hold. Raises :class:`EvaluatorError` when no worker starts."""
        worker = None
        with self._guard:
            if self._ready is None or self._ready.done():
                worker, self._ready = _result(self._ready), None
                with suppress(RuntimeError):  # it closes
                    self._ready = self._thread.submit(self._lock.working()(self._start))
        if worker is not None and worker.child.has_ended():
            worker.close()
            worker = None
        return worker or self._start()  # which says why, if none starts

    def close(self) -> None:
        """End the spare worker."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._guard:
            worker, self._ready = _result(self._ready), None
        if worker is not None:
            worker.close()


def _result(ended: Future[WorkerClient] | None) -> WorkerClient | None:
    """The worker that has started, if one has."""
    failed = ended is None or ended.cancelled() or ended.exception() is not None
    return None if failed else ended.result()


class _Evaluating:
    """One candidate on its way through the phases, with the process that holds it; ``until`` then, on the monotonic clock."""

    def __init__(self, evaluator: Evaluator, candidate: Candidate, build: BuildReport, until: float = inf) -> None:
        self._until = until
        self._evaluator = evaluator
        self._checks = evaluator._checks
        self._candidate = candidate
        self._build = build
        self._worker: WorkerClient  # from loading on
        self._weights = Weights.DRAWN  # of its test cases
        self._libraries: dict[str, str] = {}  # the paths of libraries that are built, by what they are made of
        self._errors: list[CaseErrors] = []
        self._labels: list[str] = []
        self._seconds: list[tuple[str, float]] = [(Phase.BUILD, build.seconds)] if build.seconds else []
        self._timing: Timing | None = None
        self._own_share: float | None = None
        self._log = evaluator.home / "logs" / "candidates" / f"{candidate.id[:16]}-{uuid.uuid4().hex[:8]}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")

    def run(self, *, timed: bool = True) -> tuple[Evaluation, bool]:
        """All phases, or those before timing, and whether a signal from outside ended them. Raises
        :class:`EvaluatorError` when the evaluator itself fails, and :class:`TimeIsUp` when the limits cut them."""
        evaluator, from_outside, is_cut = self._evaluator, False, False
        slots = evaluator._slots
        slots.acquire()
        try:
            if evaluator._large:
                evaluator._prepared()  # the baselines have freed their memory then
            with evaluator._lock.working():  # for both: a waiting timing waits for candidates on the way to one
                with self._phase(Phase.LOAD):
                    self._load()
                with self._phase(Phase.VALIDATE):
                    self._validate()
            if timed:
                evaluator.baselines()
                with evaluator._timing() as conditions_now:
                    with self._phase(Phase.PREPARE):
                        runner = self._runner()
                    with self._phase(Phase.TIME):
                        self._time(runner, conditions_now)
            result = self._evaluation(Status.OK, "", None)
        except Failure as failure:
            result = self._evaluation(failure.status, failure.reason, failure.phase)
            from_outside = failure.from_outside
            is_cut = failure.status is Status.TIMEOUT and time.monotonic() >= self._until
        except BaseException:
            self.close()
            slots.release()
            raise
        if self._checks.ahead and not evaluator._large:  # memory of a large problem is free before the next begins
            evaluator._ends.submit(self._end, slots)
        else:
            self._end(slots)
        if is_cut:
            raise TimeIsUp(self._candidate.id)
        self._finish_log(result)
        return result, from_outside

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds.append((phase, time.monotonic() - started))

    def _enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase of the worker. Raises :class:`TimeIsUp` where no time is left for it."""
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeIsUp(self._candidate.id)
        self._worker.enter(phase, min(seconds, left))

    def _evaluation(self, status: Status, reason: str, phase: Phase | None) -> Evaluation:
        timing = self._timing if status in (Status.OK, Status.SUSPICIOUS) else None
        labels = [*self._labels, *self._checks.labels(self._candidate)]
        return Evaluation(self._candidate.id, status, reason, self._evaluator.accuracy, phase, tuple(self._errors),
                          self._build, timing, tuple(dict.fromkeys(labels)), tuple(self._seconds), str(self._log),
                          own_share=self._own_share)

    def _end(self, slots: threading.BoundedSemaphore) -> None:
        try:
            with self._evaluator._lock.working():  # a CUDA context that ends disturbs timings
                self.close()
        except EvaluatorError:  # the evaluator closes
            self.close()
        finally:
            slots.release()

    def close(self) -> None:
        if hasattr(self, "_worker"):
            self._evaluator._let_go(self._worker)

    def _load(self) -> None:
        """Start a worker, or take the spare one, and have it construct ``ModelNew``."""
        evaluator = self._evaluator
        if evaluator._spare is not None:
            self._worker = evaluator._spare.take()
            self._place(self._worker.scratch)
        else:
            self._worker = evaluator._start_worker(self._place)
        self._worker.child.log.replace(self._log)
        path = self._worker.scratch / _CANDIDATE_FILE
        limits = evaluator.limits
        self._enter(Phase.LOAD, limits.load_seconds + (0.0 if self._libraries else limits.build_seconds))
        reply = evaluator._load(self._worker, {"path": str(path), "libraries": self._libraries})
        self._checks.settled(self._worker)
        if reply.get("matched") is not True:
            self._weights = Weights.CONSTRUCTED
            self._labels.append("kernelbench protocol")
        elif reply.get("complete") is not True:
            self._weights = Weights.SAVED
            self._labels.append(_STATE_APART)

    def _place(self, scratch: Path) -> None:
        """Put the candidate's file and its library into ``scratch``. Raises :class:`DiskError`."""
        try:
            (scratch / _CANDIDATE_FILE).write_text(self._candidate.source, encoding="utf-8")
            self._libraries = copy_library(read_extension(self._candidate.source), self._build, scratch)
        except OSError as error:
            raise DiskError(f"{scratch}: a candidate's files cannot be put there: {error}") from error

    def _validate(self) -> None:
        evaluator = self._evaluator
        self._enter(Phase.VALIDATE, evaluator.limits.validate_seconds)
        names = [tuple(pair) for pair in evaluator._opened["cases"]]
        # On a CPU, the oracle and the worker would compete for the cores.
        room = self._worker.output_bytes // 2 if evaluator.kind.accelerator else 0
        holds_strides = self._checks.holds_strides
        Validation(self._worker, evaluator._running(), self._weights, self._errors, self._labels, room, holds_strides).run(names)
        audit(self._worker, self._checks.settled)
        if evaluator._large:
            raise_if_failed(self._worker.ask("rest"), Phase.VALIDATE)

    def runner(self) -> Runner:
        """The candidate, loaded again and ready to be timed, for a session of finals. Raises :class:`Failure`."""
        with self._evaluator._lock.working():  # another evaluator may be timing
            self._load()
            return self._runner()

    def _runner(self) -> Runner:
        evaluator = self._evaluator
        self._enter(Phase.TIME, evaluator.limits.time_seconds)
        runner = evaluator._ready(self._candidate.id, self._worker)
        runner.check = self._check_output
        return runner

    def _time(self, runner: Runner, conditions_now: Callable[[], Conditions]) -> None:
        """Screen the candidate and check its samples."""
        evaluator = self._evaluator
        try:
            runner.screen(evaluator._random)
            self._labels += self._checks.screened(runner, evaluator._runners.get("eager"), evaluator._random)
        finally:
            if runner.blocks:
                self._timing = runner.timing(Depth.SCREEN, uuid.uuid4().hex, conditions_now())
        profile = self._checks.profiled(runner, self._candidate)
        self._labels += profile.labels
        self._own_share = profile.own_share

    def _check_output(self, reply: Mapping[str, Any], mode: str, key: int) -> None:
        """Judge the output of a timed call. Raises :class:`Failure`."""
        evaluator = self._evaluator
        oracle = evaluator._running()
        case = oracle.case(evaluator._opened["cases"][0][0], mode, self._weights)
        check_structure(case.outputs, reply.get("output"), "in a timed call", Phase.TIME)
        # Finals do not know how the candidate was validated.
        own_numbers = not self._errors or any(label.startswith(OWN_NUMBERS) for label in self._labels)
        rows = oracle.judge(self._worker, case, "timed call", key=key, own_numbers=own_numbers).rows
        decide(rows, "in a timed call", Phase.TIME, self._checks.wrong_when_timed)

    def _finish_log(self, result: Evaluation) -> None:
        """Cut the candidate's output to size, and append its error figures and its status."""
        with open(self._log, "r+b") as log:
            size = log.seek(0, os.SEEK_END)
            if size > _LOG_BYTES:
                log.truncate(_LOG_BYTES)
                log.seek(0, os.SEEK_END)
                log.write(f"\n[cut off: the output had {size} bytes]\n".encode())
            lines = [f"[{e.case}] {e.output}: {'ok' if e.ok else 'WRONG'} {explain(e)}" for e in result.errors]
            lines.append(f"[{result.status}] {result.reason}")
            log.write(("\n" + "\n".join(lines) + "\n").encode())


def _all_bytes(peak: int) -> int:
    """Bytes of a device that all processes of a sweep hold at most, for eager's own peak."""
    return 4 * peak + (4 << 30)
