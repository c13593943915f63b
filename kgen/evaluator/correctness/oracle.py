"""The oracle: the process that knows the seeds and the expected values, and measures errors against them.

It answers the parent's requests one by one. Inputs leave it in shared memory; expected values never do.
"""

import itertools
import platform
import random
import time
import timeit
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from math import inf
from typing import Any, Callable, Iterator, Sequence, TypeAlias

import torch

from kgen.devices.kinds import HOST, kind_of, torch_device
from kgen.devices.machine import resolve_device
from kgen.devices.runtime import runtime
from kgen.errors import DeviceError, KgenError, ProblemError
from kgen.evaluator.correctness import cudnn, moments
from kgen.evaluator.correctness.distributions import (DISTRIBUTIONS, FULL, HALF, NON_FINITE, REDUCED,
                                                      Distribution, batch_size, change_inputs, change_weights,
                                                      drawn_batches, joined, mixed, mixtures, seed_of, slice_batch)
from kgen.evaluator.correctness.reference import Reference, Run, State, construct, draw_weights, flags, generator_states, made_on, set_flags
from kgen.evaluator.correctness.tolerance import CLEAR_ERRORS, FIRST_INPUTS, INPUTS, Expected, Typical, as_real, parts
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.arena import Arena, Node, describe, is_inexact, leaves, map_tensors, nodes, span, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.problems.problem import Problem, load, resolve_mode, without_values
from kgen.protocol import Accuracy, LibraryProduct, Weights

POOL_BYTES = 1 << 30  #: bytes; of all input sets for timed calls
POOL_SETS = 4  #: at most; two at least
_LARGE_BYTES = 1 << 28  #: bytes of inputs and outputs; above it, all test cases but the problem's own have fewer rows
_FEW_BYTES = 1 << 26  #: bytes of inputs and outputs in these
_LARGE_OUTPUT = 1 << 30  #: bytes; larger outputs of own candidates share one memory, since these are judged one at a time
NOISY_RUNS = 3  #: float64 runs with float32 rounding, for each test case
_FLOAT64_COST = 4  # seconds of a float64 run per second of a forward in float32; where it is less, nothing is measured
_OF_A_CASE = 4  # noisy runs of one test case end at this part of all float64 seconds
_FILLS = (0.0, 1e30, -2e30)  #: replace NaN and infinities, to see which results depend on them
_SMALLER = 2.0**-20  #: factor of inputs, to see which NaN come from their size
_VANISHING = torch.finfo(torch.float32).tiny  #: a factor that may be zero in float32
_NO_MEMORY = (torch.OutOfMemoryError, MemoryError)
_SLICE_BYTES = 1 << 28  #: bytes of eager's peak; above it, float64 runs go by slices of the batch
_RESIDENT_BYTES = 1 << 30  #: bytes of expected values on a GPU beside those of the problem's own inputs; others move to the host
_CACHED_BYTES = 1 << 28  #: bytes of a GPU that torch keeps for later; more of them are freed after each answer
_FILE_BYTES = 1 << 40  #: bytes of a file; arenas are files in memory
_STATE = "state "  #: prefix of the names of buffers
_COPY_BYTES = 64 << 20
_SHORT_INPUT, _LONG_INPUT = 0.05, 2.0  # seconds of one input; above the first, few fresh ones are tried first; above the second, none
_TRIVIAL_ANSWERS = 4  # those that the health of a problem is judged by
#: Seconds of a short forward on one thread, and of processor time on all, above which one thread is not tried.
_SHORT_FORWARD, _LITTLE_WORK = 0.05, 0.3
_ANOTHER_SEED = "another seed's output"  # one of them
#: Inputs that are drawn when the output of another seed passes: a problem is healthy if one of them fails.
_FIRST_SEED, _MORE_SEEDS = 99 + POOL_SETS, 3
#: Bytes; a cold cache on the CPU. A server's last-level cache is larger than any problem, and flushing it takes longer
#: than a call.
_CPU_CACHE_BYTES = 32 << 20
#: Of mallopt: no block is mapped apart, and none is given back. Fresh pages cost more than arithmetic.
_KEEPS_FREED_MEMORY = {-4: 0, -1: 0x7FFFFFFF}

Reply: TypeAlias = tuple[dict[str, Any], list[int]]  #: an answer, and descriptors beside it
Contents: TypeAlias = Callable[[int, int], list[Any]]  #: inputs: so many rows, from one on


@dataclass(eq=False)
class Case:
    """One distribution in one mode: inputs, and the expected output and buffers."""

    distribution: Distribution
    mode: str
    rng: int
    inputs: list[Any]  # in the memory of the arena
    expected: list[Expected]
    aside: list[Expected] = field(default_factory=list)  # the same on the host, while it is on the device again
    arena: Arena | None = None
    node: Node | None = None  # of the inputs
    weights: str = "drawn"
    outputs: Node = field(default_factory=lambda: {"items": []})  # of [output, buffers], or [output] where names differ
    end: int = 0  # the byte behind them
    note: str = ""  # why it is skipped
    raises: bool = False  # whether the reference refuses these shapes
    widened: bool = False  # whether runs with roundings have added to the reference error, where a value is refused without
    noise: bool = True  # whether they may for a foreign output of a timed call
    spreads: list[moments.Spread | None] = field(default_factory=list)  # of random outputs, once they are asked for
    seconds: float = 0.0  # of its runs in float32 and float64; on a CPU, at most its processor time
    draws: "Draws | None" = None  # once a tensor of few errors is judged over several inputs


@dataclass(eq=False)
class Draws:
    """Fresh inputs of a case: two sets, which keys mix. ``numbers`` are those of the tensors whose expected values are
    kept, one list for each key."""

    sets: list[list[Any]]
    arena: Arena
    node: Node
    keys: list[int]
    numbers: list[int]
    expected: list[list[Expected]] = field(default_factory=list)


