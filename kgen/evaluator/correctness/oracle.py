"""The oracle: the process that knows the seeds and the right answers, and measures errors against them.

It answers the parent's requests one by one. Inputs leave it in memory files; expected values never do.
"""

from __future__ import annotations

import ctypes
import platform
import random
import time
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Callable, Mapping

import torch

from kgen.errors import DeviceError, KgenError, ProblemError
from kgen.evaluator.correctness import moments
from kgen.evaluator.correctness.distributions import (
    FULL, KERNELBENCH_REGIMES, REDUCED, REDUCED_ROWS, REGIMES, STEPS, Regime, batch_size, change_inputs, change_weights,
    drawn_batches, moved_buffers, pattern, recombine, seed_of, slice_batch,
)
from kgen.evaluator.correctness.reference import Reference, State, draw_weights, set_flags
from kgen.evaluator.correctness.tolerance import Leaf, Typical, as_real
from kgen.evaluator.protocol import NON_FINITE, Accuracy
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.arena import Arena, Node, describe, is_inexact, leaves, map_tensors, nodes, span, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.runtime.device_arena import DeviceArena, holding
from kgen.hardware import probe
from kgen.machine import resolve_device
from kgen.problem import Problem, load, resolve_mode

POOL_BYTES = 1 << 30  #: input sets for timed calls, all together
POOL_SETS = 4
NOISY_RUNS = 3
#: Where a part of the rows, or columns, have one error that all their elements share, so many more: of three, none may
#: tell how large it is in one of thousands. Larger outputs make do with three: runs take time, and memory.
MORE_NOISY_RUNS, _SHARED_LINES = 6, 0.05
_FEW_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
_FILLS = (0.0, 1e30, -2e30)  #: in place of NaN and infinities, to see what depends on them: so far apart, all does
_SMALLER = 2.0**-20  #: times inputs, to see what is NaN because they are large
_VANISHING = torch.finfo(torch.float32).tiny  #: a factor that may be zero in float32
_COUNTED_BEFORE = 3  #: steps that a counter has counted when weights are drawn
_STATE = "state "  #: what the names of buffers begin with
_COPY_BYTES = 64 << 20
#: What a cold cache means on the CPU: the last-level cache of a server is larger than any problem, and streaming
#: through it takes longer than a call.
_CPU_CACHE_BYTES = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt


@dataclass
class Case:
    """One regime in one mode: inputs, and what is expected of the output and of the buffers after it."""

    regime: Regime
    mode: str
    rng: int
    inputs: list[Any]
    leaves: list[Leaf]
    outputs: Node | None = None  # what [output, buffers] looks like
    end: int = 0  # the byte behind them
    note: str = ""  # why it is skipped
    raises: bool = False  # the reference itself refuses these shapes


