"""The oracle: the process that knows the seeds and the expected values, and measures errors against them.

Its process (:mod:`kgen.evaluator.correctness.desk`) answers the parent's requests. Inputs leave it in shared memory;
expected values never do.
"""

import time
import timeit
from collections import Counter
from dataclasses import replace
from functools import partial, reduce
from math import inf
from typing import Any, Callable, Collection, Iterator, NoReturn, Sequence, TypeAlias

import torch

from kgen.devices.kinds import HOST, kind_of, torch_device
from kgen.devices.runtime import runtime
from kgen.errors import ProblemError
from kgen.evaluator.correctness import cudnn, moments
from kgen.evaluator.correctness.batches import Batches, layouts
from kgen.evaluator.correctness.cases import Case
from kgen.evaluator.correctness.distributions import (
    DISTRIBUTIONS,
    FULL,
    HALF,
    REDUCED,
    Distribution,
    Mixable,
    batch_size,
    change_inputs,
    change_weights,
    drawn_batches,
    joined,
    mixtures,
    seed_of,
    slice_batch,
)
from kgen.evaluator.correctness.excuses import excuse
from kgen.evaluator.correctness.fresh_inputs import FreshInputs
from kgen.evaluator.correctness.outputs import Outputs
from kgen.evaluator.correctness.products import Products
from kgen.evaluator.correctness.random_runs import RandomRuns
from kgen.evaluator.correctness.reference import (
    Reference,
    Run,
    State,
    construct,
    draw_weights,
    flags,
    generator_states,
    made_on,
    seed_for,
    set_flags,
)
from kgen.evaluator.correctness.resident import Resident
from kgen.evaluator.correctness.tolerance import Expected, Typical, parts
from kgen.evaluator.runtime.arena import Arena, Node, describe, is_inexact, leaves, map_tensors, nodes, span, tensors
from kgen.problems.problem import Problem, load, resolve_mode
from kgen.protocol import Accuracy, Layouts, Weights

POOL_BYTES = 1 << 30  #: bytes; of all input sets for timed calls
POOL_SETS = 4  #: at most; two at least
_LARGE_BYTES = 1 << 28  #: bytes of inputs and outputs; above it, all test cases but the problem's own have fewer rows
_FEW_BYTES = 1 << 26  #: bytes of inputs and outputs in these
NOISY_RUNS = 3  #: float64 runs with float32 rounding, for each test case
_FLOAT64_COST = 4  # seconds of a float64 run per second of a forward in float32; where it is less, nothing is measured
_OF_A_CASE = 4  # noisy runs of one test case end at this part of all float64 seconds
NO_MEMORY = (torch.OutOfMemoryError, MemoryError)
_SLICE_BYTES = 1 << 28  #: bytes of eager's peak; above it, float64 runs go by slices of the batch
CACHED_BYTES = 1 << 28  #: bytes of a GPU that torch keeps for later; more of them are freed after each answer
_STATE = "state "  #: prefix of the names of buffers
#: Seconds of a short forward on one thread, and of processor time on all, above which one thread is not tried.
_SHORT_FORWARD, _LITTLE_WORK = 0.05, 0.3

Contents: TypeAlias = Callable[[int, int], list[Any]]  #: inputs: so many rows, from one on