class Oracle:
    """The reference, its inputs and its expected values, for one problem on one device in one class of accuracy.
    ``strict`` adds the input distributions of foreign candidates. ``most_rows`` bounds the rows of all distributions but
    the first, and those in ``without`` are left out: how to judge with less memory. Float64 runs take about ``seconds``:
    where they are slow, test cases have fewer rows, or are left out."""

    def __init__(
        self, problem: Problem, device: str, accuracy: str, secret: int, construction: int, *, shared: bool,
        strict: bool, most_rows: int = 1 << 62, without: Sequence[str] = (), seconds: float = inf,
    ) -> None:
        self.accuracy = Accuracy(accuracy)
        self.kind, self.runtime, self.device = kind_of(device), runtime(device), torch_device(device)
        self.place = self.device if shared else HOST.name  # where arenas lie
        self._seconds = seconds
        self._spent = 0.0  # seconds in test cases
        self._secret = secret
        self._construction = construction
        self._path = problem.path
        loaded = load(problem)
        self.flags = flags()  # those of PyTorch, or of the problem's file
        self.reference = Reference(loaded, self.device, construction)
        if self.accuracy is not Accuracy.PYTORCH:
            set_flags(self.accuracy)  # the problem's file may have set others
        self.loaded = resolve_mode(loaded, self.reference.single)
        self.modes = self.loaded.problem.modes
        self.ties = self.reference.ties()
        self.unsaved: list[str] = []  # tensors of no state dict that forward writes
        self._states: dict[str, State] = {"drawn": self._draw_weights()}
        _refuse_others(self._path, "get_init_inputs() gives", loaded.init_inputs())
        self._given = self._get_inputs(0)  # reduced batches are slices of it: drawing takes long
        self._set_dtype()
        self.unsaved = self.reference.find_unsaved(self._given, self._states["drawn"], self.modes)
        if self.unsaved:  # its names are known now
            self._states["drawn"] = self._draw_weights()
        self.rows = batch_size(self._given)
        self._few_rows = self.kind.reduced_rows  # of a reduced batch
        every = DISTRIBUTIONS[:2] if self.accuracy is Accuracy.KERNELBENCH else (  # its own check tries no other values
            *DISTRIBUTIONS, *drawn_batches(secret, self.rows))
        self.distributions = tuple(d for d in every if (strict or d.own) and d.name not in without)
        self._cases: dict[tuple[str, str, str], Case] = {}
        self._resident: list[Case] = []  # those whose expected values are on the device, the latest used last
        self._outputs_of: dict[str, Arena] = {}
        self._strict = strict
        self._lent: Arena | None = None  # one memory for the outputs of several subjects
        self.output_bytes = 0
        self.layouts: dict[str, list[tuple[list[int], list[int]]]] = {}  # by mode: sizes and strides of output tensors
        self.views: dict[str, list[int]] = {}  # by mode: output tensors that share memory with an input or the state
        self.random: dict[str, bool] = {}  # by mode: whether other random numbers give other values
        self._draws: dict[str, list[list[Any]]] = {}  # by subject: each run's tensors
        self._unclear: dict[str, dict[int, torch.Tensor]] = {}  # by subject: values that fresh inputs decide about
        self._drawn_into: dict[str, Arena] = {}  # by subject: memory for its outputs from fresh inputs
        self.peak_bytes = 0  # of device memory, in one eager forward with its inputs and weights
        self._forward_seconds = 0.0
        self._forward_work = 0.0  # seconds of processor time
        noted = {mode: self._look_at(mode) for mode in self.modes}
        self._calls = {mode: of.calls for mode, of in noted.items()}  # of cuDNN
        self._errors_of_calls: dict[tuple[str, int], tuple[float, ...]] = {}  # by mode and rows
        if not self.output_bytes:
            raise ProblemError(f"{self._path}: forward returns no element: there is nothing to compare")
        self.free_cache()
        convolves, multiplies = any(self._calls.values()), any(of.matmuls for of in noted.values())
        in_tf32 = convolves or (multiplies and (self.accuracy is Accuracy.TF32 or torch.backends.cuda.matmul.allow_tf32))
        if self.accuracy in (Accuracy.PYTORCH, Accuracy.TF32) and not self.half and not in_tf32:
            self.accuracy = Accuracy.FP32  # the flags change nothing then, and results are shared with fp32
            set_flags(self.accuracy)
        size = describe(self._given)[1]
        self.bytes = size + self.output_bytes
        few = max(2, (self.rows * _FEW_BYTES // self.bytes - 1) | 1)  # odd: more than whole tiles
        self.most_rows = min(most_rows, few) if self.bytes > _LARGE_BYTES else most_rows
        found = [self._goes_by_rows(mode) for mode in self.modes]
        self.free_cache()
        self.batch_free = found[0][0]
        self._separable = {mode: alone and not self.random[mode] for mode, (_, alone) in zip(self.modes, found)}
        if self.batch_free:
            self.most_rows = min(self.most_rows, self._rows_in_time())
        self._make_pool(size)
        self.state_arena, self.state_node = Arena.holding(dict(self._states["drawn"]), self.place)
        self._states["drawn"] = self.state_arena.read(self.state_node, self.device)

    def free_cache(self) -> None:
        """Give back device memory that torch keeps for later, if it is much."""
        self.runtime.free(_CACHED_BYTES)

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
        _refuse_others(self._path, "the model returns", run[0])
        self.output_bytes = max(self.output_bytes, describe(list(run))[1])
        self.views[mode] = sorted(views)
        self.layouts[mode] = [(x["size"], x["stride"]) for x in nodes(describe([run[0]])[0]) if x["kind"] == "tensor"]
        self.random[mode] = self._is_random(mode, run)
        return noted

    def set_threads(self, threads: int) -> None:
        """Compute with one thread where a forward is short on it, and with ``threads`` otherwise. The threads of a short
        forward mostly wait for each other, and waiting threads keep processors from the first builds."""
        torch.set_num_threads(threads if self._forward_work > _LITTLE_WORK else 1)
        started = time.monotonic()
        if torch.get_num_threads() < threads:
            for mode in self.modes:
                self.reference.eager(self._given, self._states["drawn"], mode, 0)
            if time.monotonic() - started > _SHORT_FORWARD * len(self.modes):
                torch.set_num_threads(threads)

    def _errors_at(self, mode: str, rows: int) -> tuple[float, ...]:
        """The error of each call of cuDNN in a forward of so many rows, on random operands; none where TF32 is off."""
        if (mode, rows) not in self._errors_of_calls:
            calls = self._calls[mode]
            if calls and rows != self.rows:
                calls = self.reference.looked_at(slice_batch(self._given, rows), self._states["drawn"], mode)[2].calls
            self._errors_of_calls[mode, rows] = self.reference.products(calls)
        return self._errors_of_calls[mode, rows]

    def products(self) -> list[LibraryProduct]:
        """The calls of cuDNN, with their errors at the batch size of each test case. A batch that the problem refuses
        tells nothing."""
        found: list[LibraryProduct] = []
        for mode, calls in self._calls.items():
            errors = {}
            for rows in {self._rows(d) for d in self.distributions if calls} if self.reference.allows_tf32 else ():
                with suppress(RuntimeError, ValueError, TypeError):
                    errors[rows] = self._errors_at(mode, rows)
            found += cudnn.products(calls, errors) if errors else ()
        return found

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

    def _set_dtype(self) -> None:
        """Find the dtype in which eager rounds. Raises :class:`ProblemError` where half types meet another class."""
        found = {x.dtype for x in (*self._states["drawn"].values(), *tensors(self._given)) if x.is_floating_point()}
        self.half = bool(found & HALF)
        if self.half and self.accuracy is not Accuracy.PYTORCH:
            names = " and ".join(sorted(str(x).removeprefix("torch.") for x in found & HALF))
            raise ProblemError(f"{self._path}: it is in {names}, which is judged by PyTorch's own error: "
                               "use --accuracy pytorch")
        if len(found) == 1:
            self.reference.dtype = found.pop()

    def _make_pool(self, size: int) -> None:
        """Put the problem's inputs of ``size`` bytes and others into one arena. Of large inputs, others have fewer rows."""
        some = max(1, self.rows * POOL_BYTES // size) if self.batch_free and size > POOL_BYTES else self.rows
        count = max(2, min(POOL_SETS, POOL_BYTES // max(size, 1)))
        other = describe(slice_batch(self._given, some))[1]
        self.pool_arena = Arena.create(size + (count - 1) * other, self.place)
        items, end = [], 0
        for index in range(count):
            inputs = slice_batch(self._get_inputs(99 + index), some) if index else self._given
            node, end = describe(inputs, end)
            if end > self.pool_arena.size:
                raise ProblemError(f"{self._path}: get_inputs() gives tensors of other shapes each time")
            self.pool_arena.write(inputs, node)
            items.append(node)
        self.pool_arena.seal()
        self.pool_node: Node = {"kind": "list", "items": items}
        self.pool: list[list[Any]] = self.pool_arena.read(self.pool_node, self.device)
        self._given = self.pool[0]

    def _draw_weights(self, *, signs: bool = True) -> State:
        drawn = draw_weights(self.loaded, self.device, self._secret, signs=signs, others=self.unsaved)
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
        torch.manual_seed(0)
        if all(map(torch.equal, after, generator_states(devices))):
            return False
        other = self.reference.eager(self._given, self._states["drawn"], mode, 1)
        return not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(*map(tensors, (run, other))))

    def _get_inputs(self, number: int) -> list[Any]:
        def placed(x: torch.Tensor) -> torch.Tensor:
            x = x.detach().to(self.device)
            return x.contiguous() if span(x) < x.numel() or 0 in x.stride() else x  # no two elements share memory

        inputs = map_tensors(made_on(self.device, self._secret + 1000 * number + 7, self.loaded.inputs), placed)
        _refuse_others(self._path, "get_inputs() gives", inputs)
        for x in tensors(inputs):
            if x.is_floating_point() and x.dtype not in (torch.float32, *HALF):
                raise ProblemError(f"{self._path}: an input is {x.dtype}: kgen takes float32, bfloat16 and float16")
        return inputs

    def _goes_by_rows(self, mode: str) -> tuple[bool, bool]:
        """Whether the reference takes other batches and gives as many rows of output. Whether, besides, each of these
        depends on its row of the inputs alone, and no buffer changes."""
        count = self._reduced()
        part, state = count // 2 | 1, self._states["drawn"]
        if self.rows < 2:
            return False, False
        try:
            (whole, after), *others = (
                self.reference.eager(slice_batch(self._given, some, first), state, mode, 0)
                for first, some in ((0, count), (0, part), (part, count - part)))
            joint = tensors(joined((output for output, _ in others), count))
        except Exception:
            return False, False
        pairs = list(zip(tensors(whole), joint))
        if not all(x.shape == y.shape and len(x) == count for x, y in pairs):
            return False, False
        return True, all(torch.equal(value, state[name]) for name, value in after.items()) and all(
            _are_close(x, y) for x, y in pairs)

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
            self._keep_on_device(case)
        return case

    def _hold_inputs(self, case: Case) -> None:
        """Put the inputs of ``case`` into an arena. Of large ones, only those of the latest case stay."""
        if case.distribution.values == "given" and self._rows(case.distribution) == self.rows:
            case.arena, case.node, case.inputs = self.pool_arena, self.pool_node["items"][0], self._given
            return
        for other in self._cases.values():
            if not self.stays(other):
                other.inputs = []
                other.arena.close()
                other.arena = None
        case.arena, case.node = Arena.holding(self._changed(case), self.place)
        case.inputs = case.arena.read(case.node, self.device)

    def _changed(self, case: Case, given: list[Any] | None = None) -> list[Any]:
        """The problem's inputs, or others that are ``given``, changed as the distribution of ``case`` says."""
        distribution, inputs = case.distribution, slice_batch(given or self._given, self._rows(case.distribution))
        if describe(inputs)[1] < _LARGE_BYTES:  # on a GPU, each change would load kernels
            inputs = map_tensors(inputs, lambda x: x.cpu())
        seed, weights = self._secret + self.distributions.index(distribution), self.state(distribution, case.weights)
        return change_inputs(inputs, distribution.values, seed, weights.values())

    def _rows(self, distribution: Distribution) -> int:
        rows = {FULL: self.rows, REDUCED: self._few_rows}.get(distribution.batch, distribution.batch)
        if distribution is not self.distributions[0]:
            rows = min(rows, self.most_rows)
        return min(rows, self.rows) if self.batch_free else self.rows

    def stays(self, case: Case) -> bool:
        """Whether the inputs of ``case`` stay in memory."""
        return case.arena is self.pool_arena or case.arena is None or case.arena.size < _LARGE_BYTES

    def _keep_on_device(self, case: Case) -> None:
        """Bring a case's expected values to the device. Of too many, those used longest ago move to the host. Those of the
        problem's own inputs, which have all rows, move only for others of their kind."""
        if not self.kind.accelerator:
            return
        if any(e.exact.device.type == HOST.name for e in case.expected):
            case.aside, case.expected = case.expected, [e.to(self.device) for e in case.expected]
        others, own = [one for one in self._resident if one is not case], self.distributions[0]
        moving = [one for one in others if one.distribution is not own or case.distribution is own]
        self._resident = [*others, case]

        def held(one: Case) -> int:
            return sum(e.nbytes for e in one.expected)

        largest = max((held(one) for one in self._resident if one.distribution is own), default=0)
        most = largest + _RESIDENT_BYTES + self.output_bytes // 8
        while moving and sum(map(held, self._resident)) > most:
            oldest = moving.pop(0)
            self._resident.remove(oldest)
            oldest.expected = oldest.aside or [e.to(HOST.name) for e in oldest.expected]

    def _make_case(self, distribution: Distribution, mode: str, weights: str) -> Case:
        number = self.distributions.index(distribution)
        state = self.state(distribution, weights)
        case = Case(distribution, mode, seed_of(self._secret + number), [], [], weights=weights)
        if number and self._spent > self._seconds:
            case.note = "float64 runs take too long here"
            return case
        self._hold_inputs(case)
        inputs, where, started, worked = case.inputs, "", time.monotonic(), time.process_time()
        try:
            eager = self.reference.eager(inputs, state, mode, case.rng)
            case.outputs, case.end = describe(list(eager) if weights != Weights.CONSTRUCTED else [eager[0]])
            self.free_cache()
            where = " in float64"
            case.noise = (distribution.values, distribution.batch) != ("given", FULL) or self.kind.accelerator or not all(
                map(is_inexact, tensors([eager[0]])))
            # Where only the batch differs, eager's error on the problem's own inputs is part of the reference error.
            given = self.case(self.distributions[0].name, mode, weights).expected if distribution.shape_only else []
            typical = reduce(Typical.worst, (e.typical for e in given), Typical())
            contents = partial(slice_batch, inputs)
            case.expected = self._expect(contents, batch_size(inputs), state, case, eager, typical)
            case.seconds = time.monotonic() - started
            if not kind_of(self.device).accelerator:  # how busy it is decides nothing
                case.seconds = min(case.seconds, time.process_time() - worked)
            self._excuse(case, state)
            if self.random[mode]:  # many runs are judged together
                self._widen(case)
            for expected in case.expected:
                # With other random numbers, other elements are not finite.
                if self.random[mode] and expected.free is not None and 2 * len(expected.free) > expected.exact.numel():
                    expected.skipped = "over half of PyTorch's own output is not finite"
        except _NO_MEMORY:
            raise  # the case is tried again with fewer rows
        except Exception as error:
            if where and number == 0:  # all others would be skipped too
                fault = f"{self._path}: it does not run in float64, which candidates are measured against"
                raise ProblemError(f"{fault}: {type(error).__name__}: {' '.join(str(error).split()):.200}") from error
            case.note = f"the reference raises {type(error).__name__}{where} here"
            case.raises = distribution.shape_only and not where
        return case

    def state(self, distribution: Distribution, weights: str) -> State:
        how = distribution.weights if weights != Weights.CONSTRUCTED else "drawn"
        return change_weights(self._weights(weights), how, self.ties)

    def _expect(self, contents: Contents, rows: int, state: State, case: Case, eager_run: Run,
                typical: Typical) -> list[Expected]:
        """The expected values of ``case``, whose inputs are ``rows`` rows of ``contents``."""
        run = self._by_slices(self.reference.exact, contents, rows, state, case)
        found = (replace(Expected.begun(name + path, e64, e32), either=name == _STATE).settle(typical)
                 for name, exacts, eagers in zip(("output", _STATE), run, eager_run)
                 for (path, e64), (_, e32) in zip(leaves(exacts), leaves(eagers)) if isinstance(e64, torch.Tensor))
        large = self.bytes > _LARGE_BYTES and not self.random[case.mode]  # as in TF32, half of the memory is enough then
        return [expected.narrowed() if large else expected for expected in found]

    def _widen(self, case: Case) -> bool:
        """Add float64 runs with roundings to the errors of ``case``, whose inputs are held, once. Returns whether it did."""
        if case.widened or not case.expected:
            return False
        case.widened, case.aside, started = True, [], time.monotonic()
        rows = batch_size(case.inputs)
        everywhere = self.accuracy is Accuracy.TF32
        run = partial(self.reference.exact, noise=True, products=None if everywhere else self._errors_at(case.mode, rows))
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

    def _excuse(self, case: Case, state: State) -> None:
        """Find elements where more than one result is right. Finite inputs: a NaN that smaller inputs do not give may be
        anything, since the order of operations decides. Non-finite inputs: an element may be NaN where attention takes
        minus infinity for a mask. It may be finite where it does not depend on the non-finite inputs, or only through a
        product with zero. Behind factors whose product vanishes in float32, NaN and infinity are both right."""

        def exact(inputs: Any, **how: bool) -> list[torch.Tensor]:
            run = partial(self.reference.exact, **how)
            return tensors(self._by_slices(run, partial(slice_batch, inputs), batch_size(inputs), state, case))

        def change(how: Callable[[torch.Tensor], torch.Tensor]) -> Any:
            return map_tensors(case.inputs, lambda x: how(x.double() if x.dtype in HALF else x) if x.is_floating_point() else x)

        if case.distribution.values != NON_FINITE:
            lost = [expected.nan for expected in case.expected]
            if any(bool(places.any()) for places in lost):
                for expected, places, value in zip(case.expected, lost, exact(change(lambda x: x * _SMALLER))):
                    expected.excuse(places & torch.isfinite(as_real(value)))
            return
        if self.reference.masks:
            for expected, value in zip(case.expected, exact(case.inputs, bare=True)):
                expected.excuse(torch.isfinite(expected.exact) & ~torch.isfinite(as_real(value)))
        sparse = exact(case.inputs, sparse=True)
        runs = [exact(change(lambda x: x.nan_to_num(number, number, number))) for number in _FILLS]
        for expected, *found in zip(case.expected, sparse, *runs):
            values = [as_real(value) for value in found]
            if expected.free is not None and all(value.shape == expected.exact.shape for value in values):
                without, first, *others = (value.double().reshape(-1)[expected.free] for value in values)
                same = torch.stack([first == other for other in others]).all(0)
                expected.otherwise = first.where(same, without)
                expected.either = expected.either | torch.stack([
                    (other - first).abs() <= abs(number) * _VANISHING for other, number in zip(others, _FILLS[1:])]).all(0)

    def output_memory(self, subject: str, size: int) -> Arena:
        """``size`` bytes for the outputs of ``subject``. Own candidates with large ones, judged in turns, share memory."""
        lent = not self._strict and min(size, self.output_bytes) > _LARGE_OUTPUT
        if lent and self._lent is None:
            self._lent = Arena.create(size, self.place)
        self._outputs_of[subject] = self._lent if lent and self._lent else Arena.create(size, self.place)
        return self._outputs_of[subject]

    def forget(self, subject: str) -> None:
        """Free a subject's output memory and its runs."""
        self._draws.pop(subject, None)
        self._unclear.pop(subject, None)
        if (drawn := self._drawn_into.pop(subject, None)) is not None:
            drawn.close()
        memory = self._outputs_of.pop(subject, None)
        if memory is not None and memory is not self._lent:
            memory.close()

    def read_outputs(self, subject: str, node: Node, shift: int) -> list[torch.Tensor]:
        """The tensors that ``subject`` wrote ``shift`` bytes behind the places in ``node``. Small ones are copies."""
        memory = self._outputs_of[subject]
        found = [memory.read(leaf | {"offset": leaf["offset"] + shift}, self.device)
                 for leaf in nodes(node) if leaf["kind"] == "tensor"]
        return found if self.output_bytes > _LARGE_BYTES else [x.clone() for x in found]

    def judge(self, case: Case, values: list[torch.Tensor], *, own_numbers: bool = False) -> list[dict[str, Any]]:
        """Error figures of each output tensor and buffer. With ``own_numbers``, other random numbers are right too."""
        rows = [e.judge(value, self.accuracy) | {"output": e.name} for e, value in zip(case.expected, values)]
        if all(row["ok"] for row in rows):
            return rows
        if self._widen(case):
            return self.judge(case, values, own_numbers=own_numbers)
        if not own_numbers or not self.random[case.mode]:
            return rows
        return [row if spread is None else row | spread.judge([moments.sampled(value)], self.accuracy)
                for spread, row, value in zip(self._spreads(case, moments.FEW), rows, values)]

    def unclear(self, subject: str, case: Case, values: list[torch.Tensor], rows: list[dict[str, Any]]) -> int:
        """How many fresh inputs must tell whether the tensors of few errors are right; 0 where ``rows`` decide. Their
        ``values`` are kept. Random values are judged by many runs in another way."""
        numbers = [number for number, (e, row) in enumerate(zip(case.expected, rows)) if not e.is_clear(row)]
        wrong = any(not row["ok"] for number, row in enumerate(rows) if number not in numbers)
        own = case.distribution is self.distributions[0]
        costly = case.seconds > _LONG_INPUT or (self.bytes > _LARGE_BYTES and not own)  # the pool of its own inputs is there
        if not numbers or wrong or costly or self.random[case.mode] or self.accuracy is Accuracy.KERNELBENCH:
            return 0
        self._unclear[subject] = {number: values[number].clone() for number in numbers}
        tiny = any(case.expected[number].independent < CLEAR_ERRORS for number in numbers)
        return (INPUTS if own and tiny and case.seconds < _SHORT_INPUT else FIRST_INPUTS) - 1

    def draws(self, case: Case) -> Draws:
        """The fresh inputs of a case: mixtures of two input sets that are changed like its own."""
        if case.draws is None:
            arena, node, sets = self.pool_arena, self.pool_node, self.pool
            if (case.distribution.values, self._rows(case.distribution)) != ("given", self.rows):
                arena, node = Arena.holding([self._changed(case, given) for given in self.pool[:2]], self.place)
                sets = arena.read(node, self.device)
            keys = random.Random(self._secret + case.rng)
            few = [number for number, e in enumerate(case.expected[: _count(case.outputs)]) if e.may_be_pooled]
            case.draws = Draws(sets, arena, node, [keys.getrandbits(48) for _ in range(INPUTS - 1)], few)
        return case.draws

    def draw_memory(self, subject: str, case: Case) -> Arena:
        """Memory for the tensors of few errors that ``subject`` gives for the fresh inputs of a case."""
        draws = self.draws(case)
        size = max(1, _few_leaves(case, draws.numbers)[1]) * len(draws.keys)
        memory = self._drawn_into.get(subject)
        if memory is None or memory.size < size:
            if memory is not None:
                memory.close()
            memory = self._drawn_into[subject] = Arena.create(size, self.place)
        return memory

    def judge_draws(self, subject: str, case: Case, count: int) -> tuple[list[dict[str, Any]], int]:
        """Figures over the case's own input and ``count`` fresh ones of each tensor that was unclear, by number, and how
        many inputs more must tell."""
        draws, kept, memory = self.draws(case), self._unclear[subject], self._drawn_into[subject]
        while len(draws.expected) < count:
            draws.expected.append(self._expect_draw(case, draws, draws.keys[len(draws.expected)]))
        leaves_of, step = _few_leaves(case, draws.numbers)
        found, more = [], 0
        for place, (number, leaf) in enumerate(zip(draws.numbers, leaves_of)):
            if number in kept:
                values = [memory.read(leaf | {"offset": leaf["offset"] + turn * step}, self.device) for turn in range(count)]
                expected = case.expected[number]
                row = expected.pooled([kept[number], *values], [one[place] for one in draws.expected[:count]])
                found.append({"number": number} | row)
                if 1 + count < INPUTS and not expected.is_clear_together(row):
                    more = INPUTS - 1
        return found, more

    def _expect_draw(self, case: Case, draws: Draws, key: int) -> list[Expected]:
        """The expected values of the tensors of few errors for the inputs that ``key`` mixes."""
        inputs = mixed(draws.sets, key)
        state = self.state(case.distribution, case.weights)
        exact, eager = (tensors(list(run(inputs, state, case.mode, seed_of(key))))
                        for run in (self.reference.exact, self.reference.eager))
        return [Expected.begun("", exact[number], eager[number]) for number in draws.numbers]

    def draw(self, subject: str, case: Case, values: list[torch.Tensor], count: int) -> dict[str, Any]:
        """Keep a run of a subject, the first under the case's own seed. Of ``count`` runs, the figures of each tensor,
        and whether their random numbers are PyTorch's."""
        spreads, runs = self._spreads(case, moments.MANY), self._draws.setdefault(subject, [])
        runs.append([e.judge(value, self.accuracy) if spread is None else moments.sampled(value)
                     for spread, e, value in zip(spreads, case.expected, values)])
        if len(runs) < count:
            return {}
        every = list(zip(spreads, case.expected, zip(*self._draws.pop(subject))))
        rows = [(moments.worst(found) if spread is None else spread.judge(found, self.accuracy)) | {"output": e.name}
                for spread, e, found in every]
        same = any(spread.same_numbers(found[0], moments.sampled(e.exact)) for spread, e, found in every if spread)
        return {"rows": rows, "same_numbers": same}

    def _spreads(self, case: Case, eager_runs: int) -> list[moments.Spread | None]:
        """The spread of the random values of ``case``, from runs of the reference under secret seeds."""
        if not case.spreads:
            state, seeds = self.state(case.distribution, case.weights), itertools.count(self._secret + 1)
            exact, eager = (
                [list(map(moments.sampled, tensors(list(run(case.inputs, state, case.mode, next(seeds))))))
                 for _ in range(count)]
                for run, count in ((self.reference.exact, moments.EXACT), (self.reference.eager, eager_runs)))
            case.spreads = [None if e.skipped else moments.Spread.of(*found)
                            for e, *found in zip(case.expected, zip(*exact), zip(*eager))]
        return case.spreads

    def judge_timed(self, key: int, like: Case, values: list[torch.Tensor], *, own_numbers: bool) -> list[dict[str, Any]]:
        """Error figures of the timed call with ``key``; the test case ``like`` has all rows. PyTorch's own output is
        expected, since it is as fast as the call; its error in that test case sets the tolerance. A refused output is
        judged again in full, against float64 on the call's own inputs. A foreign one has roundings only if ``like`` has,
        since it may be another one than it was in validation."""
        case = replace(like, rng=seed_of(key), inputs=[], spreads=[], widened=True)
        contents, state = partial(self._contents, key), self._weights(like.weights)
        eager = self._by_slices(self.reference.eager, contents, self.rows, state, case)
        case.expected = [e.again(value) for e, value in zip(like.expected, tensors(list(eager)))]
        found = self.judge(case, values)
        if not all(row["ok"] for row in found):
            case.inputs, case.widened = contents(self.rows, 0), self._strict and not like.noise
            case.expected = self._expect(contents, self.rows, state, case, eager, Typical())
            self._excuse(case, state)
            found = self.judge(case, values, own_numbers=own_numbers)
        return found

    def _contents(self, key: int, count: int, first: int) -> list[Any]:
        """``count`` rows, from the row ``first`` on, of the inputs in the timed call with ``key``."""
        full = [x for x in tensors(self._given) if 0 not in x.shape]
        mixed = zip(full, mixtures(full, [[x for x in tensors(one) if 0 not in x.shape] for one in self.pool], key))
        made = {id(x): content.rows(*(first, count) if x.ndim and len(x) == self.rows else (0, len(content.first))).view(
            x.shape[:1] and (-1, *x.shape[1:])) for x, content in mixed}
        return map_tensors(self._given, lambda x: made.get(id(x), x))

    def health(self) -> list[str]:
        """The trivial answers that pass in every test case."""
        given = [d for d in self.distributions if d.values == "given" and not d.shape_only]
        first = given[-1] if self.bytes > _LARGE_BYTES else given[0]  # of large inputs, one with fewer rows
        others = {mode: self._outputs_of_another_seed(first, mode) for mode in self.modes}
        passing: dict[str, bool] = {}  # by answer
        for name, mode in self.names():
            case = self.case(name, mode, "drawn", judged=True)
            self._widen(case)
            for number, expected in enumerate(case.expected):
                if not expected.name.startswith("output") or expected.eager is not None:
                    continue  # NaN and infinities refuse trivial answers too easily
                other = {_ANOTHER_SEED: [others[mode][number]]} if case.distribution is first else {}
                for answer, values in (_trivial_answers(expected.exact, case.inputs) | other).items():
                    if values and passing.setdefault(answer, True):
                        passing[answer] = any(expected.judge(value, self.accuracy)["ok"] for value in values)
                        if answer == _ANOTHER_SEED and passing[answer]:
                            passing[answer] = self._passes_with_each_seed(expected, first, mode, number)
            if len(passing) == _TRIVIAL_ANSWERS and not any(passing.values()):
                break
        return [answer for answer, passes in passing.items() if passes]

    def _passes_with_each_seed(self, expected: Expected, distribution: Distribution, mode: str, number: int) -> bool:
        """Whether the output ``number`` of a few more seeds passes for ``expected``, too, for each of them. A single number,
        such as a loss, passes by chance: about once in 10,000 seeds in float32, and more often in half types."""
        seeds = range(_FIRST_SEED, _FIRST_SEED + _MORE_SEEDS)
        outputs = (self._outputs_of_another_seed(distribution, mode, seed)[number] for seed in seeds)
        return all(expected.judge(value, self.accuracy)["ok"] for value in outputs)

    def _outputs_of_another_seed(self, distribution: Distribution, mode: str, seed: int | None = None) -> list[torch.Tensor]:
        """The output for another input set: one of the pool, or one drawn with ``seed``. Large inputs have fewer rows in the
        pool, and other rows stand for them."""
        rows = self._rows(distribution)
        drawn = self.pool[1] if seed is None else self._get_inputs(seed)
        few = batch_size(drawn) < rows
        inputs = slice_batch(self._given, rows, self.rows - rows) if few else slice_batch(drawn, rows)
        found = tensors(self.reference.eager(inputs, self.state(distribution, "drawn"), mode, 0)[0])
        for expected, value in zip(self.case(distribution.name, mode, "drawn", judged=True).expected, found):
            if as_real(value).shape != expected.exact.shape:
                raise ProblemError(f"{self._path}: the shape of what the model returns depends on the values of its inputs, "
                                   "which kgen does not judge: pad it to a fixed size")
        return found


def _count(outputs: Node) -> int:
    """The number of tensors that a node describes."""
    return sum(leaf["kind"] == "tensor" for leaf in nodes(outputs))


def _few_leaves(case: Case, numbers: list[int]) -> tuple[list[Node], int]:
    """Where the tensors of few errors lie, behind each other without gaps in a tensor, and the bytes of all of them."""
    every = [leaf for leaf in nodes(case.outputs) if leaf["kind"] == "tensor"]
    plain = [torch.empty(every[n]["size"], dtype=getattr(torch, every[n]["dtype"]), device="meta") for n in numbers]
    node, end = describe(plain)
    return [leaf | {"device": every[n]["device"]} for n, leaf in zip(numbers, node["items"])], end


def _trivial_answers(exact: torch.Tensor, inputs: list[Any]) -> dict[str, list[torch.Tensor]]:
    """Values that need no computation, by name. The mean is none of one element, and none of integers."""
    zeros = exact.new_zeros(()).expand(exact.shape)
    mean = [exact.mean().expand(exact.shape)] if exact.is_floating_point() and exact.numel() > 1 else []
    passed = [x.to(exact.device) for x in tensors(inputs) if x.shape == exact.shape and x.is_floating_point()]
    return {"zeros": [zeros], "the mean": mean, "the input passed through": passed or [zeros]}


def _are_close(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two results of one computation in different order agree; in half types within some roundings."""
    half, x, y = x.dtype in HALF and torch.finfo(x.dtype).eps, as_real(x).double(), as_real(y).double()
    size = float(x.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) if half and x.numel() else 0.0
    return torch.allclose(x, y, rtol=max(1e-3, 4 * half), atol=max(1e-5, 4 * half * size), equal_nan=True)


def _refuse_others(path: str, says: str, value: Any) -> None:
    """Raise :class:`ProblemError` if ``value`` holds something that cannot cross between processes."""
    other = next((node["type"] for node in nodes(describe(value)[0]) if node["kind"] == "other"), None)
    if other is not None:
        raise ProblemError(f"{path}: {says} a {other}: kgen takes tensors, numbers, strings and None, alone or in "
                           "lists, tuples and dicts")


def _is_finite(value: Any) -> bool:
    return all(bool(part.isfinite().all()) for x in tensors(value) for _, (part,) in parts(x))


def _tensor_bytes(problem: Problem) -> int:
    """Bytes of the problem's inputs, weights, and outputs as large as the inputs, found on the meta device. Its forward
    there would load torch's compiler. 0 where that fails: the problem itself is constructed next, and says why."""
    try:
        loaded = load(problem)
        model, inputs = without_values(loaded.model), without_values(loaded.inputs)
        state = [*model.parameters(), *model.buffers()]
        return sum(x.nbytes for x in state) + 2 * sum(x.nbytes for x in tensors([inputs]))
    except Exception:
        return 0


def _cpu_copy_rate() -> float:
    """The rate of a large copy: gigabytes (1e9) read and written per second, the best of five."""
    a, b = torch.ones(_COPY_BYTES // 4), torch.ones(_COPY_BYTES // 4)
    return 2 * _COPY_BYTES / 1e9 / min(timeit.repeat(lambda: b.copy_(a), repeat=5, number=1))


class _Desk:
    """Answers the parent's requests, each with a method. Those before ``open`` need no problem."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._device = options["device"]
        self._problem = Problem(**options["problem"])
        self._oracle: Oracle

    def reply(self, request: dict[str, Any]) -> Reply:
        do = request.pop("do")
        try:
            return getattr(self, do)(**request)
        except (Exception, SystemExit) as error:  # the problem's code may call exit()
            traceback.print_exc()
            known, name = isinstance(error, KgenError), type(error).__name__
            text = str(error) if known else f"{name}: {' '.join(str(error).split())[:300]}"
            fault = do == "open" and not known
            return {"error": f"{self._problem.path}: the reference raised {text}" if fault else text,
                    "problem": fault or isinstance(error, ProblemError), "device": isinstance(error, DeviceError),
                    "memory": isinstance(error, _NO_MEMORY)}, []

    def key(self) -> Reply:
        """The name of the device's lock; nothing runs on the device to find it out. With several GPUs, ``alone`` is the
        environment in which a process sees this one alone: one that starts all of two takes twice as long."""
        key, alone = runtime(resolve_device(self._device)).alone(self._device)
        return {"key": key, "alone": alone}, []

    def about(self) -> Reply:
        """Versions, the device's limits, and the rate of a large copy in gigabytes (1e9) read and written per second."""
        runtime(self._device).select(self._device)
        accelerator = kind_of(self._device).accelerator
        hardware = runtime(self._device).hardware(self._device)
        return {"torch": torch.__version__, "python": platform.python_version(), "host": platform.node(),
                "hardware": asdict(hardware), "copy_rate": hardware.copy_gbytes_per_second or _cpu_copy_rate(),
                "flush_bytes": 2 * (hardware.l2_bytes if accelerator else _CPU_CACHE_BYTES),
                "least_bytes": _tensor_bytes(self._problem) if accelerator else 0}, []

    def open(self) -> Reply:
        given = self._options
        self._oracle = oracle = Oracle(
            self._problem, self._device, given["accuracy"], given["secret"], given["construction"], shared=given["shared"],
            strict=given["strict"], most_rows=given["rows"], without=given["without"], seconds=given["seconds"])
        if not kind_of(self._device).accelerator:
            oracle.set_threads(given["threads"])
        init, init_node = Arena.holding(oracle.loaded.init_inputs())
        return {
            "mode": oracle.loaded.problem.mode, "accuracy": oracle.accuracy, "half": oracle.half, "cases": oracle.names(),
            "bytes": oracle.bytes, "output_bytes": oracle.output_bytes, "peak_bytes": oracle.peak_bytes,
            "rows": oracle.most_rows, "flags": oracle.flags, "products": [asdict(one) for one in oracle.products()],
            "layouts": oracle.layouts,
            "load": {"views": oracle.views, "ties": oracle.ties, "init": init_node, "state": oracle.state_node,
                     "unsaved": oracle.unsaved,
                     "state_bytes": oracle.state_arena.size},
            "prepare": {"pool": oracle.pool_node, "pool_bytes": oracle.pool_arena.size},
        }, [oracle.state_arena.fd, init.fd, oracle.pool_arena.fd]

    def inputs(self, *, case: str, mode: str, weights: str) -> Reply:
        found = self._oracle.case(case, mode, weights)
        reply = {"note": found.note, "raises": found.raises, "rng": found.rng, "change": found.distribution.weights,
                 "random": self._oracle.random[mode]}
        if found.note and not found.raises:
            return reply, []
        assert found.arena is not None
        sizes = [node["size"] for node in nodes(found.outputs) if node["kind"] == "tensor"]
        return reply | {"inputs": found.node, "bytes": found.arena.size, "outputs": found.outputs, "sizes": sizes,
                        "end": found.end, "stays": self._oracle.stays(found)}, [found.arena.fd]

    def output(self, *, subject: str, bytes: int) -> Reply:
        memory = self._oracle.output_memory(subject, bytes)
        return {"bytes": memory.size}, [memory.fd]

    def judge(
        self, *, subject: str, outputs: Node, shift: int, case: str, mode: str, weights: str, key: int | None = None,
        count: int = 0, own_numbers: bool = False,
    ) -> Reply:
        values = self._oracle.read_outputs(subject, outputs, shift)
        found = self._oracle.case(case, mode, weights, judged=True)
        if count:
            return self._oracle.draw(subject, found, values, count), []
        if key is not None:
            return {"rows": self._oracle.judge_timed(key, found, values, own_numbers=own_numbers)}, []
        rows = self._oracle.judge(found, values, own_numbers=own_numbers)
        return {"rows": rows, "unclear": self._oracle.unclear(subject, found, values, rows)}, []

    def draws(self, *, subject: str, case: str, mode: str, weights: str) -> Reply:
        found = self._oracle.case(case, mode, weights, judged=True)
        draws, memory = self._oracle.draws(found), self._oracle.draw_memory(subject, found)
        leaves_of, step = _few_leaves(found, draws.numbers)
        return {"sets": draws.node, "bytes": draws.arena.size, "keys": draws.keys, "rngs": [*map(seed_of, draws.keys)],
                "numbers": draws.numbers, "outputs": leaves_of, "step": step, "output_bytes": memory.size,
                "sizes": [leaf["size"] for leaf in leaves_of]}, [draws.arena.fd, memory.fd]

    def judge_draws(self, *, subject: str, case: str, mode: str, weights: str, count: int) -> Reply:
        rows, more = self._oracle.judge_draws(subject, self._oracle.case(case, mode, weights, judged=True), count)
        return {"rows": rows, "more": more}, []

    def forget(self, *, subject: str) -> Reply:
        self._oracle.forget(subject)
        return {}, []

    def health(self) -> Reply:
        return {"passed": self._oracle.health()}, []


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The oracle's process: answer requests until the parent closes the channel."""
    sandbox.limit(None, _FILE_BYTES)
    if options.get("sandboxed"):
        if kind_of(options["device"]).accelerator:
            torch.ones(1, device=torch_device(resolve_device(options["device"])))  # CUDA starts before limits are set
        sandbox.confine(sandbox.foreign(options, address_space=None, file_bytes=_FILE_BYTES))
    for option, value in _KEEPS_FREED_MEMORY.items():
        sandbox.tune_allocations(option, value)
    torch.set_num_threads(options["threads"])
    set_flags(options["accuracy"])
    desk = _Desk(options)
    while True:
        answer = desk.reply(channel.receive()[0])
        runtime(options["device"]).free(_CACHED_BYTES)  # before the answer: freeing would slow the timed call that may follow it
        channel.send(*answer)