class Oracle:
    """The reference, its inputs and what it expects, for one problem on one device in one class of accuracy."""

    def __init__(
        self, problem: Problem, device: str, accuracy: str, secret: int, construction: int, *, shared: bool
    ) -> None:
        self.accuracy = Accuracy(accuracy)
        self.device = device
        self.shared = shared
        self._secret = secret
        self._construction = construction
        loaded = load(problem)
        self.reference = Reference(loaded, device, construction)
        self.loaded = resolve_mode(loaded, self.reference.single)
        self.modes = self.loaded.problem.modes
        self.ties = self.reference.ties()
        self._states: dict[str, State] = {
            "drawn": self._draw_weights(),
            "constructed": {k: v.detach().clone() for k, v in self.reference.single.state_dict().items()},
        }
        _refuse_others(loaded.problem.path, "get_init_inputs() gives", loaded.init_inputs())
        self._given = self._get_inputs(0)  # in full; regimes with fewer rows take theirs of them: drawing takes long
        rows = batch_size(self._given)
        self._regimes = KERNELBENCH_REGIMES if self.accuracy is Accuracy.KERNELBENCH else (
            *REGIMES, *drawn_batches(secret, rows or 0))
        generator = random.Random(f"what a worker may know {secret}")
        self._numbers = [generator.getrandbits(48) for _ in self._regimes]  # seeds, as large as those of timed calls
        self._turn = generator.getrandbits(40) * STEPS
        self._cases: dict[tuple[str, str, str], Case] = {}
        self._arenas: dict[tuple[str, str, str], tuple[Arena | DeviceArena, Node]] = {}
        self._known_typical: dict[tuple[str, str, str], Typical] = {}
        self._known_columns: dict[tuple[str, str, str], list[Leaf]] = {}
        self._pool: list[list[Any]] = []
        self.pool_arena: tuple[Arena | DeviceArena, Node] | None = None
        self._outputs_of: dict[str, Arena | DeviceArena] = {}
        self.output_bytes = 0
        self.views: dict[str, list[int]] = {}  # by mode: tensors of the output that share memory with an input or the state
        self.counters: list[str] = []  # buffers that count steps
        self.random: dict[str, bool] = {}  # by mode: whether other random numbers give other values
        self._spreads: dict[tuple[str, str, str, int], list[moments.Spread | None]] = {}
        self._zeros: dict[tuple[str, str, str], list[torch.Tensor]] = {}  # of a subject's and PyTorch's last timed output
        self._draws: dict[str, list[list[Any]]] = {}  # of a subject: for each tensor, what each run gave
        for mode in self.modes:
            run, views = self.reference.eager_with_views(self._given, self._states["drawn"], mode, 0)
            if not all(bool(x.isfinite().all()) for x in _tensor_leaves(run)):  # as behind a root of a scale
                self._states["drawn"] = self._draw_weights(signs=False)
                run, views = self.reference.eager_with_views(self._given, self._states["drawn"], mode, 0)
            _refuse_others(loaded.problem.path, "the model returns", run[0])
            self.output_bytes = max(self.output_bytes, describe(list(run))[1])
            self.views[mode] = sorted(views)
            self.random[mode] = self._is_random(mode, run)
            if mode == "train":
                self._find_counters(run[1])
        self.batch_free = rows is not None and rows > 1 and self._takes_other_batches(rows)

    def _draw_weights(self, *, signs: bool = True) -> State:
        return change_weights(draw_weights(self.loaded, self.device, self._secret, signs=signs), "drawn", ties=self.ties)

    def _find_counters(self, after: Mapping[str, torch.Tensor]) -> None:
        """Take buffers of one integer that a forward changed, to what ``after`` says, for counters: when weights are
        drawn, they have counted some steps already."""
        before = self._states["drawn"]
        found = [name for name, value in after.items()
                 if not value.ndim and not is_inexact(value) and int(value) != int(before[name])]
        if not found:
            return
        moved = before | {name: before[name] + _COUNTED_BEFORE for name in found}
        try:
            for state in (moved, change_weights(moved, "rolled", counters=found)):
                self.reference.eager(self._given, state, "train", 0)
        except Exception:
            return  # what it counts has an end
        self._states["drawn"], self.counters = moved, found

    def _is_random(self, mode: str, run: tuple[Any, Any]) -> bool:
        """Whether the forward that gave ``run``, the last one, drew numbers, and gives other values with others."""
        after = _generators(self.device)
        torch.manual_seed(0)
        if all(map(torch.equal, after, _generators(self.device))):
            return False
        other = self.reference.eager(self._given, self._states["drawn"], mode, 1)
        return not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(*map(_tensor_leaves, (run, other))))

    def _get_inputs(self, number: int) -> list[Any]:
        torch.manual_seed(self._secret + 1000 * number + 7)
        inputs = map_tensors(self.loaded.inputs(), lambda x: _apart(x.detach().cpu()))
        _refuse_others(self.loaded.problem.path, "get_inputs() gives", inputs)
        for _, leaf in leaves(inputs):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float32:
                raise ProblemError(f"{self.loaded.problem.path}: an input is {leaf.dtype}; only float32 is supported")
        return inputs

    def _takes_other_batches(self, rows: int) -> bool:
        """Whether the reference takes a smaller batch and gives as many rows of output."""
        fewer = max(1, min(rows - 1, REDUCED_ROWS[self.device.partition(":")[0]]))
        try:
            output, _ = self.reference.eager(
                slice_batch(self._given, fewer), self._states["drawn"], self.modes[0], 0)
        except Exception:
            return False
        found = [leaf for _, leaf in leaves(output) if isinstance(leaf, torch.Tensor)]
        return all(leaf.ndim and leaf.shape[0] == fewer for leaf in found)

    def regimes(self) -> list[tuple[str, str]]:
        """Names of the regimes with their modes, in the order in which they are tried."""
        rows = batch_size(self._given) or 0
        kept = [r for r in self._regimes if not r.shape_only or (self.batch_free and r.batch < rows)]
        return [(regime.name, mode) for regime in kept for mode in self.modes]

    def case(self, name: str, mode: str, weights: str) -> Case:
        """The case of a regime and a mode, under weights drawn anew or as constructed."""
        key = (name, mode, weights)
        if key not in self._cases:
            regime = next(regime for regime in self._regimes if regime.name == name)
            self._cases[key] = self._make_case(regime, mode, weights)
        return self._cases[key]

    def _make_case(self, regime: Regime, mode: str, weights: str) -> Case:
        number, like = self._regimes.index(regime), pattern(regime, self._regimes)
        rows = {FULL: None, REDUCED: REDUCED_ROWS[self.device.partition(":")[0]]}.get(like.batch, like.batch)
        if rows is not None and self.batch_free and rows < (batch_size(self._given) or 0):
            inputs = slice_batch(self._given, rows)
            inputs = map_tensors(inputs, lambda x: x.clone(memory_format=torch.preserve_format))
        else:
            inputs = self._get_inputs(self._regimes.index(like) + 10)
        state = self.state(regime, weights)
        inputs = change_inputs(inputs, regime.values, self._secret + number, state.values())
        case = Case(regime, mode, self._numbers[number], inputs, [])
        try:
            eager = self.reference.eager(inputs, state, mode, case.rng)
            case.outputs, case.end = describe(list(eager))
        except Exception as error:
            case.note = f"the reference raises {type(error).__name__} here"
            case.raises = regime.shape_only
            return case
        try:
            case.leaves = self._expect(inputs, state, mode, case.rng, eager, self._typical(regime, mode, weights),
                                       noise=(regime.values, regime.batch) != ("given", FULL) or self.device != "cpu"
                                       or not all(map(is_inexact, tensors([eager[0]]))))
            self._excuse(case, state)
            for leaf in case.leaves:
                # With other random numbers, other elements are not finite.
                if self.random[mode] and leaf.free is not None and 2 * len(leaf.free) > leaf.exact.numel():
                    leaf.skipped = "over half of PyTorch's own output is not finite"
        except Exception as error:
            if regime is REGIMES[0]:  # all others would be skipped too, and nothing judged
                where = f"{self.loaded.problem.path}: it does not run in float64, which candidates are measured against"
                raise ProblemError(f"{where}: {type(error).__name__}: {' '.join(str(error).split()):.200}") from error
            case.note = f"the reference raises {type(error).__name__} in float64 here"
        return case

    def state(self, regime: Regime, weights: str) -> State:
        """The state dict in a regime."""
        how, turn = self.change(regime)
        return change_weights(self._states[weights], how if weights == "drawn" else "drawn", turn, self.counters, self.ties)

    def change(self, regime: Regime) -> tuple[str, int]:
        """How a regime changes the weights, and the number by which :func:`change_weights` does."""
        like = pattern(regime, self._regimes)
        until = self._regimes[: self._regimes.index(like) + 1]
        return like.weights, self._turn + sum(other.weights == like.weights for other in until)

    def _typical(self, regime: Regime, mode: str, weights: str) -> Typical:
        """Eager's error on the problem's own inputs, which anchors regimes that differ in shape only."""
        if not regime.shape_only:
            return Typical()
        key = (regime.values, mode, weights)
        if key not in self._known_typical:
            found = [leaf.typical for leaf in self.case(REGIMES[0].name, mode, weights).leaves]
            self._known_typical[key] = reduce(Typical.worst, found, Typical())
        return self._known_typical[key]

    def _expect(
        self, inputs: list[Any], state: State, mode: str, rng: int, eager_run: tuple[Any, Any], typical: Typical,
        *, noise: bool,
    ) -> list[Leaf]:
        eager, eager_buffers = eager_run
        exact, exact_buffers = self.reference.exact(inputs, state, mode, rng)
        noisy: list[tuple[Any, dict[str, torch.Tensor]]] = []

        def found(runs: int) -> list[Leaf]:
            noisy.extend(self.reference.exact(inputs, state, mode, rng, noise=True) for _ in range(runs))
            outputs, buffers = [output for output, _ in noisy], [after for _, after in noisy]
            return [*_expected("output", exact, eager, outputs, typical),
                    *_expected(_STATE, exact_buffers, eager_buffers, buffers, typical)]

        first = found(NOISY_RUNS if noise else 0)
        few = sum(leaf.exact.numel() for leaf in first) <= _FEW_ELEMENTS[self.device.partition(":")[0]]
        if few and any(leaf.shared > _SHARED_LINES for leaf in first):
            return found(MORE_NOISY_RUNS)
        return first

    def _excuse(self, case: Case, state: State) -> None:
        """Where the regime's inputs are not finite: say of what is finite only because attention takes minus infinity for
        a mask, that it may be NaN; and of what is not finite in PyTorch where it need not be: what is the same with any
        number in place of the inputs that are not finite does not depend on them, but for a product with zero, as of a
        weight that was masked; and where it depends on some, it may be what it is without such products. Of a product
        with what vanishes in float32, as behind many factors, the order decides whether it is NaN or infinite. Where
        they are finite: what is NaN because something became too large may be anything."""

        def exact(inputs: Any, **how: bool) -> list[torch.Tensor]:
            return _tensor_leaves(self.reference.exact(inputs, state, case.mode, case.rng, **how))

        def change(how: Callable[[torch.Tensor], torch.Tensor]) -> Any:
            return map_tensors(case.inputs, lambda x: how(x) if x.is_floating_point() else x)

        if case.regime.values != NON_FINITE:
            if any(leaf.has_nan for leaf in case.leaves):
                for leaf, value in zip(case.leaves, exact(change(lambda x: x * _SMALLER))):
                    leaf.waive(as_real(value))
            return
        if self.reference.masks:
            for leaf, value in zip(case.leaves, exact(case.inputs, bare=True)):
                leaf.excuse(~torch.isfinite(as_real(value)))
        sparse = exact(case.inputs, sparse=True)
        runs = [exact(change(lambda x: x.nan_to_num(number, number, number))) for number in _FILLS]
        for leaf, *found in zip(case.leaves, sparse, *runs):
            values = [as_real(value) for value in found]
            if leaf.free is not None and all(value.shape == leaf.exact.shape for value in values):
                without, first, *others = (value.double().reshape(-1)[leaf.free] for value in values)
                leaf.otherwise = first.where(torch.stack([first == other for other in others]).all(0), without)
                leaf.either = torch.stack([
                    (other - first).abs() <= abs(number) * _VANISHING for other, number in zip(others, _FILLS[1:])]).all(0)

    def inputs(self, name: str, mode: str, weights: str) -> tuple[Arena | DeviceArena, Node]:
        """The memory with a case's inputs."""
        key = (name, mode, weights)
        if key not in self._arenas:
            self._arenas[key] = holding(self.case(*key).inputs, self.device, self.shared)
        return self._arenas[key]

    def output_memory(self, subject: str) -> Arena | DeviceArena:
        """Fresh memory for what ``subject`` returns twice: nothing of another's output is in it."""
        size = 2 * self.output_bytes
        memory = DeviceArena.create(size, self.device) if self.shared else Arena.create(size)
        self._outputs_of[subject] = memory
        return memory

    def forget(self, subject: str) -> None:
        """Let go of a subject's output memory, and of its runs."""
        self._draws.pop(subject, None)
        self._zeros = {at: zeros for at, zeros in self._zeros.items() if at[0] != subject}
        memory = self._outputs_of.pop(subject, None)
        if memory is not None:
            memory.close()

    def read_outputs(self, subject: str, node: Node, shift: int) -> list[torch.Tensor]:
        """The tensors that ``subject`` wrote ``shift`` bytes behind where ``node`` says, copied on the device, out of
        its reach."""
        memory = self._outputs_of[subject]
        return [
            memory.read(leaf | {"offset": leaf["offset"] + shift}).to(self.device, copy=not self.shared)
            for leaf in nodes(node) if leaf["kind"] == "tensor"
        ]

    def judge(self, expected: list[Leaf], values: list[torch.Tensor]) -> list[dict[str, Any]]:
        """Error figures of each tensor of a candidate's output and buffers."""
        return [
            leaf.judge(value, self.accuracy) | {"output": leaf.name}
            for leaf, value in zip(expected, values)
        ]

    def pool(self) -> list[list[Any]]:
        """Input sets on the device, which timed calls recombine."""
        if not self._pool:
            size = describe(self._given)[1]
            sets = max(2, min(POOL_SETS, POOL_BYTES // max(size, 1)))
            given = [self._get_inputs(100 + index) for index in range(sets)]
            self._pool = map_tensors(given, lambda x: x.to(self.device))
        return self._pool

    def judge_timed(
        self, key: int, regime: str, mode: str, weights: str, values: list[torch.Tensor], *, own_numbers: bool,
        lines: bool, subject: str = "",
    ) -> list[dict[str, Any]]:
        """Error figures of the output of the timed call with ``key`` and the values of ``regime``, whose batch is the
        problem's own, and of the buffers after it if they are given.

        What is expected is PyTorch's own output, which takes no longer than the call itself; its error in that regime
        says how far from it a right output may be. What is refused by that is judged in full, as in a regime of its own:
        where a softmax all but decides, another call's errors say little. With ``lines``, columns are judged too. With
        ``own_numbers``, what is not PyTorch's own may be of other random numbers.
        """
        inputs = map_tensors(self.pool()[0], torch.empty_like)
        case = self.case(regime, mode, weights)
        recombine(inputs, self.pool(), key, case.regime.values)
        state = self._timed_state(weights, key, mode)
        rng = seed_of(key)
        run = self.reference.eager(inputs, state, mode, rng)
        eager = _tensor_leaves(run)
        known = self._with_columns(case, weights) if lines else case.leaves
        expected = [leaf.again(value, lines=lines) for leaf, value in zip(known, eager)]
        rows = self.judge(expected, values)
        if not all(row["ok"] for row in rows):  # by what holds for these inputs, which takes runs in float64
            full = Case(case.regime, mode, rng, inputs, self._expect(inputs, state, mode, rng, run, Typical(), noise=True))
            self._excuse(full, state)
            expected = [leaf.no_looser(other) for leaf, other in zip(full.leaves, expected)]
            rows = self.judge(expected, values)
        if not own_numbers or not self.random[mode] or all(row["ok"] for row in rows):
            return rows
        rows = self._judge_run(self._runs(inputs, state, mode, case.leaves, moments.FEW), expected, values)
        for row, leaf, value, its in zip(rows, expected, values, eager):
            zeros = [moments.sampled(x) == 0 for x in (value, its)]
            before = self._zeros.get((subject, mode, leaf.name))
            self._zeros[subject, mode, leaf.name] = zeros
            if row["ok"] and before is not None and moments.is_repeated(before, zeros):
                row |= {"ok": False, "note": "zeros are in the same places as in another call, and PyTorch's in others"}
        return rows

    def _with_columns(self, case: Case, weights: str) -> list[Leaf]:
        """What is expected in ``case``, with noisy runs where without them columns would not be judged."""
        key = (case.regime.name, case.mode, weights)
        if key not in self._known_columns:
            found = case.leaves
            if any(leaf.lacks_columns for leaf in found):
                state = self.state(case.regime, weights)
                eager = self.reference.eager(case.inputs, state, case.mode, case.rng)
                found = self._expect(case.inputs, state, case.mode, case.rng, eager, Typical(), noise=True)
            self._known_columns[key] = found
        return self._known_columns[key]

    def _timed_state(self, weights: str, key: int, mode: str) -> State:
        """The state dict of the timed call with ``key``."""
        state, names = self._states[weights], {name for name, _ in self.reference.single.named_buffers()}
        return {**state, **moved_buffers(
            {name: state[name] for name in names & set(state)}, key, mode, self.counters)}

    def judge_run(self, case: Case, weights: str, values: list[torch.Tensor]) -> list[dict[str, Any]]:
        """Figures of each tensor of one run of a candidate whose random numbers are its own."""
        return self._judge_run(self._spread(case, weights, moments.FEW), case.leaves, values)

    def _judge_run(
        self, found: list[moments.Spread | None], expected: list[Leaf], values: list[torch.Tensor]
    ) -> list[dict[str, Any]]:
        return [
            moments.judge_run(spread, leaf, value, self.accuracy) | {"output": leaf.name}
            for spread, leaf, value in zip(found, expected, values)
        ]

    def draw(self, subject: str, case: Case, weights: str, values: list[torch.Tensor]) -> None:
        """Take a run of a subject, to be judged with others; the first is under the case's own seed."""
        runs = self._draws.setdefault(subject, [[] for _ in case.leaves])
        for kept, spread, leaf, value in zip(runs, self._spread(case, weights, moments.MANY), case.leaves, values):
            kept.append(leaf.judge(value, self.accuracy) if spread is None else moments.sampled(value))

    def judge_draws(self, subject: str, case: Case, weights: str) -> tuple[list[dict[str, Any]], bool]:
        """Figures of each tensor over all runs that were taken, and whether their random numbers are PyTorch's."""
        rows, same = [], False
        found = self._spread(case, weights, moments.MANY)
        for kept, spread, leaf in zip(self._draws.pop(subject), found, case.leaves):
            if spread is None:
                row = moments.worst_row(kept)
            else:
                row, alike = moments.judge_runs(spread, leaf, kept, self.accuracy)
                same |= alike
            rows.append(row | {"output": leaf.name})
        return rows, same

    def _spread(self, case: Case, weights: str, runs: moments.Runs) -> list[moments.Spread | None]:
        at = (case.regime.name, case.mode, weights, runs.exact)
        if at not in self._spreads:
            state = self.state(case.regime, weights)
            self._spreads[at] = self._runs(case.inputs, state, case.mode, case.leaves, runs)
        return self._spreads[at]

    def _runs(
        self, inputs: list[Any], state: State, mode: str, expected: list[Leaf], runs: moments.Runs
    ) -> list[moments.Spread | None]:
        """What random values are like for these inputs, from runs under seeds that nobody else knows."""
        def take(run: Any, numbers: range) -> list[list[torch.Tensor]]:
            every = [_tensor_leaves(run(inputs, state, mode, self._secret + number)) for number in numbers]
            return [[moments.sampled(x) for x in tensors] for tensors in every]

        exact = take(self.reference.exact, range(1, runs.exact + 1))
        eager = take(self.reference.eager, range(runs.exact + 1, runs.exact + runs.eager + 1))
        return moments.spreads(exact, eager, expected)

    def health(self) -> list[str]:
        """The trivial answers that every regime's gate lets through."""
        answers = {"zeros": torch.zeros_like, "the mean": _mean}
        passed = [name for name, answer in answers.items() if self._lets_through(answer)]
        if self._lets_through_other_seed():
            passed.append("another seed's output")
        if self._lets_through_input():
            passed.append("the input passed through")
        return passed

    def _lets_through(self, answer: Any) -> bool:
        asked = False
        for name, mode in self.regimes():
            for leaf in self._outputs(name, mode):
                if leaf.eager is not None:
                    continue  # NaN and infinities are asked for elsewhere: they tell trivial answers too easily
                trivial = answer(leaf.exact)
                asked = asked or trivial is not None
                if trivial is not None and not leaf.judge(trivial, self.accuracy)["ok"]:
                    return False
        return asked

    def _lets_through_other_seed(self) -> bool:
        name = REGIMES[0].name
        for mode in self.modes:
            other, _ = self.reference.eager(self._get_inputs(77), self._states["drawn"], mode, 0)
            for leaf, value in zip(self._outputs(name, mode), _tensor_leaves(other)):
                if as_real(value).shape != leaf.exact.shape:
                    where = self.loaded.problem.path
                    raise ProblemError(f"{where}: the shape of what the model returns depends on the values of its "
                                       "inputs, which kgen does not judge: pad it to a fixed size")
                if not leaf.judge(value, self.accuracy)["ok"]:
                    return False
        return True

    def _lets_through_input(self) -> bool:
        name = REGIMES[0].name
        for mode in self.modes:
            inputs = _tensor_leaves(self.case(name, mode, "drawn").inputs)
            for leaf in self._outputs(name, mode):
                same = [x for x in inputs if x.shape == leaf.exact.shape and x.is_floating_point()]
                if not any(leaf.judge(x.to(self.device), self.accuracy)["ok"] for x in same):
                    return False
        return True

    def _outputs(self, name: str, mode: str) -> list[Leaf]:
        return [leaf for leaf in self.case(name, mode, "drawn").leaves if leaf.name.startswith("output")]


def _mean(x: torch.Tensor) -> torch.Tensor | None:
    """``x``'s mean in place of each element; ``None`` where that is no trivial answer: of one element it is the right
    one, and of integers there is none."""
    return torch.full_like(x, float(x.mean())) if x.is_floating_point() and x.numel() > 1 else None


def _apart(x: torch.Tensor) -> torch.Tensor:
    """``x``, copied where several of its elements lie in one place of memory, as where it was expanded."""
    return x.contiguous() if span(x) < x.numel() or 0 in x.stride() else x


def _refuse_others(path: str, says: str, value: Any) -> None:
    """Raise :class:`ProblemError` where ``value`` holds something that cannot be handed to another process."""
    other = next((node["type"] for node in nodes(describe(value)[0]) if node["kind"] == "other"), None)
    if other is not None:
        raise ProblemError(f"{path}: {says} a {other}: kgen takes tensors, numbers, strings and None, alone or in "
                           "lists, tuples and dicts")


def _tensor_leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def _generators(device: str) -> list[torch.Tensor]:
    """The states of the random number generators."""
    return [torch.get_rng_state(), *([] if device == "cpu" else [torch.cuda.get_rng_state(device)])]


def _expected(name: str, exact: Any, eager: Any, noisy: list[Any], typical: Typical) -> list[Leaf]:
    found = []
    others = [_leaves(value) for value in noisy]
    for number, ((path, e64), (_, e32)) in enumerate(zip(leaves(exact), leaves(eager))):
        if isinstance(e64, torch.Tensor):
            if is_inexact(e64):
                leaf = Leaf.within(name + path, e64, e32, [other[number] for other in others], typical)
                found.append(replace(leaf, statistic=name == _STATE))
            else:
                found.append(Leaf.exactly(name + path, e32, [e64, *(other[number] for other in others)]))
    return found


def _leaves(value: Any) -> list[Any]:
    return [leaf for _, leaf in leaves(value)]


def lock_key(device: str) -> str:
    """The name of the device's lock; nothing runs on the device to find it out. Raises :class:`DeviceError`."""
    if resolve_device(device) == "cpu":
        return "cpu"
    return f"cuda-{torch.cuda.get_device_properties(device).uuid}"


def alone(device: str) -> dict[str, str]:
    """The environment of a process that sees this GPU and no other, as its first: to start one for all of them takes twice
    as long for two. Empty where there is no other."""
    if device == "cpu" or torch.cuda.device_count() == 1:
        return {}
    return {"CUDA_VISIBLE_DEVICES": f"GPU-{str(torch.cuda.get_device_properties(device).uuid).removeprefix('GPU-')}"}


def about(device: str) -> dict[str, Any]:
    """What this process knows of itself and of the device: versions, the device's limits, and the rate of a large copy
    in gigabytes (1e9) read and written per second."""
    hardware = probe(device)
    flush = hardware.l2_bytes if device != "cpu" else _CPU_CACHE_BYTES
    rate = hardware.copy_gbytes_per_second or _cpu_copy_rate()
    return {"torch": torch.__version__, "python": platform.python_version(), "host": platform.node(),
            "hardware": asdict(hardware), "flush_bytes": 2 * flush, "copy_rate": rate}


def _cpu_copy_rate() -> float:
    """Gigabytes (1e9) per second, read and written, of a large copy: the best of a few."""
    a, b = torch.ones(_COPY_BYTES // 4), torch.ones(_COPY_BYTES // 4)
    times = []
    for _ in range(5):
        started = time.perf_counter_ns()
        b.copy_(a)
        times.append(time.perf_counter_ns() - started)
    return 2 * _COPY_BYTES / min(times)


def keep_freed_memory() -> None:
    """Have the C library keep large freed blocks: fresh pages cost more than the arithmetic on them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 0x7FFFFFFF)


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The oracle's process: tell which lock is the device's, then of the device, open the problem, answer requests."""
    sandbox.limit(None, 1 << 40)
    keep_freed_memory()
    torch.set_num_threads(options["threads"])
    set_flags(options["accuracy"])
    problem = Problem(**options["problem"])
    channel.receive()
    try:
        channel.send({"key": lock_key(options["device"]), "alone": alone(options["device"])})
        channel.receive()
        if options["device"] != "cpu":
            torch.cuda.set_device(options["device"])
        channel.send(about(options["device"]))
        channel.receive()
        oracle = Oracle(problem, options["device"], options["accuracy"], options["secret"], options["construction"],
                        shared=options["shared"])
        _opened(oracle, channel)
    except KgenError as error:
        channel.send({"error": str(error), "problem": isinstance(error, ProblemError),
                      "device": isinstance(error, DeviceError)})
        return
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        channel.send({"error": f"{problem.path}: the reference raised {type(error).__name__}: {text}", "problem": True})
        return
    while True:
        request, fds = channel.receive()
        try:
            reply, answer = _HANDLERS[request["do"]](oracle, request, fds)
        except torch.OutOfMemoryError as error:
            reply, answer = {"error": f"out of memory: {error}"}, []
        except ProblemError as error:
            reply, answer = {"error": str(error), "problem": True}, []
        channel.send(reply, answer)


def _opened(oracle: Oracle, channel: Channel) -> None:
    state, state_node = holding(dict(oracle._states["drawn"]), oracle.device, oracle.shared)
    init, init_node = Arena.holding(oracle.loaded.init_inputs())
    channel.send(
        {"mode": oracle.loaded.problem.mode, "regimes": oracle.regimes(), "output_bytes": oracle.output_bytes,
         "views": oracle.views, "counters": oracle.counters, "ties": oracle.ties, "state": state_node,
         "state_bytes": state.size, "init": init_node},
        [state.fd, init.fd],
    )


def _inputs(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    at = (request["regime"], request["mode"], request["weights"])
    case = oracle.case(*at)
    how, turn = oracle.change(case.regime)
    reply = {"note": case.note, "raises": case.raises, "rng": case.rng, "change": how, "turn": turn,
             "random": oracle.random[case.mode]}
    if case.note and not case.raises:
        return reply, []
    arena, node = oracle.inputs(*at)
    return reply | {"inputs": node, "bytes": arena.size, "outputs": case.outputs, "end": case.end}, [
        arena.fd]


def _output(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    memory = oracle.output_memory(request["subject"])
    return {"bytes": memory.size}, [memory.fd]


def _forget(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    oracle.forget(request["subject"])
    return {}, []


def _judge(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    values = oracle.read_outputs(request["subject"], request["outputs"], request["shift"])
    mode, weights = request["mode"], request["weights"]
    own_numbers = request.get("own_numbers", False)
    if "key" in request:
        return {"rows": oracle.judge_timed(
            request["key"], request["regime"], mode, weights, values, own_numbers=own_numbers,
            lines=request["lines"], subject=request["subject"])}, []
    case = oracle.case(request["regime"], mode, weights)
    rows = oracle.judge(case.leaves, values)
    if own_numbers and not all(row["ok"] for row in rows):
        rows = oracle.judge_run(case, weights, values)
    return {"rows": rows}, []


def _draw(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    case = oracle.case(request["regime"], request["mode"], request["weights"])
    values = oracle.read_outputs(request["subject"], request["outputs"], request["shift"])
    oracle.draw(request["subject"], case, request["weights"], values)
    return {}, []


def _moments(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    case = oracle.case(request["regime"], request["mode"], request["weights"])
    rows, same = oracle.judge_draws(request["subject"], case, request["weights"])
    return {"rows": rows, "same_numbers": same}, []


def _pool(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    if oracle.pool_arena is None:
        oracle.pool_arena = holding(oracle.pool(), oracle.device, oracle.shared)
    arena, node = oracle.pool_arena
    return {"pool": node, "pool_bytes": arena.size, "bytes": describe(oracle.pool()[0])[1]}, [arena.fd]


def _health(oracle: Oracle, request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    return {"passed": oracle.health()}, []


_HANDLERS = {"inputs": _inputs, "output": _output, "forget": _forget, "judge": _judge, "draw": _draw,
             "moments": _moments, "pool": _pool, "health": _health}
