"""Validation, the parent's part: a candidate runs every test case, the oracle measures errors, the parent decides.

A worker's answers are untrusted: they are compared with what the oracle says, and never followed.
"""

import math
import os
import secrets
import shutil
import threading
import time
import uuid
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

from kgen.errors import DeviceError, EvaluatorError, ProblemError
from kgen.evaluator.runtime.channel import ChannelTimeout
from kgen.evaluator.runtime.process import Child, ChildDied
from kgen.protocol import CaseErrors, Phase, Status, Weights

Node = dict[str, Any]  #: describes a value; see :mod:`kgen.evaluator.runtime.arena`
Settled = Callable[["WorkerClient"], None]
_REASON_CHARACTERS = 300
_READY_SECONDS = 60.0
#: Fields of an answer that name a fault: its status, and the reason.
_FAULTS = {
    "alias": (Status.ALIASED_OUTPUT, "the output shares memory with {}"),
    "late": (Status.SUSPICIOUS, "its output changed after forward returned"),
    "overwritten": (Status.ALIASED_OUTPUT, "it wrote over an earlier call's output"),
    "mutated": (Status.MUTATED_INPUT, "it wrote into {}"),
}
_BY_VALUES = (Status.WRONG_VALUES, Status.WRONG_STATE)
_VERBS = {Phase.BUILD: "build", Phase.LOAD: "load", Phase.VALIDATE: "be validated", Phase.TIME: "be timed"}
OWN_NUMBERS = "random numbers of its own"  #: label: the candidate draws other numbers than PyTorch
OTHER_STRIDES = "strides differ from PyTorch's"  #: label: a caller's view of an output may fail
_NOT_REPEATABLE = "not bitwise repeatable"  #: label: two runs differ, within the tolerance
_OWN_NUMBERS_CASE = "other weights"  #: the distribution whose moments are compared; its batch is small
_OWN_NUMBERS_RUNS = 16
_NEXT_SEED = 7919
NUMBER_TOLERANCE = 2.0**-20  #: relative; on a Python float in an output; eight epsilons of float32


