"""How an evaluator treats foreign candidates: in the sandbox, under tamper detection, with anomalies of time
checked."""

import random
import re
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from kgen.candidate import Candidate
from kgen.evaluator.candidates.checks import ONE_QUEUE, Checks, Level, Operators, Profile, asked
from kgen.evaluator.correctness.validate import Failure, WorkerClient, audit
from kgen.evaluator.strict import replaced
from kgen.evaluator.strict.processes import strangers
from kgen.evaluator.strict.timing_anomalies import StrictRunner, Times, anomaly, measured_again, queue_alike
from kgen.evaluator.timing.measure import CHECK_SHARE, FINAL_BLOCKS, Runner, interleave
from kgen.protocol import Depth, Phase, Status
from kgen.protocol.statistics import ratio_interval

#: torch.compile takes a second to load, and replaces functions of torch: it is loaded before tamper detection starts.
_MODULES = ("torch._dynamo", "kgen.evaluator.strict.subject")
#: Words of files whose work may need several queues: recurrent layers of cuDNN use streams of their own.
_STREAMS = re.compile(r"stream|graph|lstm|gru|rnn|compile\(|exec\(|eval\(", re.IGNORECASE)
#: Words of files that run compilers when they are executed.
_COMPILES = re.compile(r"\b(cpp_extension|load_inline|nvcc|nvrtc|_compile_kernel)\b")
REPEATS = 2  #: of finals with an anomaly
SHORT_SECONDS, SHORT_BLOCKS = 1.0, 10  #: of a timing beside the baselines; below it, fewer rounds of finals are enough
SLOWER, SLOWER_BLOCKS = 3.0, 5  #: times slower than a baseline; rounds of finals that tell
NO_KERNEL = "no kernel of its own: calls the library only"
#: Words by which a file can run code that is neither Python nor the library's.
_NATIVE = re.compile(
    r"\b(ctypes|cffi|_cffi_backend|triton|numba|cupy|cuda-python|pybind11|cython|pycuda|jax|tvm|cutlass|tilelang|"
    r"cpp_extension|load_library|load_inline|_compile_kernel|importlib|__import__|runpy)\b|"
    r"\btorch\.(compile|jit|_inductor)\b|(?<![.\w])(exec|eval)\("
)