class Oracle:
    """The reference, its inputs and its expected values, for one problem on one device in one class of accuracy.
    ``strict`` adds the input distributions of foreign candidates. ``most_rows`` bounds the rows of all distributions
    but the first, and those in ``without`` are left out: how to judge with less memory. Float64 runs take about
    ``seconds``: where they are slow, test cases have fewer rows, or are left out. Without ``other_batches``, all have
    the problem's rows. Raises :class:`OfBatchError` where these must be tried without."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        accuracy: str,
        secret: int,
        construction: int,
        *,
        shared: bool,
        strict: bool,
        most_rows: int = 1 << 62,
        without: Sequence[str] = (),
        seconds: float = inf,
        other_batches: bool = True,
    ) -> None:
        self.accuracy = Accuracy(accuracy)
        self.kind, self.runtime, self.device = kind_of(device), runtime(device), torch_device(device)
        self.place = self.device if shared else HOST.name  # where arenas lie
        self._seconds = seconds
        self._spent = 0.0  # seconds in test cases
        self.secret = secret
        self._construction = construction
        self.path = problem.path
        loaded = load(problem)
        self.flags = flags()  # PyTorch's, or the flags that the problem's file sets
        self.reference = Reference(loaded, self.device, construction)
        if self.accuracy is not Accuracy.PYTORCH:
            set_flags(self.accuracy)  # the problem's file may have set others
        self.loaded = resolve_mode(loaded, self.reference.single)
        self.modes = self.loaded.problem.modes
        self.ties = self.reference.ties()
        self.unsaved: list[str] = []  # tensors of no state dict that forward writes
        self._states: dict[str, State] = {"drawn": self._draw_weights()}
        _refuse_others(self.path, "get_init_inputs() gives", loaded.init_inputs())
        self._given = self.get_inputs(0)  # reduced batches are slices of it: drawing takes long
        found = {x.dtype for x in (*self._states["drawn"].values(), *tensors(self._given)) if x.is_floating_point()}
        self.half = bool(found & HALF)
        if self.half and self.accuracy is not Accuracy.PYTORCH:
            _refuse_half(self.path, found & HALF)
        if len(found) == 1:
            self.reference.dtype = found.pop()  # in which eager rounds
        self.unsaved = self.reference.find_unsaved(self._given, self._states["drawn"], self.modes)
        if self.unsaved:  # its names are known now
            self._states["drawn"] = self._draw_weights()
        self.rows = batch_size(self._given)
        self._few_rows = self.kind.reduced_rows  # of a reduced batch
        every = (
            DISTRIBUTIONS[:2]
            if self.accuracy is Accuracy.KERNELBENCH
            else (  # its own check tries no other values
                *DISTRIBUTIONS,
                *drawn_batches(secret, self.rows),
            )
        )
        self.distributions = tuple(d for d in every if (strict or d.own) and d.name not in without)
        self._cases: dict[tuple[str, str, str], Case] = {}
        self._strict = strict
        self.output_bytes = 0
        self.layouts: Layouts = {}
        self.views: dict[str, list[int]] = {}  # by mode: output tensors that share memory with an input or the state
        self.random: dict[str, bool] = {}  # by mode: whether other random numbers give other values
        self.peak_bytes = 0  # of device memory, in one eager forward with its inputs and weights
        self._forward_seconds = 0.0
        self._forward_work = 0.0  # seconds of processor time
        noted = {mode: self._look_at(mode) for mode in self.modes}
        calls = {mode: of.calls for mode, of in noted.items()}  # of cuDNN
        self.operators = sum(
            (of.operators for of in noted.values()), Counter[str]()
        )  # that a forward in each mode calls
        self.elementwise = set[str]().union(*(of.elementwise for of in noted.values()))
        if not self.output_bytes:
            raise ProblemError(f"{self.path}: forward returns no element: there is nothing to compare")
        self.runtime.free(CACHED_BYTES)
        convolves, multiplies = any(calls.values()), any(of.matmuls for of in noted.values())
        in_tf32 = convolves or (
            multiplies and (self.accuracy is Accuracy.TF32 or torch.backends.cuda.matmul.allow_tf32)
        )
        if self.accuracy in (Accuracy.PYTORCH, Accuracy.TF32) and not self.half and not in_tf32:
            self.accuracy = Accuracy.FP32  # the flags change nothing then, and results are shared with fp32
            set_flags(self.accuracy)
        size = describe(self._given)[1]
        self.bytes = size + self.output_bytes
        self.is_large = self.bytes > _LARGE_BYTES
        few = max(2, (self.rows * _FEW_BYTES // self.bytes - 1) | 1)  # odd: more than whole tiles
        self.most_rows = min(most_rows, few) if self.is_large else most_rows
        batches = Batches(
            lambda inputs, mode: self.reference.eager(inputs, self._states["drawn"], mode, 0),
            self.runtime.wait,
            self._given,
            self._states["drawn"],
        )
        tried = other_batches and self.rows > 1
        found = [batches.goes_by_rows(mode, self._reduced()) if tried else (False, False) for mode in self.modes]
        self.runtime.free(CACHED_BYTES)
        self.batch_free = found[0][0]
        self.layouts = {
            mode: _with_one_row(own, batches.layouts_of_one_row(mode) if self.batch_free else [])
            for mode, own in self.layouts.items()
        }
        self._separable = {mode: alone and not self.random[mode] for mode, (_, alone) in zip(self.modes, found)}
        if self.batch_free:
            self.most_rows = min(self.most_rows, self._rows_in_time())
        self._make_pool(size)
        self.state_arena, self.state_node = Arena.holding(dict(self._states["drawn"]), self.place)
        self._states["drawn"] = self.state_arena.read(self.state_node, self.device)
        self.products = Products(self.reference, calls, self._given, self._states["drawn"])
        self.outputs = Outputs(
            self.place, self.device, self.output_bytes, strict=strict, copies=self.output_bytes <= _LARGE_BYTES
        )
        self.resident = Resident(self.device, self.output_bytes // 8)
        self.fresh, self.runs = FreshInputs(self), RandomRuns(self)

    def _look_at(self, mode: str) -> cudnn.Noted:
        """Run the problem in a mode: its memory, and its output's nature. Returns the products of the library."""
        before = self.runtime.begin_peak(self.device)
        started, worked = time.monotonic(), time.process_time()
        run, views, noted = self.reference.looked_at(self._given, self._states["drawn"], mode)
        taken = self.runtime.peak(self.device) - before
        finite = _is_finite(run)  # waits for the device
        self._forward_seconds = max(self._forward_seconds, time.monotonic() - started)
        self._forward_work = max(self._forward_work, time.process_time() - worked)
        if not finite:  # as behind a root of a scale
            self._states["drawn"] = self._draw_weights(signs=False)
            run, views, noted = self.reference.looked_at(self._given, self._states["drawn"], mode)
        self.peak_bytes = max(self.peak_bytes, taken + describe([self._states["drawn"]])[1])
        _refuse_others(self.path, "the model returns", run[0])
        self.output_bytes = max(self.output_bytes, describe(list(run))[1])
        self.views[mode] = sorted(views)
        self.layouts |= {mode: layouts(run)}
        self.random[mode] = self._is_random(mode, run)
        return noted

    def set_threads(self, threads: int) -> None:
        """Compute with one thread where a forward is short on it, and with ``threads`` otherwise. The threads of a
        short forward mostly wait for each other, and waiting threads keep processors from the first builds."""
        torch.set_num_threads(threads if self._forward_work > _LITTLE_WORK else 1)
        started = time.monotonic()
        if torch.get_num_threads() < threads:
            for mode in self.modes:
                self.reference.eager(self._given, self._states["drawn"], mode, 0)
            if time.monotonic() - started > _SHORT_FORWARD * len(self.modes):
                torch.set_num_threads(threads)

    def _reduced(self) -> int:
        """The rows of a reduced batch; two at least where there are as many."""
        return min(self.rows, max(2, self.most_rows), self._few_rows)

    def _rows_in_time(self) -> int:
        """The rows of a test case whose float64 runs take its share of the time."""
        share = self._seconds / (len(self.distributions) * (1 + NOISY_RUNS))
        if self._forward_seconds * _FLOAT64_COST <= share:
            return 1 << 62
        inputs = slice_batch(self._given, self._reduced())
        run = partial(self.reference.exact, inputs, self._states["drawn"], self.modes[0], 0)
        _, took = timeit.repeat(lambda: _is_finite(run()), repeat=2, number=1)  # the first loads libraries
        return max(2, int(self._reduced() * share / took) | 1)

    def _make_pool(self, size: int) -> None:
        """Put the problem's inputs of ``size`` bytes and others into one arena. Of large inputs, others have fewer
        rows."""
        some = max(1, self.rows * POOL_BYTES // size) if self.batch_free and size > POOL_BYTES else self.rows
        count = max(2, min(POOL_SETS, POOL_BYTES // max(size, 1)))
        other = describe(slice_batch(self._given, some))[1]
        self.pool_arena = Arena.create(size + (count - 1) * other, self.place)
        items, end = [], 0
        for index in range(count):
            inputs = slice_batch(self.get_inputs(99 + index), some) if index else self._given
            node, end = describe(inputs, end)
            if end > self.pool_arena.size:
                raise ProblemError(f"{self.path}: get_inputs() gives tensors of other shapes each time")
            self.pool_arena.write(inputs, node)
            items.append(node)
        self.pool_arena.seal()
        self.pool_node: Node = {"kind": "list", "items": items}
        self.pool: list[list[Any]] = self.pool_arena.read(self.pool_node, self.device)
        self.is_mixable = Mixable()  # of the pool
        self._given = self.pool[0]

    def _draw_weights(self, *, signs: bool = True) -> State:
        drawn = draw_weights(self.loaded, self.device, self.secret, signs=signs, others=self.unsaved)
        return change_weights(drawn, "drawn", self.ties)

    def _weights(self, name: str) -> State:
        """The weights of an entry of :class:`Weights`; few candidates need others than drawn ones."""
        if name == Weights.SAVED:
            return {k: v for k, v in self._states["drawn"].items() if k not in self.unsaved}
        if name not in self._states:
            model = construct(self.loaded.model, self.device, self._construction)
            self._states[name] = {k: v.detach() for k, v in model.state_dict().items()}
        return self._states[name]

    def _is_random(self, mode: str, run: tuple[Any, Any]) -> bool:
        """Whether the latest forward, which gave ``run``, drew random numbers that change its values."""
        devices = self.runtime.generators(self.device)
        after = generator_states(devices)
        seed_for(self.device, 0)
        if all(map(torch.equal, after, generator_states(devices))):
            return False
        other = self.reference.eager(self._given, self._states["drawn"], mode, 1)
        return not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(*map(tensors, (run, other))))

    def get_inputs(self, number: int) -> list[Any]:
        def placed(x: torch.Tensor) -> torch.Tensor:
            x = x.detach().to(self.device)
            return x.contiguous() if span(x) < x.numel() or 0 in x.stride() else x  # no two elements share memory

        inputs = map_tensors(made_on(self.device, self.secret + 1000 * number + 7, self.loaded.inputs), placed)
        _refuse_others(self.path, "get_inputs() gives", inputs)
        for x in tensors(inputs):
            if x.is_floating_point() and x.dtype not in (torch.float32, *HALF):
                raise ProblemError(f"{self.path}: an input is {x.dtype}: kgen takes float32, bfloat16 and float16")
        return inputs

    def names(self) -> list[tuple[str, str]]:
        """The test cases: distributions with their modes, in the order in which they are tried."""
        most = min(self.rows, self.most_rows + 1)
        kept = [d for d in self.distributions if not d.shape_only or (self.batch_free and d.batch < most)]
        return [(distribution.name, mode) for distribution in kept for mode in self.modes]

    def case(self, name: str, mode: str, weights: str, *, judged: bool = False) -> Case:
        """The test case of a distribution and a mode, under an entry of :class:`Weights`. Where it is ``judged``,
        its expected values are on the device."""
        key = (name, mode, weights)
        if key not in self._cases:
            judged = True  # it was made there, and others may have to move
            distribution = next(d for d in self.distributions if d.name == name)
            started = time.monotonic()
            self._cases[key] = self._make_case(distribution, mode, weights)
            self._spent += time.monotonic() - started
        case = self._cases[key]
        if case.arena is None and not (case.note and not case.raises):
            self._hold_inputs(case)
        if judged:
            self.resident.keep(case, self.distributions[0])
        return case

    def _hold_inputs(self, case: Case) -> None:
        """Put the inputs of ``case`` into an arena. Of large inputs, only the latest case's stay."""
        if case.distribution.values == "given" and self.rows_of(case.distribution) == self.rows:
            case.arena, case.node, case.inputs = self.pool_arena, self.pool_node["items"][0], self._given
            return
        for other in self._cases.values():
            if not self.stays(other):
                other.inputs = []
                other.arena.close()
                other.arena = None
        case.arena, case.node = Arena.holding(self.changed(case), self.place)
        case.inputs = case.arena.read(case.node, self.device)

    def changed(self, case: Case, given: list[Any] | None = None) -> list[Any]:
        """The problem's inputs, or others that are ``given``, changed as the distribution of ``case`` says."""
        distribution, inputs = case.distribution, slice_batch(given or self._given, self.rows_of(case.distribution))
        if describe(inputs)[1] < _LARGE_BYTES:  # on a GPU, each change would load kernels
            inputs = map_tensors(inputs, lambda x: x.cpu())
        seed, weights = self.secret + self.distributions.index(distribution), self.state(distribution, case.weights)
        return change_inputs(inputs, distribution.values, seed, weights.values())

    def rows_of(self, distribution: Distribution) -> int:
        rows = {FULL: self.rows, REDUCED: self._few_rows}.get(distribution.batch, distribution.batch)
        if distribution is not self.distributions[0]:
            rows = min(rows, self.most_rows)
        return min(rows, self.rows) if self.batch_free else self.rows

    def stays(self, case: Case) -> bool:
        """Whether the inputs of ``case`` stay in memory."""
        return case.arena is self.pool_arena or case.arena is None or case.arena.size < _LARGE_BYTES

    def _make_case(self, distribution: Distribution, mode: str, weights: str) -> Case:
        number = self.distributions.index(distribution)
        state = self.state(distribution, weights)
        case = Case(distribution, mode, seed_of(self.secret + number), [], [], weights=weights)
        if number and self._spent > self._seconds:
            case.note = "float64 runs take too long here"
            return case
        self._hold_inputs(case)
        inputs, where, started, worked = case.inputs, "", time.monotonic(), time.process_time()
        try:
            eager = self.reference.eager(inputs, state, mode, case.rng)
            case.outputs, case.end = describe(list(eager) if weights != Weights.CONSTRUCTED else [eager[0]])
            self.runtime.free(CACHED_BYTES)
            where = " in float64"
            case.noise = (
                (distribution.values, distribution.batch) != ("given", FULL)
                or self.kind.accelerator
                or not all(map(is_inexact, tensors([eager[0]])))
            )
            # Where only the batch differs, eager's error on the problem's own inputs is part of the reference error.
            given = self.case(self.distributions[0].name, mode, weights).expected if distribution.shape_only else []
            typical = reduce(Typical.worst, (e.typical for e in given), Typical())
            contents = partial(slice_batch, inputs)
            case.expected = self._expect(contents, batch_size(inputs), state, case, eager, typical)
            case.seconds = time.monotonic() - started
            if not kind_of(self.device).accelerator:  # how busy it is decides nothing
                case.seconds = min(case.seconds, time.process_time() - worked)
            excuse(case, self._exactly(case, state), masks=self.reference.masks)
            if self.random[mode]:  # many runs are judged together
                self.widen(case)
            for expected in case.expected:
                # With other random numbers, other elements are not finite.
                if self.random[mode] and expected.free is not None and 2 * len(expected.free) > expected.exact.numel():
                    expected.skipped = "over half of PyTorch's own output is not finite"
        except NO_MEMORY:
            raise  # the case is tried again with fewer rows
        except Exception as error:
            if where and number == 0:  # all others would be skipped too
                fault = f"{self.path}: it does not run in float64, which candidates are measured against"
                raise ProblemError(f"{fault}: {type(error).__name__}: {' '.join(str(error).split()):.200}") from error
            case.note = f"the reference raises {type(error).__name__}{where} here"
            case.raises = distribution.shape_only and not where
        return case

    def state(self, distribution: Distribution, weights: str) -> State:
        how = distribution.weights if weights != Weights.CONSTRUCTED else "drawn"
        return change_weights(self._weights(weights), how, self.ties)

    def _expect(
        self, contents: Contents, rows: int, state: State, case: Case, eager_run: Run, typical: Typical
    ) -> list[Expected]:
        """The expected values of ``case``, whose inputs are ``rows`` rows of ``contents``."""
        run = self._by_slices(self.reference.exact, contents, rows, state, case)
        found = (
            replace(Expected.begun(name + path, e64, e32), either=name == _STATE).settle(typical)
            for name, exacts, eagers in zip(("output", _STATE), run, eager_run)
            for (path, e64), (_, e32) in zip(leaves(exacts), leaves(eagers))
            if isinstance(e64, torch.Tensor)
        )
        large = self.is_large and not self.random[case.mode]  # as in TF32, half of the memory is enough then
        return [expected.narrowed() if large else expected for expected in found]

    def widen(self, case: Case) -> bool:
        """Add float64 runs with roundings to the errors of ``case``, whose inputs are held, once. Returns whether it
        did."""
        if case.widened or not case.expected:
            return False
        case.widened, case.aside, started = True, [], time.monotonic()
        rows = batch_size(case.inputs)
        everywhere = self.accuracy is Accuracy.TF32
        run = partial(
            self.reference.exact, noise=True, products=None if everywhere else self.products.errors(case.mode, rows)
        )
        state = self.state(case.distribution, case.weights)
        for turn in range(NOISY_RUNS):
            if turn and time.monotonic() - started > self._seconds / _OF_A_CASE:
                break
            values = tensors(list(self._by_slices(run, partial(slice_batch, case.inputs), rows, state, case)))
            for expected in case.expected:
                expected.see(values.pop(0))
        return bool([expected.settle() for expected in case.expected])

    def _by_slices(self, run: Callable[..., Run], contents: Contents, rows: int, state: State, case: Case) -> Run:
        """Output and buffers of ``run``, one of the reference's, for ``rows`` rows of ``contents``. It goes by slices
        of the batch where tensors are large and rows do not depend on each other."""
        most = max(1, self.rows * _SLICE_BYTES // max(1, self.peak_bytes, self.bytes))
        if rows <= most or not self._separable[case.mode]:
            return run(contents(rows, 0), state, case.mode, case.rng)
        after: dict[str, torch.Tensor] = {}

        def outputs() -> Iterator[Any]:
            nonlocal after
            for first in range(0, rows, most):
                output, after = run(contents(min(most, rows - first), first), state, case.mode, case.rng)
                yield output

        return joined(outputs(), rows), after

    def _exactly(self, case: Case, state: State) -> Callable[..., list[torch.Tensor]]:
        """The function that gives the outputs of ``case`` for other inputs in float64, and how."""

        def exact(inputs: list[Any], **how: bool) -> list[torch.Tensor]:
            run = partial(self.reference.exact, **how)
            return tensors(self._by_slices(run, partial(slice_batch, inputs), batch_size(inputs), state, case))

        return exact

    def judge(self, case: Case, values: list[torch.Tensor], *, own_numbers: bool = False) -> list[dict[str, Any]]:
        """Error figures of each output tensor and buffer. With ``own_numbers``, other random numbers are right too."""
        rows = [e.judge(value, self.accuracy) | {"output": e.name} for e, value in zip(case.expected, values)]
        if all(row["ok"] for row in rows):
            return rows
        if self.widen(case):
            return self.judge(case, values, own_numbers=own_numbers)
        if not own_numbers or not self.random[case.mode]:
            return rows
        return [
            row if spread is None else row | spread.judge([moments.sampled(value)], self.accuracy)
            for spread, row, value in zip(self.runs.spreads(case, moments.FEW), rows, values)
        ]

    def judge_timed(
        self, key: int, like: Case, values: list[torch.Tensor], *, own_numbers: bool
    ) -> list[dict[str, Any]]:
        """Error figures of the timed call with ``key``; the test case ``like`` has all rows. PyTorch's own output is
        expected, since it is as fast as the call; its error in that test case sets the tolerance. A refused output is
        judged again in full, against float64 on the call's own inputs. A foreign one has roundings only if ``like``
        has, since it may be another one than it was in validation."""
        case = replace(like, rng=seed_of(key), inputs=[], spreads=[], widened=True)
        contents, state = partial(_contents, self, key), self._weights(like.weights)
        eager = self._by_slices(self.reference.eager, contents, self.rows, state, case)
        case.expected = [e.again(value) for e, value in zip(like.expected, tensors(list(eager)))]
        found = self.judge(case, values)
        if not all(row["ok"] for row in found):
            case.inputs, case.widened = contents(self.rows, 0), self._strict and not like.noise
            case.expected = self._expect(contents, self.rows, state, case, eager, Typical())
            excuse(case, self._exactly(case, state), masks=self.reference.masks)
            found = self.judge(case, values, own_numbers=own_numbers)
        return found


def _contents(oracle: Oracle, key: int, count: int, first: int) -> list[Any]:
    """``count`` rows, from the row ``first`` on, of the inputs in the timed call with ``key``."""
    full = [x for x in tensors(oracle.pool[0]) if 0 not in x.shape]
    pool = [[x for x in tensors(one) if 0 not in x.shape] for one in oracle.pool]
    mixed = zip(full, mixtures(full, pool, key, oracle.is_mixable))
    made = {
        id(x): content.rows(*(first, count) if x.ndim and len(x) == oracle.rows else (0, len(content.first))).view(
            x.shape[:1] and (-1, *x.shape[1:])
        )
        for x, content in mixed
    }
    return map_tensors(oracle.pool[0], lambda x: made.get(id(x), x))


def _refuse_half(path: str, dtypes: Collection[torch.dtype]) -> NoReturn:
    names = " and ".join(sorted(str(x).removeprefix("torch.") for x in dtypes))
    raise ProblemError(f"{path}: it is in {names}, which is judged by PyTorch's own error: use --accuracy pytorch")


def _refuse_others(path: str, says: str, value: Any) -> None:
    """Raise :class:`ProblemError` if ``value`` holds something that cannot cross between processes."""
    other = next((node["type"] for node in nodes(describe(value)[0]) if node["kind"] == "other"), None)
    if other is not None:
        raise ProblemError(
            f"{path}: {says} a {other}: kgen takes tensors, numbers, strings and None, alone or in "
            "lists, tuples and dicts"
        )


def _with_one_row(
    own: Sequence[Sequence[Sequence[int]]], of_one: Sequence[Sequence[Sequence[int]]]
) -> Sequence[Sequence[Sequence[int]]]:
    """Layouts of outputs with those of one row behind them, where forward returns as many tensors of one row."""
    return [[*x, *y] for x, y in zip(own, of_one)] if len(own) == len(of_one) else own


def _is_finite(value: Any) -> bool:
    return all(bool(part.isfinite().all()) for x in tensors(value) for _, (part,) in parts(x))