class Failure(Exception):
    """A candidate failed: its status, and the reason in one line. ``from_outside``: by a signal that others sent."""

    def __init__(self, status: Status, reason: str, phase: Phase, *, from_outside: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = "".join(c if c.isprintable() else "?" for c in " ".join(reason.split()))[:_REASON_CHARACTERS]
        self.phase = phase
        self.from_outside = from_outside


class OracleFailed(EvaluatorError):
    """The oracle failed. ``case`` is the test case that it worked on. ``memory`` says whether memory ran out, ``late``
    whether it did not answer in time. ``died`` says whether its process ended, and ``by_itself`` whether no other
    process ended it. ``of_batch`` says that another batch than the problem's ended the device's work."""

    def __init__(
        self,
        text: str,
        case: str = "",
        memory: bool = False,
        *,
        late: bool = False,
        died: bool = False,
        by_itself: bool = False,
        of_batch: bool = False,
    ) -> None:
        super().__init__(f"the reference failed{f' in the test case {case!r}' if case else ''}: {text}")
        self.text = text
        self.case = case
        self.memory = memory
        self.late = late
        self.died = died
        self.by_itself = by_itself
        self.of_batch = of_batch


@dataclass(frozen=True)
class CaseHandle:
    """A test case as the parent knows it: where its inputs are, and the structure of its output."""

    name: str  # of the distribution
    mode: str
    weights: str
    fd: int | None
    note: str  # why it is skipped
    raises: bool  # whether the reference refuses these shapes
    change: str  # of the weights
    rng: int
    random: bool  # whether the reference draws numbers in this mode
    bytes: int = 0
    inputs: Node = field(default_factory=dict)
    outputs: Node = field(default_factory=dict)  # output, and buffers where names are the problem's
    sizes: Sequence[Sequence[int]] = ()  # of the tensors in it
    end: int = 0
    stays: bool = True  # whether its inputs stay in memory when another case is asked for


class OracleClient:
    """The parent's end of the oracle, with its test cases. Thread-safe: one request at a time."""

    def __init__(self, child: Child, seconds: float) -> None:
        self.child = child
        self._seconds = seconds
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._failure: OracleFailed | None = None  # for good: a late answer would be taken for one to the next request
        self._cases: dict[tuple[str, str, str], CaseHandle] = {}

    def ask(
        self, do: str, fds: Sequence[int] = (), *, until: float = inf, **request: Any
    ) -> tuple[dict[str, Any], list[int]]:
        """The oracle's answer, until a time on the monotonic clock. Raises :class:`OracleFailed`, :class:`ProblemError`
        when the problem is at fault, and :class:`DeviceError` when the device is missing."""
        case = str(request.get("case", ""))
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                asked = time.monotonic()
                reply, got = self.child.ask({"do": do} | request, fds, deadline=min(asked + self._seconds, until))
            except ChildDied as error:
                by_itself = not error.from_outside
                self._failure = OracleFailed(
                    f"its process {error}", case, error.for_memory, died=True, by_itself=by_itself
                )
                raise self._failure from error
            except ChannelTimeout as error:
                self._failure = OracleFailed(f"no answer within {time.monotonic() - asked:.0f} s", case, late=True)
                raise self._failure from error
        if "error" in reply:
            kind = ProblemError if reply.get("problem") else DeviceError if reply.get("device") else None
            raise (
                kind(reply["error"])
                if kind
                else OracleFailed(
                    reply["error"], case, reply.get("memory", False), of_batch=reply.get("of_batch", False)
                )
            )
        return reply, got

    def case(self, name: str, mode: str, weights: str) -> CaseHandle:
        """A test case. One whose inputs do not stay is asked for each time."""
        key = (name, mode, weights)
        with self._finding:
            if key not in self._cases or not self._cases[key].stays:
                self._let_go([key for key, case in self._cases.items() if not case.stays])
                reply, fds = self.ask("inputs", case=name, mode=mode, weights=weights)
                self._cases[key] = CaseHandle(*key, fds[0] if fds else None, **reply)
            return self._cases[key]

    def judge(self, worker: "WorkerClient", case: CaseHandle, label: str, shift: int = 0, **how: Any) -> "Judged":
        """Judge the tensors that a worker wrote ``shift`` bytes behind their places in ``case``."""
        reply, _ = self.ask("judge", subject=worker.subject, outputs=case.outputs, shift=shift, **_named(case), **how)
        rows = [CaseErrors(case=label, **row) for row in reply.get("rows", ())]
        return Judged(rows, reply.get("same_numbers", False), reply.get("unclear", 0))

    def draws(self, worker: "WorkerClient", case: CaseHandle) -> tuple[dict[str, Any], list[int]]:
        """Fresh inputs of ``case``, and descriptors of their memory and of the memory for what a worker makes of
        them."""
        return self.ask("draws", subject=worker.subject, **_named(case))

    def judge_draws(
        self, worker: "WorkerClient", case: CaseHandle, rows: list[CaseErrors], count: int
    ) -> tuple[list[CaseErrors], int]:
        """``rows`` with the figures of ``count`` fresh inputs too where these decide, and how many more must tell."""
        reply, _ = self.ask("judge_draws", subject=worker.subject, count=count, **_named(case))
        rows = [*rows]
        for found in reply["rows"]:
            number = found.pop("number")
            rows[number] = CaseErrors(case=rows[number].case, **found | {"output": rows[number].output})
        return rows, reply["more"]

    def close(self) -> None:
        """Close the descriptors of all test cases."""
        self._let_go([*self._cases])

    def _let_go(self, keys: Iterable[tuple[str, str, str]]) -> None:
        for fd in (self._cases.pop(key).fd for key in keys):
            if fd is not None:
                os.close(fd)


class Judged(NamedTuple):
    """Error figures, whether random numbers are PyTorch's, and how many fresh inputs must tell before they decide."""

    rows: list[CaseErrors]
    same_numbers: bool = False
    unclear: int = 0


def _named(case: CaseHandle) -> dict[str, str]:
    return {"case": case.name, "mode": case.mode, "weights": case.weights}


class WorkerClient:
    """The parent's end of a worker, with the time that its phase has left. ``scratch`` is a candidate's own folder."""

    def __init__(self, child: Child, scratch: Path | None = None) -> None:
        self.child = child
        self.scratch = scratch
        self.subject = uuid.uuid4().hex  # the oracle's name for its output memory
        self.output_bytes = 0  # of that memory
        self.rehearsed = False  # whether it has the inputs of timed calls
        self.enter(Phase.LOAD, 0.0)

    def ready(self) -> list[str]:
        """Wait until the process is confined and has its device. Returns the missing parts of its sandbox. No code of a
        candidate has run until then. Raises :class:`EvaluatorError`."""
        self.enter(Phase.LOAD, _READY_SECONDS)
        try:
            return self.ask("ready")["missing"]
        except Failure as failure:
            raise EvaluatorError(
                f"a process for candidates does not start: {failure.reason}; see {self.child.log}"
            ) from failure

    def enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase that may take ``seconds`` of the worker's time."""
        self.phase, self._left, self._budget = phase, seconds, seconds

    def ask(self, do: str, fds: Sequence[int] = (), **request: Any) -> dict[str, Any]:
        """The worker's answer. Raises :class:`Failure` when it crashed, or took too much time or memory."""
        number = secrets.randbits(48)  # a forged answer does not have it
        return self.answer(number, partial(self.child.ask, {"do": do, "id": number} | request, fds))

    def answer(self, number: int, wait: Callable[..., tuple[dict[str, Any], list[int]]]) -> dict[str, Any]:
        """The answer, or the part of one, with that number. Raises what :meth:`ask` does."""
        with self._working():
            reply, got = wait(deadline=time.monotonic() + self._left)
        for fd in got:  # a worker has none to send
            os.close(fd)
        if reply.pop("id", None) != number:
            found = ["it sent an answer that is not the harness's", *self.child.findings]
            raise Failure(Status.SUSPICIOUS, "; ".join(found), self.phase)
        return reply

    def check_limits(self) -> None:
        """Raises :class:`Failure` when the candidate holds too much memory or too many processes."""
        with self._working():
            self.child.check_limits()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Take the time from what the phase has left, and turn the end of the process into a :class:`Failure`."""
        started, task = time.monotonic(), f"while it was to {_VERBS[self.phase]}"
        try:
            yield
        except ChildDied as error:
            status = Status.OUT_OF_MEMORY if error.for_memory else Status.CRASHED
            reason = f"{task}, the process {error}"
            raise Failure(status, reason, self.phase, from_outside=error.from_outside) from error
        except ChannelTimeout as error:
            raise Failure(Status.TIMEOUT, f"did not end within {self._budget:g} s {task}", self.phase) from error
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - started))

    def close(self) -> None:
        """End the process. Nothing of a candidate's stays, but a log that was moved."""
        self.child.kill()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.child.log.unlink(missing_ok=True)


def audit(worker: WorkerClient, settled: Settled) -> None:
    """Check that the candidate changed nothing that belongs to others. Raises :class:`Failure`."""
    reply = worker.ask("audit")
    raise_if_failed(reply, worker.phase)
    settled(worker)
    raise_if_wrong(reply, worker.phase)


@dataclass
class Validation:
    """A candidate on its way through the test cases. Error figures are appended to ``found``. ``room`` is half of the
    bytes for outputs. The oracle judges one case while the worker runs the next if each output fits into half of it.
    Otherwise the worker waits. With ``holds_strides``, outputs that have other strides than PyTorch's are wrong.
    Without it, they are a label."""

    worker: WorkerClient
    oracle: OracleClient
    weights: Weights  #: of the test cases
    found: list[CaseErrors]
    labels: list[str]
    room: int
    holds_strides: bool = True
    _thread: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "kgen-judge"))
    _place: int = 0  # where the latest outputs lie
    _judging: tuple[CaseHandle, str, Future[list[Judged]]] | None = None

    def run(self, names: Sequence[tuple[str, str]]) -> None:
        """Run the test cases ``names`` (distribution and mode). Raises :class:`Failure` at the first wrong one, and
        :class:`EvaluatorError` when the oracle fails."""
        one_mode = len({mode for _, mode in names}) == 1
        with self._thread:
            for (name, mode), following in zip(names, [*names[1:], None]):
                case = self.oracle.case(name, mode, self.weights)
                if following is not None and self.room and case.stays:  # the oracle prepares it while this one runs
                    self._thread.submit(self.oracle.case, *following, self.weights)
                self._take(case, name if one_mode else f"{name} ({mode})")
            self._settle()

    def _take(self, case: CaseHandle, label: str) -> None:
        if case.random or case.note and not case.raises:
            self._settle()  # a failure of an earlier case is not this one's
        if case.note and not case.raises:
            self.found.append(_skipped(label, case.note))
            return
        before = len(self.found)
        try:
            self._try(case, label)
        except Failure as failure:
            numbers = _own_numbers(case, label)
            if not case.random or failure.status not in _BY_VALUES or numbers in self.labels:
                raise
            drawn = self.oracle.case(_OWN_NUMBERS_CASE, case.mode, case.weights)
            if drawn.note:
                raise
            self.found[before:] = self._judge_by_moments(drawn, drawn.name + label.removeprefix(case.name), failure)
            self.labels.append(numbers)
            self._try(case, label)

    def _try(self, case: CaseHandle, label: str) -> None:
        """Run a case and start judging it; a random one may run again, and is waited for. Raises :class:`Failure`."""
        # Without matched names, buffers may be of any size.
        beside = self.weights != Weights.CONSTRUCTED and not case.random and 2 * case.end <= self.room
        if not beside:
            self._settle()
        self._place = self.room - self._place if beside else 0
        try:
            reply = self._run(case, case.rng)
        finally:
            self._settle()
        if case.raises:
            self.found.append(_skipped(label, case.note + (", and so does the candidate" if "error" in reply else "")))
            return
        _check_run(case, reply, label)
        self._check_strides(case, reply, label)
        judging = self._thread.submit(self._judge, case, label, self._place, bool(reply.get("repeatable")))
        self._judging = case, label, judging
        if not beside:
            self._settle()

    def _check_strides(self, case: CaseHandle, reply: dict[str, Any], label: str) -> None:
        """Raises :class:`Failure` for strides that are not PyTorch's, or labels the candidate."""
        try:
            found = next(_other_strides(case.outputs["items"][0], reply["first"]["items"][0], "output"), "")
        except (KeyError, TypeError, IndexError) as error:
            raise Failure(Status.SUSPICIOUS, f"{label}: what it answers makes no sense", Phase.VALIDATE) from error
        if found and self.holds_strides:
            raise Failure(Status.WRONG_SHAPE, f"{label}: {found}", Phase.VALIDATE)
        if found and OTHER_STRIDES not in self.labels:
            self.labels.append(OTHER_STRIDES)

    def _run(self, case: CaseHandle, rng: int, *, go_on: bool = False) -> dict[str, Any]:
        """Have the worker run a case twice. It writes the second run's tensors behind the first's."""
        assert case.fd is not None
        return self.worker.ask(
            "run",
            [case.fd],
            inputs=case.inputs,
            bytes=case.bytes,
            change=case.change,
            mode=case.mode,
            rng=rng,
            go_on=go_on,
            place=self._place,
            end=self._place + case.end,
            sizes=case.sizes,
        )

    def _judge(self, case: CaseHandle, label: str, place: int, repeatable: bool) -> list[Judged]:
        """Figures of the first run; if they are right, those of the second run too where it differs."""
        judge = partial(
            self.oracle.judge, self.worker, case, label, own_numbers=_own_numbers(case, label) in self.labels
        )
        found = [judge(place)]
        if not repeatable and all(row.ok for row in found[0].rows):
            found.append(judge(self._second(case, label, place)))
        return found

    def _second(self, case: CaseHandle, label: str, place: int) -> int:
        """Where the second run's tensors lie: behind the first's at ``place``, or over them if memory ends before."""
        if place + 2 * case.end <= self.worker.output_bytes:
            return place + case.end
        raise_if_failed(self.worker.ask("write_second"), Phase.VALIDATE, label)
        return 0

    def _settle(self) -> None:
        """Wait for the case that is being judged. Raises :class:`Failure` if it is wrong."""
        if self._judging is None:
            return
        (case, label, judging), self._judging = self._judging, None
        first, *second = judging.result()
        rows = self._drawn(case, label, first) if first.unclear else first.rows
        self.found.extend(rows)
        decide(rows, label, Phase.VALIDATE)
        for judged in second:
            differs = f"a second run differs from the first: {label}"
            if not judged.unclear:  # the first run's fresh inputs have told
                decide(judged.rows, differs, Phase.VALIDATE, Status.NONDETERMINISTIC)
            self.labels.append(_NOT_REPEATABLE)

    def _drawn(self, case: CaseHandle, label: str, judged: Judged) -> list[CaseErrors]:
        """Figures over several inputs of tensors that have few errors. Raises :class:`Failure`."""
        fresh, fds = self.oracle.draws(self.worker, case)
        rows, done, count = judged.rows, 0, judged.unclear
        try:
            while done < count:
                reply = self.worker.ask(
                    "draws", fds, first=done, count=count - done, change=case.change, mode=case.mode, **fresh
                )
                raise_if_failed(reply, Phase.VALIDATE, label)
                for outputs in reply.get("drawn", ()):
                    _check_drawn(fresh["outputs"], outputs, label)
                done = count
                rows, count = self.oracle.judge_draws(self.worker, case, judged.rows, done)
            return rows
        finally:
            for fd in fds:
                os.close(fd)

    def _judge_by_moments(self, case: CaseHandle, label: str, failure: Failure) -> list[CaseErrors]:
        """Figures of a candidate whose values are wrong in a random mode, judged by moments. Raises ``failure`` if it
        draws PyTorch's numbers, and a :class:`Failure` that names both faults if its moments are wrong."""
        judge = partial(self.oracle.judge, self.worker, case, label, count=_OWN_NUMBERS_RUNS)
        for number in range(_OWN_NUMBERS_RUNS // 2):
            run = self._run(case, case.rng + number * _NEXT_SEED, go_on=True)
            _check_run(case, run, label)
            judge(0)
            rows, same_numbers, _ = judge(0 if run.get("repeatable") else self._second(case, label, 0))
        if same_numbers:
            raise failure
        for row in rows:
            if not row.ok:
                reason = f"{failure.reason}; as {OWN_NUMBERS}: {row.output}: {explain(row)}"
                raise Failure(failure.status, reason, failure.phase) from failure
        return [replace(row, case=f"{label}, {_OWN_NUMBERS_RUNS} runs") for row in rows]


def _check_run(case: CaseHandle, reply: dict[str, Any], label: str) -> None:
    """Check everything about a run except its values. Raises :class:`Failure`."""
    raise_if_failed(reply, Phase.VALIDATE, label)
    for name in ("first",) if reply.get("repeatable") else ("first", "second"):
        check_structure(case.outputs, reply.get(name), label, Phase.VALIDATE)
    raise_if_wrong(reply, Phase.VALIDATE, label)


def _check_drawn(expected: Sequence[Node], got: Any, label: str) -> None:
    """Compare the structure of tensors for a fresh input with what the first input gave. Raises :class:`Failure`."""
    check_structure(
        {"items": [{"kind": "list", "items": [*expected]}]},
        {"items": [got, got]},
        f"{label}, with fresh inputs",
        Phase.VALIDATE,
    )


def _own_numbers(case: CaseHandle, label: str) -> str:
    """The label of a candidate that draws its own numbers, with the mode where there are two."""
    return OWN_NUMBERS + label.removeprefix(case.name)


def decide(rows: Sequence[CaseErrors], label: str, phase: Phase, wrong: Status = Status.WRONG_VALUES) -> None:
    """Raises :class:`Failure` for the first wrong row, with the status ``wrong`` unless it is a buffer's."""
    if (row := next((row for row in rows if not row.ok), None)) is not None:
        status = Status.WRONG_STATE if row.output.startswith("state ") else wrong
        raise Failure(status, f"{label}: {row.output}: {explain(row)}", phase)


def explain(row: CaseErrors) -> str:
    """The error figures of a row in one line."""
    if row.note or row.used is None or row.rms is None:
        return row.note
    over = f" over {row.runs} inputs" if row.runs > 1 else ""
    times = "" if row.ratio is None else f"{row.ratio:.3g} x PyTorch's, "
    return (
        f"error {row.rms:.2g} rms, {row.maximum:.2g} at most (PyTorch {row.eager_rms:.2g}, "
        f"{row.eager_maximum:.2g}){over}: {times}{row.used:.3g} x what is allowed"
    )


def raise_if_failed(reply: Mapping[str, Any], phase: Phase, label: str = "") -> None:
    """Raises :class:`Failure` when a worker answers that the candidate raised."""
    if "error" in reply:
        raised = Status.LOAD_ERROR if phase is Phase.LOAD else Status.RUNTIME_ERROR
        status = Status.OUT_OF_MEMORY if reply.get("memory") else raised
        raise Failure(status, (f"{label}: " if label else "") + str(reply["error"]), phase)


def raise_if_wrong(reply: Mapping[str, Any], phase: Phase, label: str = "") -> None:
    """Raises :class:`Failure` where a worker's answer names a fault."""
    for name, (status, text) in _FAULTS.items():
        if reply.get(name):
            raise Failure(status, (f"{label}: " if label else "") + text.format(reply[name]), phase)


def check_structure(expected: Node, got: Any, where: str, phase: Phase) -> None:
    """Compare the structure of a worker's output and buffers with those that are expected. Python numbers of timed
    calls are not compared: their inputs are others. Raises :class:`Failure`."""
    try:
        output, state = got["items"]
        for theirs, mine, path in zip(expected["items"], (output, state), ("output", "state")):
            for status, text in _faults(theirs, mine, path, numbers=phase is not Phase.TIME):
                raise Failure(status, f"{where}: {text}", phase)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Failure(Status.SUSPICIOUS, f"{where}: what it answers makes no sense", phase) from error


def _faults(expected: Node, got: Node, path: str, numbers: bool) -> Iterator[tuple[Status, str]]:
    """Differences in container, type, dtype, device or shape, and with ``numbers`` in Python numbers."""
    if expected["kind"] != got["kind"]:
        mine, theirs = (f"a {node.get('type', node['kind'])!s:.40}" for node in (got, expected))
        yield Status.WRONG_TYPE, f"{path} is {mine}, not {theirs}"
    elif "items" in expected:
        if len(expected["items"]) != len(got["items"]) or expected.get("keys") != got.get("keys"):
            yield Status.WRONG_TYPE, f"{path} has {len(got['items'])} parts, not {len(expected['items'])}"
        for index, pair in enumerate(zip(expected["items"], got["items"])):
            yield from _faults(*pair, f"{path}[{index}]", numbers)
    elif expected["kind"] == "tensor":
        for field in ("dtype", "device"):
            if expected[field] != got[field]:
                yield Status.WRONG_TYPE, f"{path} has {field} {got[field]!s:.30}, not {expected[field]}"
        if expected["size"] != got["size"]:
            yield Status.WRONG_SHAPE, f"{path} has shape {got['size']!s:.60}, not {expected['size']}"
        if _shares_with_itself(got) and not _shares_with_itself(expected):  # writing one element would change others
            yield Status.ALIASED_OUTPUT, f"elements of {path} share memory with each other; PyTorch's do not"
    else:
        value, mine = expected.get("value"), got.get("value")
        text = f"{path} is {mine!r:.50}, not {value!r:.50}"
        if type(value) is not type(mine):
            yield Status.WRONG_TYPE, text
        elif (numbers or not isinstance(value, (int, float))) and not _are_same(value, mine):
            yield Status.WRONG_VALUES, text


def _other_strides(expected: Node, got: Node, path: str) -> Iterator[str]:
    """The tensors that lie in memory otherwise than PyTorch's, of one structure with those.

    Dimensions of one element do not count. Where PyTorch returns a part of a larger tensor, or elements share memory, a
    dense tensor with the same order of dimensions will do.
    """
    for index, pair in enumerate(zip(expected.get("items", ()), got.get("items", ()))):
        yield from _other_strides(*pair, f"{path}[{index}]")
    if expected["kind"] != "tensor" or 0 in expected["stride"] or 0 in expected["size"]:
        return
    large = [d for d, size in enumerate(expected["size"]) if size > 1]
    found, wanted = ([node["stride"][d] for d in large] for node in (got, expected))
    dense, step = {}, 1
    for d in sorted(large, key=lambda d: expected["stride"][d]):
        dense[d], step = step, step * expected["size"][d]
    if found not in (wanted, [dense[d] for d in large]):
        yield f"{path} has strides {got['stride']!s:.60}, not {expected['stride']}"


def _are_same(value: Any, mine: Any) -> bool:
    """Whether two values of one type agree; the last bits of a float depend on the order of sums."""
    if isinstance(value, float):
        return math.isnan(value) and math.isnan(mine) or math.isclose(value, mine, rel_tol=NUMBER_TOLERANCE)
    return value == mine


def _shares_with_itself(node: Node) -> bool:
    """Whether a tensor has more elements than memory, as an expanded one has."""
    return 1 + sum((n - 1) * step for n, step in zip(node["size"], node["stride"])) < math.prod(node["size"])


def _skipped(label: str, note: str) -> CaseErrors:
    return CaseErrors(label, "", None, None, None, None, None, None, True, f"skipped: {note}")
