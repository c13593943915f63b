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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, Sequence, TypeVar

from kgen.candidate import GRAPH, LAUNCHING, SHORT, Candidate, Trust
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import HOST, KINDS, kind_of
from kgen.devices.machine import cxx
from kgen.devices.runtime import runtime
from kgen.errors import DeviceError, EvaluatorError, ProblemError
from kgen.evaluator.baselines import Baselines
from kgen.evaluator.candidates.build import Builder, compiler_version
from kgen.evaluator.candidates.checks import ONE_QUEUE, Checks
from kgen.evaluator.correctness.validate import Failure, OracleClient, OracleFailed, WorkerClient
from kgen.evaluator.judging import Beside, Judging
from kgen.evaluator.opened import Opened
from kgen.evaluator.runtime.locks import DeviceLock, MemoryShare
from kgen.evaluator.runtime.process import Server
from kgen.evaluator.spare import SpareWorker
from kgen.evaluator.strict.strict import Strict
from kgen.evaluator.timing.conditions import Conditions, conditions, worse
from kgen.evaluator.timing.measure import Runner
from kgen.evaluator.workers import LARGE_BYTES, Workers
from kgen.problems.problem import Problem
from kgen.protocol import (
    BASELINES,
    COMPILER,
    TRIES,
    Accuracy,
    BuildReport,
    Depth,
    Environment,
    Evaluation,
    Health,
    Layouts,
    LibraryProduct,
    Limits,
    Phase,
    Status,
    Timing,
    Weights,
    read_product,
)

_ORACLE_SECONDS = 300.0
_JOIN_SECONDS = 5.0
_ATTEMPTS = 4  #: to judge a candidate, when processes fail
_OWN_ENDS = 2  #: of the oracle, before the problem is at fault
_FEWER_ROWS = 4096  #: rows; the bound for test cases is half of it after memory ran out once
_NO_LIMIT = 1 << 62
_FAILED_FIRST = 3  #: candidates; after so many failures, baselines are compiled without waiting for a right one
_FRONT_END = "torch._dynamo"  #: of torch's compiler; takes a second to load
Result = TypeVar("Result")
LeftOut = Callable[[str, Failure], None]  #: called with a finalist's id and its failure