class Strict(Checks):
    """Foreign candidates, which may be made to cheat. ``profiles`` measures the share of own kernels."""

    strict = True
    subject = "kgen.evaluator.strict.subject:StrictSubject"
    levels = (
        Level({"sandboxed": True, "own_user": True}, "as another user"),
        Level({"sandboxed": True, "own_user": False}, "in a sandbox"),
        Level({"sandboxed": False, "own_user": False}, "at all"),
    )
    modules = _MODULES
    beside_timings = True
    ahead = False
    holds_strides = False  # KernelBench asks for values alone
    wrong_when_timed = Status.SUSPICIOUS
    make_runner = StrictRunner

    def __init__(self, profiles: bool = False) -> None:
        self.profiles = profiles
        self._eager: Times | None = None

    def variables(self, candidate: Candidate | None) -> Mapping[str, str]:
        return {} if candidate is None or _STREAMS.search(candidate.source) else ONE_QUEUE

    def options(self, scratch: Path) -> dict[str, Any]:
        return {"writable": [str(scratch)], "modules": list(_MODULES)}

    def settled(self, worker: WorkerClient) -> None:
        """Raises :class:`Failure` for findings of tamper detection and for processes that still run, too."""
        if worker.child.findings:
            raise Failure(Status.SUSPICIOUS, "; ".join(worker.child.findings), worker.phase)
        super().settled(worker)
        left = strangers(worker.child.family) if worker.child.family is not None else []
        if left:
            what = "a process" if len(left) == 1 else f"{len(left)} processes"
            names = ", ".join(sorted(set(left))[:3])
            raise Failure(Status.SUSPICIOUS, f"it left {what} running: {names}", worker.phase)

    def screened(self, runner: Runner, eager: Runner | None, generator: random.Random) -> list[str]:
        """Raises :class:`Failure` for an anomaly of time."""
        assert isinstance(runner, StrictRunner)
        reason = anomaly(runner, eager=self._eager)
        if isinstance(eager, StrictRunner):
            reason = measured_again(runner, reason, beside=eager, generator=generator)
        self._raise_if_suspicious(runner, reason)
        return super().screened(runner, eager, generator)

    def profiled(self, runner: Runner, candidate: Candidate, problem: Operators) -> Profile:
        """The share of time in own kernels, if it is asked for, and what they replace. A failure here is not the
        candidate's fault."""
        labels: list[str] = []
        share: float | None = None
        native = has_native_code(candidate.source)
        if self.profiles and not native:  # nothing to find: a profiler takes as long to start as all timed calls
            labels, share = [NO_KERNEL], 0.0
        elif self.profiles:
            try:
                found = asked(runner, "profile")
            except Failure as failure:
                return Profile([f"not profiled: {failure.reason}"])
            labels, share = profile_labels(found, accelerator=runner.kind.accelerator), own_share(found)
        try:
            calls = replaced.called(asked(runner, "operators"))
        except Failure:  # as of a file that captures its forward in the first call
            return Profile(labels, share)
        if native and share != 0.0:
            labels += replaced.labels(problem, calls)
        if self.profiles and native and share != 0.0 and runner.kind.accelerator:
            with suppress(Failure):  # a forward that cannot be captured in a graph tells nothing
                labels += replaced.unread_labels(asked(runner, "unread"))
        return Profile(labels, share, replaced.share(problem, calls))

    def _raise_if_suspicious(self, runner: Runner, reason: str) -> None:
        """Raises :class:`Failure` when the subject changed what belongs to others, or has an anomaly of time."""
        audit(runner.worker, self.settled)
        if reason:
            raise Failure(Status.SUSPICIOUS, reason, Phase.TIME)

    def baseline_screened(self, runner: Runner) -> None:
        if runner.name == "eager" and isinstance(runner, StrictRunner):
            self._eager = runner.times()

    def finals(
        self,
        finalists: Sequence[Runner],
        baselines: Sequence[Runner],
        seconds: float,
        generator: random.Random,
        failed: Callable[[Runner, Failure], None],
        notice: Callable[[str], None],
        until: float = inf,
    ) -> list[Runner]:
        """As for own candidates; ends early where finalists are slower by far. Times all again after an anomaly, at
        last for longer, and leaves out finalists that keep it."""
        least = FINAL_BLOCKS if seconds >= SHORT_SECONDS else SHORT_BLOCKS
        for runner in finalists:  # as many outputs are checked in fewer rounds
            runner.check_share = CHECK_SHARE * FINAL_BLOCKS / least
        ends = partial(_are_slower, finalists, baselines)
        runners = interleave([*finalists, *baselines], seconds, generator, failed, least, until, ends)
        found = _anomalies(runners, finalists)
        for rounds in (least, *[FINAL_BLOCKS] * (REPEATS - 1)):  # a busy machine causes some
            if not (reason := next(filter(None, found.values()), "")):
                break
            notice(f"finals are timed once more: of a candidate, {reason}")
            queue_alike(runners)
            runners = interleave(runners, seconds, generator, failed, rounds, until)
            found = _anomalies(runners, finalists)
        for runner, reason in found.items():
            try:
                self._raise_if_suspicious(runner, reason)
            except Failure as failure:
                runners.remove(runner)
                failed(runner, failure)
        return runners

    def compiles(self, candidate: Candidate) -> bool:
        return _COMPILES.search(candidate.source) is not None

    def labels(self, candidate: Candidate) -> list[str]:
        return [] if has_native_code(candidate.source) else [NO_KERNEL]


def _are_slower(finalists: Sequence[Runner], baselines: Sequence[Runner], rounds: int) -> bool:
    """Whether all finalists are slower than a baseline by far, so that fewer rounds than others' tell enough."""
    if rounds < SLOWER_BLOCKS or not baselines or not all(one.blocks for one in (*finalists, *baselines)):
        return False
    fastest = min(baselines, key=lambda one: one.median_ms).timing(Depth.FINAL, "")
    return all(ratio_interval(one.timing(Depth.FINAL, ""), fastest, resamples=200).low > SLOWER for one in finalists)


def _anomalies(runners: Sequence[StrictRunner], finalists: Sequence[Runner]) -> dict[StrictRunner, str]:
    """The anomaly of each finalist that is left, beside PyTorch's times in this session; empty without one."""
    eager = next((runner.times() for runner in runners if runner.name == "eager"), None)
    return {runner: anomaly(runner, eager=eager) for runner in runners if runner in finalists}


def has_native_code(source: str) -> bool:
    """Whether a file names a way to run native code of its own."""
    return _NATIVE.search(source) is not None


def own_share(found: Mapping[str, Any]) -> float | None:
    """The share of time in own kernels, from a worker's answer; ``None`` where it makes no sense."""
    own, total = (found.get(name) for name in ("own_ns", "all_ns"))
    if type(own) is not int or type(total) is not int or total <= 0 or own < 0:
        return None
    return min(own / total, 1.0)


def profile_labels(found: Mapping[str, Any], *, accelerator: bool) -> list[str]:
    """The share of time in own kernels, from a worker's answer, which may hold anything. On the CPU, Python's time
    counts as the kernels'."""
    share = own_share(found)
    if share is None:
        return ["share of own kernels not known: the profiler sees no kernel here"]
    if share == 0.0:
        return [NO_KERNEL]
    percent = 100 * share
    what = "own kernels" if accelerator else "own kernels and Python"
    return [f"{what} {percent:.0f}% of the time" if percent >= 1 else f"{what} less than 1% of the time"]