class Evaluator:
    """Judges candidates of ``problem`` on ``device`` (``cpu``, ``cuda`` or ``cuda:N``) in one class of accuracy.
    ``trust`` says how strictly: an evaluator for own candidates refuses foreign ones. A context manager: entering
    starts the server and the oracle, leaving ends every process. Everything is written below ``home``. ``notice`` is
    called with one line for people, and ``step`` with the phase that begins, from any thread. ``profile`` measures the
    share of own kernels. With ``foreign_problem``, the processes that run the problem's code are in the sandbox, too.
    No process of foreign code sees the folders ``hidden``, except its own folder in them. On the CPU,
    ``compiles_later`` compiles baselines after the first right candidate: compiling takes the cores from its build and
    its test cases. Without ``times``, candidates are validated only, and idle threads of OpenMP sleep: a timed call of
    the CPU needs them awake. Its processes are nicer than this process by ``nice``.

    After entering, ``problem`` has its mode settled. ``environment`` says where candidates are judged, ``hardware``
    describes the device, ``products`` how cuDNN multiplies. ``server`` forks its processes. ``at_once`` threads may
    call :meth:`evaluate`. Threads that call :meth:`finals` wait for each other.

    Entering raises :class:`ProblemError` when the problem is wrong, :class:`DeviceError` when the device is missing,
    and :class:`EvaluatorError` when the evaluator's processes fail."""

    def __init__(
        self,
        problem: Problem,
        *,
        device: str,
        accuracy: Accuracy,
        home: Path,
        limits: Limits = Limits(),
        baselines: Sequence[str] = BASELINES,
        notice: Callable[[str], None] | None = None,
        cache: str = "cold",
        step: Callable[[str], None] | None = None,
        trust: Trust = Trust.FOREIGN,
        profile: bool = False,
        compiles_later: bool = False,
        times: bool = True,
        foreign_problem: bool = False,
        hidden: Sequence[Path] = (),
        nice: int = 0,
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
        self.checks: Checks = Checks() if trust is Trust.OWN else Strict(profile)
        self._listener = notice or (lambda text: None)
        self.step = step or (lambda text: None)
        self.foreign_problem = foreign_problem
        self.hidden = [str(folder.resolve()) for folder in hidden]
        self.workers = Workers(self)
        self.compared = Baselines(self, tuple(baselines), compiles_later=compiles_later and not self.kind.accelerator)
        self._failed = 0  # candidates
        self._one_final = threading.Lock()
        self.shared = self.kind.accelerator  # whether tensors cross processes in device memory
        self.cold = cache == "cold"
        self.threads = len(os.sched_getaffinity(0))
        self._secret = secrets.randbits(40)
        self.construction = secrets.randbits(31)
        self.random = random.Random(secrets.randbits(64))
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
        # Idle threads of OpenMP otherwise spin, half of all processor time where two processes compute.
        if not times or self.kind.accelerator:
            environment["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
        modules, compiles = self.checks.modules, not set(baselines) <= {"eager"}
        later, idle = ([_FRONT_END], [COMPILER]) if compiles and not self.kind.accelerator else ([], [])
        self.server = self.compilers = Server(self.home, environment, later=[*modules, *later], idle=idle, nice=nice)
        if compiles and self.kind.accelerator:  # loading it takes longest, and a core is free where a GPU works
            self.compilers = Server(self.home, environment, first=[COMPILER], nice=nice)
        self.oracle: OracleClient | None = None
        self.layouts: Layouts = {}
        self.opened = Opened()
        self.large = False  # whether workers free the memory of timed calls while others run
        self.fds: list[int] = []  # of the weights, the constructor's inputs, and the inputs of timed calls
        self._resources = ExitStack()  # of the processes that run now
        self.closing = threading.Event()
        self._lifecycle = threading.RLock()
        self._failures: Counter[str] = Counter()  # of the oracle, by test case
        self._left_out: list[str] = []  # test cases
        self._rows = _NO_LIMIT  # of all test cases but the problem's own
        self._other_batches = True  # whether the oracle tries them
        self._life = 0  # how often the processes have ended
        self._first_ends = 0  # how often the oracle ended while it first ran the problem
        self._found_right = False  # a candidate with a kernel of its own
        self.lock = DeviceLock(HOST.name, self.notice, stop=self.closing)
        self.seen_alone: dict[str, str] = {}  # the environment in which a process sees this device alone
        self._making: threading.Thread | None = None  # makes test cases
        self._health: Health | None = None
        self.spare: SpareWorker | None = None
        self.ends = ThreadPoolExecutor(2, thread_name_prefix="kgen-end")
        self.slots = threading.BoundedSemaphore()  # workers that hold a candidate, those that end included

    def __enter__(self) -> "Evaluator":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and the oracle, as entering does."""
        try:
            for server in {self.server, self.compilers}:
                server.start()
            self._retried(lambda: None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process that the evaluator started. Threads that wait for one get :class:`EvaluatorError`."""
        self.closing.set()
        for server in {self.server, self.compilers}:
            server.close()
        with self._lifecycle:
            self._stop()
        self.ends.shutdown()

    def notice(self, text: str) -> None:
        """Tell people. The failures of processes that close are no news."""
        if not self.closing.is_set():
            self._listener(text)

    def builder(self) -> Builder:
        """A builder for this evaluator's device; on the CPU it never builds during a timing."""
        lock = None if self.kind.accelerator else DeviceLock(self.lock.key, stop=self.closing)
        return Builder(
            self.home,
            self.kind.name,
            self.environment.arch,
            self.server,
            limits=self.limits,
            lock=lock,
            stop=self.closing,
            hidden=self.hidden,
        )

    def alive(self) -> int:
        """Start the processes unless they run. Returns how often they have ended before."""
        with self._lifecycle:
            if self.oracle is None:
                self._start()
            return self._life

    def _start(self) -> None:
        """Start the oracle, and prepare the baselines in a thread."""
        release = self._resources.callback
        child = self.server.spawn(
            "oracle",
            self.workers.options(worker=False)
            | {
                "problem": self.workers.problem_fields(),
                "secret": self._secret,
                "construction": self.construction,
                "rows": self._rows,
                "without": self._left_out,
                "seconds": self.limits.reference_seconds,
                "other_batches": self._other_batches,
            }
            | self.workers.confinement(),
            self.home / "logs" / "oracle.log",
            ONE_QUEUE,
        )
        release(child.kill)
        self.oracle = oracle = OracleClient(child, _ORACLE_SECONDS)
        release(oracle.close)
        named, _ = oracle.ask("key")
        self.lock = DeviceLock(named["key"], self.notice, stop=self.closing)
        self.seen_alone = named["alone"]
        with self.lock.working():
            about, _ = oracle.ask("about")
            limits = about["hardware"]
            self.hardware = Hardware(**limits | {"vector_bits": tuple(limits["vector_bits"])})
            self.environment = Environment(
                self.hardware.device_type,
                self.hardware.name,
                self.hardware.arch,
                runtime(self.device).driver(),
                "".join(map(compiler_version, self.kind.compilers)),
                compiler_version(cxx()),
                about["torch"],
                about["python"],
                self.threads,
                about["host"],
            )
        if (
            self.kind.accelerator
        ):  # others may hold the device's memory; they may be timing, so nothing else is held meanwhile
            memory = MemoryShare(self.lock.key, self.hardware.global_bytes, self.closing, self.notice)
            release(memory.close)
            memory.ask(_all_bytes(max(about["least_bytes"], self.opened.peak_bytes)))
        with self.lock.working():
            first, self.fds = self._first_run(oracle)
        for fd in self.fds:
            release(os.close, fd)
        self.opened = opened = Opened(**about | first)
        self.large = opened.bytes > LARGE_BYTES
        if self.kind.accelerator and not memory.grows(_all_bytes(opened.peak_bytes)):
            raise EvaluatorError(
                "others hold the memory that it needs"
            )  # it starts again, and waits for all of it first
        self.problem = replace(self.problem, mode=self.opened.mode)
        if self.accuracy is Accuracy.TF32 and opened.accuracy == Accuracy.FP32:
            self.notice("no operator of this problem can use TF32: it is measured in the class fp32")
        self.accuracy = Accuracy(self.opened.accuracy)
        self.products = tuple(read_product(one) for one in opened.products)
        self.layouts = self.opened.layouts
        if self.accuracy is Accuracy.PYTORCH and not self.kind.accelerator and not self.opened.half:
            self.accuracy = Accuracy.FP32  # PyTorch's flags change nothing there
        self.at_once = self.workers.fit() if self.kind.accelerator else 1
        self.slots = threading.BoundedSemaphore(self.at_once + self.checks.ahead)
        if self.checks.ahead:
            self.spare = SpareWorker(self.workers.start, self.lock)
            release(self.spare.close)
        self.compared.start()
        if not self.large:
            self._making = threading.Thread(target=self._make_cases, args=(oracle,), name="kgen-cases", daemon=True)
            self._making.start()

    def _make_cases(self, oracle: OracleClient) -> None:
        """Have the oracle make the test cases while no candidate is there yet. A case that fails raises again where it
        is asked for."""
        with suppress(EvaluatorError, ProblemError, DeviceError):
            for name, mode in self.opened.cases:
                with self.lock.working():
                    if self.oracle is not oracle or self.closing.is_set():
                        return
                    oracle.case(name, mode, Weights.DRAWN)

    def _first_run(self, oracle: OracleClient) -> tuple[dict[str, Any], list[int]]:
        """Have the oracle run the problem. Raises :class:`ProblemError` where that takes too long, or often ends its
        process."""
        if time.monotonic() >= self.limits.first_until:
            raise ProblemError(f"{self.problem.path}: the time was up before its own code ran: give it more time")
        try:
            return oracle.ask("open", until=self.limits.first_until)
        except OracleFailed as error:
            if error.late:
                raise ProblemError(f"{self.problem.path}: its own code did not end: {error.text}") from error
            if error.of_batch:
                self._other_batches = False
            self._first_ends += error.died
            if self._first_ends == (_OWN_ENDS if error.by_itself and not error.memory else _ATTEMPTS):
                raise ProblemError(
                    f"{self.problem.path}: its own code ended the process that ran it: {error.text}"
                ) from error
            raise

    def _stop(self) -> None:
        """End the processes, first those for whose answers a thread of this evaluator may wait."""
        self._life += 1
        oracle, self.oracle = self.oracle, None
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in (self._making, self.compared.preparing):
            while thread is not None and thread.is_alive() and time.monotonic() < deadline:
                if oracle is not None:
                    oracle.child.terminate()
                self.compared.terminate()
                thread.join(0.05)
        self.compared.close()
        self._resources.close()

    def evaluate(
        self, candidate: Candidate, build: BuildReport, *, timed: bool = True, beside: Beside | None = None
    ) -> Evaluation:
        """Validate ``candidate`` on every input distribution, then time it if ``timed``: alone and briefly, or
        ``beside`` the baselines. Never raises for the candidate's fault. When the evaluator's own processes fail they
        are started again, with less memory where that was the reason. A test case that fails three times is left out.
        Other failures give the status ``infra_error`` in the end. Raises :class:`TimeIsUp` where the limits cut it, and
        ``ValueError`` for a foreign candidate where the evaluator is for own ones."""
        if candidate.origin is not Trust.OWN and self.trust is Trust.OWN:
            raise ValueError("a foreign candidate needs an evaluator for foreign candidates")
        if not build.ok:
            return _not_built(candidate, build, self.accuracy)
        until = self.limits.judge_until if self._found_right else self.limits.first_until
        try:
            evaluation = self._evaluated(
                candidate, lambda: Judging(self, candidate, build, until, beside).run(timed=timed)
            )
        except EvaluatorError as error:
            return Evaluation(candidate.id, Status.INFRA_ERROR, str(error), self.accuracy, build=build)
        self._found_right |= evaluation.status is Status.OK and not candidate.control
        self._failed += evaluation.status is not Status.OK
        if self._found_right or self._failed >= _FAILED_FIRST:
            self.compared.may_compile.set()
        return evaluation

    def _evaluated(self, candidate: Candidate, judge: Callable[[], tuple[Evaluation, bool]]) -> Evaluation:
        """The candidate's evaluation, made again where a signal from outside ended its process. A candidate may send
        this signal to itself, so that the last try counts."""
        for number in range(1, TRIES + 1):
            evaluation, from_outside = self._retried(judge)
            if not from_outside or number == TRIES or self.closing.is_set():
                break
            self.notice(f"{candidate.id[:SHORT]}: {evaluation.reason}; it is tried again")
        return evaluation

    def _retried(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which needs the processes: when they fail, they are started again, a few times."""
        for _ in range(_ATTEMPTS):
            life = self._life
            try:
                life = self.alive()
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
            if life != self._life or self.closing.is_set():
                return  # another thread has done so
            self._stop()
            if not isinstance(error, OracleFailed):
                return
            self.notice(f"{error}; it is started again")
            self._failures[error.case] += 1
            if error.memory:
                self._rows = max(1, min(self._rows, self.opened.rows, _FEWER_ROWS) // 2)
            if error.case and self._failures[error.case] == _ATTEMPTS - 1:
                self._left_out.append(error.case)
                self.notice(f"the test case {error.case!r} is left out: it failed {_ATTEMPTS - 1} times")

    def health(self) -> Health:
        """Whether the problem's tolerance can tell right from wrong."""

        def find() -> Health:
            with self.lock.working():
                return Health(tuple(self.running().ask("health")[0]["passed"]))

        self._health = self._health or self._retried(find)
        return self._health

    def running(self) -> OracleClient:
        """The oracle. Raises :class:`EvaluatorError` when another thread has just ended it."""
        if (oracle := self.oracle) is None:
            raise EvaluatorError("the evaluator's processes ended")
        return oracle

    def baselines(self) -> tuple[Timing, ...]:
        """The baselines that are prepared, each timed alone and briefly; measured once."""
        return self.compared.timed()

    def finals(
        self,
        candidates: Sequence[tuple[Candidate, BuildReport]],
        *,
        seconds: float,
        most: float = inf,
        failed: LeftOut | None = None,
    ) -> tuple[Timing, ...]:
        """Time ``candidates`` and all baselines in turns: 20 blocks each, or fewer where they take longer than about
        ``seconds``, or are known narrowly before. After ``most`` seconds, loads included, a few blocks are enough. Of
        candidates that are not loaded by then, the first one is enough. A candidate that fails is left out; ``failed``
        is called with its id and failure, or a notice says so."""
        until = time.monotonic() + most
        left_out = failed or (lambda name, why: self.notice(f"finalist {name[:SHORT]} is left out: {why.reason}"))
        with self._one_final:
            return self._finals(candidates, seconds, until, left_out)

    def _finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], seconds: float, until: float, left_out: LeftOut
    ) -> tuple[Timing, ...]:
        self.compared.in_finals = True
        self.compared.may_compile.set()
        baselines = self.compared.prepared(every=True)
        if any(candidate.params.get(LAUNCHING) == GRAPH for candidate, _ in candidates):
            baselines = self.compared.with_graphs()

        def lost(runner: Runner, failure: Failure) -> None:
            if runner in baselines:
                self.compared.lose(runner, failure)
            else:
                left_out(runner.name, failure)

        with ExitStack() as loaded:
            finalists = []
            for candidate, build in candidates:
                if finalists and time.monotonic() >= until - seconds / 2:
                    break  # the time is for those that are loaded
                evaluating = Judging(self, candidate, build)
                loaded.callback(evaluating.close)
                try:
                    finalists.append(evaluating.runner())
                except Failure as failure:
                    left_out(candidate.id, failure)
            for runner in (*finalists, *baselines):
                runner.worker.enter(Phase.TIME, self.limits.time_seconds + 4 * seconds)
            with self.timing() as conditions_now:
                kept = self.checks.finals(finalists, baselines, seconds, self.random, lost, self.notice, until)
                session, under = uuid.uuid4().hex, conditions_now()
            return tuple(runner.timing(Depth.FINAL, session, under) for runner in kept)

    @contextmanager
    def timing(self) -> Iterator[Callable[[], Conditions]]:
        """Hold the device alone. Yields a function that gives the worse of the conditions at the start and now."""
        with self.lock.timing():
            before = conditions(self.device, self.lock.key, self.cold)
            yield lambda: worse(before, conditions(self.device, self.lock.key, self.cold))

    def bench(self, subject: str) -> WorkerClient:
        """A worker whose subject is of that class, ``module:name``, for work beside candidates. The caller closes it,
        and holds :meth:`alone` while it times. Raises :class:`EvaluatorError` where none starts."""
        with self.lock.working():
            return self.workers.start(subject=subject)

    def alone(self) -> ContextManager[None]:
        """Hold the device alone, for a timing."""
        return self.lock.timing()

    @property
    def flush_bytes(self) -> int:
        """Bytes whose writing empties the device's cache."""
        return self.opened.flush_bytes


def _not_built(candidate: Candidate, build: BuildReport, accuracy: Accuracy) -> Evaluation:
    status = (
        Status.INFRA_ERROR if build.from_outside else (Status.BUILD_TIMEOUT if build.timed_out else Status.BUILD_ERROR)
    )
    return Evaluation(
        candidate.id,
        status,
        build.reason,
        accuracy,
        Phase.BUILD,
        build=build,
        seconds=((Phase.BUILD, build.seconds),),
        log=build.log,
    )


def _all_bytes(peak: int) -> int:
    """Bytes of a device that all processes of a sweep hold at most, for eager's own peak."""
    return 4 * peak + (4 << 30)
