"""What the oracle expects: of timed calls, and where there are NaN and infinities."""

from textwrap import indent
from typing import Callable, Iterator

import pytest
import torch

from kgen.errors import ProblemError
from kgen.evaluator.correctness.cases import Case
from kgen.evaluator.correctness.distributions import DISTRIBUTIONS, mixtures
from kgen.evaluator.correctness.health import health
from kgen.evaluator.correctness.oracle import Oracle
from kgen.evaluator.correctness.reference import Reference
from kgen.evaluator.runtime.arena import map_tensors
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy

TEXT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        y = self.linear(x)
{forward}

def get_inputs():
    return [torch.randn(64, 8)]

def get_init_inputs():
    return []
"""
KEY = 5
ALL_ROWS, NON_FINITE_ROWS = "all rows scaled", "NaN and infinities"


def oracle(forward: str) -> Oracle:
    text = TEXT.format(forward=indent(forward, " " * 8))
    return Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=True)


def output(of: Oracle) -> torch.Tensor:
    """PyTorch's own, of the timed call."""
    inputs = map_tensors(of.pool[0], torch.empty_like)
    for mixture in mixtures(inputs, of.pool, KEY):
        mixture.fill()
    return of.reference.eager(inputs, of._states["drawn"], "eval", KEY)[0]


def ok(of: Oracle, value: torch.Tensor) -> bool:
    (row,) = of.judge_timed(KEY, of.case(DISTRIBUTIONS[0].name, "eval", "drawn"), [value], own_numbers=False)
    return row["ok"]


@pytest.fixture
def ties(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """Of a maximum that stands in two places in every third row: it is rounding that says which is larger. So many runs are
    made of it that both have been."""
    monkeypatch.setattr("kgen.evaluator.correctness.oracle.NOISY_RUNS", 24)
    return oracle("z = torch.cat([y, y], 1)\nz[::3, 4:] *= 1.0\nz[1::3, 4:] -= 1.0\nz[2::3, 4:] -= 1.0\nreturn z.argmax(1)")


def test_index_of_either_of_two_equal_maxima_is_right_in_a_timed_call(ties: Oracle) -> None:
    found = output(ties)
    other = found.clone()
    other[::3] = (other[::3] + 4) % 8
    assert ok(ties, found) and ok(ties, other)


def test_any_other_index_is_wrong_in_a_timed_call(ties: Oracle) -> None:
    found = output(ties)
    found[1] = (found[1] + 1) % 4
    assert not ok(ties, found)


def test_complex_numbers_are_judged_in_a_timed_call() -> None:
    of = oracle("return torch.fft.rfft(y)")
    assert ok(of, output(of)) and not ok(of, torch.zeros_like(output(of)))


def test_roundings_are_allowed_where_pytorch_is_exact_by_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sum that is zero in exact arithmetic, on the problem's own inputs."""
    of = oracle("return y * (y - y.mean()).sum()")
    own = of.reference.eager
    monkeypatch.setattr(of.reference, "eager", lambda *run: map_tensors(of.reference.exact(*run), torch.Tensor.float))
    case = of.case(DISTRIBUTIONS[0].name, "eval", "drawn")
    found, _ = own(case.inputs, of.state(case.distribution, case.weights), "eval", case.rng)
    (right,), (wrong,) = (of.judge(case, [value]) for value in (found, 1000 * found))
    assert right["ok"] and not wrong["ok"]


def test_what_is_right_for_given_values_only_is_wrong_where_all_rows_are_scaled() -> None:
    of = oracle("return torch.softmax(y, 1)")
    case = of.case(ALL_ROWS, "eval", "drawn")
    y = of.reference.single.linear(case.inputs[0] * 10).exp()
    (row,) = of.judge(case, [(y / y.sum(1, keepdim=True)).detach()])
    assert len(y) == 64 and not row["ok"]


def test_a_problem_without_an_output_element_is_refused():
    with pytest.raises(ProblemError, match="p.py: forward returns no element"):
        oracle("return y[:0]")


def test_a_problem_that_does_not_run_in_float64_is_refused():
    of = oracle("kept = torch.frombuffer(bytearray(64 * 4 * 4), dtype=torch.float32).view(64, 4)\n"
                "return kept.index_add_(0, torch.arange(64), y)")
    with pytest.raises(ProblemError, match="p.py: it does not run in float64"):
        of.case(DISTRIBUTIONS[0].name, "eval", "drawn")


PRODUCTS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.cumprod(1)

def get_inputs():
    return [torch.rand(64, 300)]
"""


def _one_after_the_other(x: torch.Tensor) -> torch.Tensor:
    """Products in float32, which are zero after a hundred factors."""
    products = [x[:, 0]]
    for column in x.unbind(1)[1:]:
        products.append(products[-1] * column)
    return torch.stack(products, 1)


def _from_the_left(x: torch.Tensor) -> torch.Tensor:
    """Products of an infinity with what stands beside it come before those with what has vanished."""
    step = 1
    while step < x.shape[1]:
        x, step = torch.cat([x[:, :step], x[:, step:] * x[:, :-step]], 1), 2 * step
    return x


def _cases() -> Iterator[Case]:
    """Where there are NaN and infinities, in places that are drawn."""
    for secret in range(1, 9):
        of = Oracle(Problem("p", "p.py", PRODUCTS), "cpu", Accuracy.FP32, secret, 2, shared=False, strict=True)
        yield from (of.case(name, mode, "drawn") for name, mode in of.names() if name == "NaN and infinities")


@pytest.mark.parametrize("way", [_one_after_the_other, _from_the_left])
def test_an_infinity_behind_factors_that_vanish_is_infinite_or_nan_as_the_order_says(
    way: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    alike = []
    for case in _cases():
        mine = way(case.inputs[0])
        assert case.expected[0].judge(mine, Accuracy.FP32)["ok"]
        alike.append(torch.equal(mine.isnan(), case.inputs[0].cumprod(1).isnan()))
    assert not all(alike)


@pytest.mark.parametrize("other", [float("nan"), float("-inf")])
def test_an_infinity_behind_factors_that_count_is_infinite_and_has_its_sign(other: float) -> None:
    counted = []
    for case in _cases():
        (x,), products = case.inputs, case.inputs[0].cumprod(1)
        row = x.isposinf().any(1)
        before = x[row].masked_select(x[row].isinf().cumsum(1) == 0)
        counted.append(float(before.double().prod()) > torch.finfo(torch.float32).tiny)
        mine = products.where(~(row[:, None] & products.isinf()), other)
        assert case.expected[0].judge(mine, Accuracy.FP32)["ok"] is not counted[-1]
    assert any(counted) and not all(counted)


CAUSAL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        scores = (x @ x.mT).masked_fill(torch.ones(12, 12).tril() == 0, float("-inf"))
        return scores.softmax(-1) @ x

def get_inputs():
    return [torch.randn(2, 12, 8)]
"""


def test_what_is_masked_need_not_be_read_where_something_that_counts_is_not_finite_either():
    """With two sequences, some keys that are not finite are masked for a query for which others are not."""
    both = 0
    for secret in range(12):
        of = Oracle(Problem("p", "p.py", CAUSAL), "cpu", Accuracy.FP32, secret, 2, shared=False, strict=True)
        case = of.case(NON_FINITE_ROWS, "train", "drawn")
        x = case.inputs[0]
        rows = torch.cat([(x[:, i : i + 1] @ x[:, : i + 1].mT).softmax(-1) @ x[:, : i + 1] for i in range(12)], 1)
        whole = (x @ x.mT).masked_fill(torch.ones(12, 12).tril() == 0, float("-inf"))
        lost = (whole.softmax(-1) @ x).isnan() & rows.isfinite()
        counted = (x @ x.mT).tril()  # by zeros where it is masked
        both += bool((lost & ~counted.isfinite().all(-1, keepdim=True)).any())
        assert of.judge(case, [rows])[0]["ok"]
        assert not lost.any() or not case.expected[0].judge(rows.where(~lost, rows + 0.1), Accuracy.FP32)["ok"]
    assert both > 1


def test_zero_times_what_is_too_large_for_float64_may_be_anything():
    zero = "torch.rand(64, 900).index_fill(1, torch.tensor(600), 0.0)"
    text = PRODUCTS.replace("torch.rand(64, 300)", zero)
    of = Oracle(Problem("p", "p.py", text), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=True)
    case = of.case(ALL_ROWS, "train", "drawn")
    products = case.inputs[0].cumprod(1)
    lost = products.isnan()
    assert lost.any() and (products.isinf() & ~lost).any()

    def is_right(mine: torch.Tensor) -> bool:
        return case.expected[0].judge(mine, Accuracy.FP32)["ok"]

    assert is_right(products) and is_right(products.where(~lost, 0.0))
    assert not is_right(products.where(~products.isinf(), 0.0))


def test_nan_of_inputs_that_are_not_large_is_nan():
    of = oracle("return y.log()")
    for name in ("as given", ALL_ROWS):
        case = of.case(name, "eval", "drawn")
        mine, _ = of.reference.eager(case.inputs, of.state(case.distribution, "drawn"), "eval", case.rng)
        (row,), (other,) = of.judge(case, [mine]), of.judge(case, [mine.nan_to_num(0.0)])
        assert mine.isnan().any() and row["ok"] and not other["ok"]


def test_single_number_that_another_seed_gives_by_chance_is_no_trivial_answer() -> None:
    of = oracle("return y.square().mean()")
    of.pool[1] = of.pool[0]
    assert health(of) == []


@pytest.mark.parametrize("least, threads", [(0.0, 2), (60.0, 1)])
def test_short_forwards_are_computed_by_one_thread(least: float, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of, before = oracle("return y"), torch.get_num_threads()
    for bound in ("_SHORT_FORWARD", "_LITTLE_WORK"):
        monkeypatch.setattr(f"kgen.evaluator.correctness.oracle.{bound}", least)
    try:
        of.set_threads(2)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_own_candidates_are_tried_on_about_twelve_distributions() -> None:
    text = TEXT.format(forward=indent("return y", " " * 8)).replace("randn(64, 8)", "randn(512, 8)")
    names = [name for strict in (False, True) for name, _ in Oracle(
        Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=strict).names()]
    assert len(names) == 12 + len(DISTRIBUTIONS) + 4 and set(names[:12]) <= set(names[12:])


@pytest.mark.parametrize("forward, stays", [
    ("return y", False), ("return torch.nn.functional.conv1d(y[:, None], torch.ones(1, 1, 3))", True)])
def test_pytorchs_own_flags_are_a_class_of_its_own_where_cudnn_is_used(forward: str, stays: bool) -> None:
    text = TEXT.format(forward=indent(forward, " " * 8))
    of = Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.PYTORCH, 1, 2, shared=False, strict=True)
    assert of.accuracy is (Accuracy.PYTORCH if stays else Accuracy.FP32)


def test_with_less_memory_all_distributions_but_the_first_have_fewer_rows_and_some_are_left_out() -> None:
    text = TEXT.format(forward=indent("return y", " " * 8))
    of = Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=False,
                most_rows=5, without=["zeros"])
    rows = {name: len(of.case(name, mode, "drawn").inputs[0]) for name, mode in of.names()}
    assert rows.pop("as given") == 64 and set(rows.values()) <= {5, 1} and "zeros" not in rows


@pytest.mark.parametrize("forward, separable", [
    ("return torch.softmax(y, 1), {'sum': y.sum(1)}", True), ("return y - y.mean(0)", False)])
def test_float64_goes_by_slices_of_the_batch_where_rows_do_not_depend_on_each_other(
    monkeypatch: pytest.MonkeyPatch, forward: str, separable: bool,
) -> None:
    whole, sliced = oracle(forward), oracle(forward)
    calls: list[int] = []
    exact = sliced.reference.exact
    monkeypatch.setattr(sliced.reference, "exact", lambda inputs, *rest, **how: calls.append(len(inputs[0])) or exact(
        inputs, *rest, **how))
    monkeypatch.setattr("kgen.evaluator.correctness.oracle._SLICE_BYTES", sliced.bytes // 3)
    found = sliced.case("as given", "eval", "drawn").expected
    assert (max(calls) == 21) is separable
    monkeypatch.undo()
    for one, other in zip(found, whole.case("as given", "eval", "drawn").expected):
        assert torch.allclose(one.exact, other.exact, rtol=1e-12)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Oracle]:
    """Makes oracles to which every problem is large, and is compared in parts."""
    monkeypatch.setattr("kgen.evaluator.correctness.oracle._LARGE_BYTES", 1000)
    monkeypatch.setattr("kgen.evaluator.correctness.oracle._FEW_BYTES", 500)
    monkeypatch.setattr("kgen.evaluator.correctness.oracle.POOL_BYTES", 1000)
    monkeypatch.setattr("kgen.evaluator.correctness.oracle._SLICE_BYTES", 1000)
    monkeypatch.setattr("kgen.evaluator.correctness.tolerance._PART", 64)
    monkeypatch.setattr("kgen.evaluator.correctness.distributions._PART", 64)
    return oracle


def test_of_a_large_problem_only_its_own_inputs_have_all_rows(large: Callable[[str], Oracle]) -> None:
    of = large("return torch.softmax(y, 1)")
    rows = {name: len(of.case(name, mode, "drawn").inputs[0]) for name, mode in of.names()}
    assert rows.pop("as given") == 64 and max(rows.values()) < 10
    assert [len(inputs[0]) for inputs in of.pool] == [64, 31]


def test_inputs_beside_timed_calls_may_have_fewer_rows_than_a_test_case(
    large: Callable[[str], Oracle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgen.evaluator.correctness.oracle.POOL_BYTES", 40)
    of = large("return torch.softmax(y, 1)")
    assert [len(inputs[0]) for inputs in of.pool] == [64, 1] and health(of) == []


@pytest.mark.parametrize("forward", ["return torch.softmax(y, 1)", "return y - y.mean(0)", "return y.sum()"])
def test_a_large_problem_is_judged_as_a_small_one(large: Callable[[str], Oracle], forward: str) -> None:
    of = large(forward)
    for name, mode in of.names():
        case = of.case(name, mode, "drawn")
        mine, _ = of.reference.eager(case.inputs, of.state(case.distribution, "drawn"), mode, case.rng)
        assert all(row["ok"] for row in of.judge(case, [mine]))
    mine = output(of)
    assert ok(of, mine) and not ok(of, mine + 0.1 * mine.abs().mean())
    assert health(of) == []


def test_inputs_of_a_large_problem_without_a_batch_are_held_one_case_at_a_time(large: Callable[[str], Oracle]) -> None:
    of = large("return y.sum()")
    names = [name for name, _ in of.names()]
    cases = [of.case(name, "eval", "drawn") for name in names]
    held = [case.distribution.name for case in cases if case.inputs]
    assert not of.batch_free and set(held) == {"as given", "other weights", names[-1]}
    assert torch.equal(of.case("zeros", "eval", "drawn").inputs[0], torch.zeros(64, 8))


def test_rows_of_a_large_problem_are_compared_on_few_of_them(large: Callable[[str], Oracle], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, eager = [], Reference.eager
    monkeypatch.setattr(Reference, "eager", lambda self, inputs, *rest: rows.append(len(inputs[0])) or eager(self, inputs, *rest))
    of = large("return torch.softmax(y, 1)")
    assert of.batch_free and max(rows) == of.most_rows < 10


def test_without_other_batches_all_cases_have_the_problems_rows() -> None:
    text = TEXT.format(forward=indent("return y", " " * 8))
    of = Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=False, other_batches=False)
    assert not of.batch_free and {len(of.case(name, mode, "drawn").inputs[0]) for name, mode in of.names()} == {64}


def test_where_float64_takes_too_long_other_cases_have_fewer_rows_or_are_left_out() -> None:
    text = TEXT.format(forward=indent("return y", " " * 8))
    of = Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=False,
                seconds=1e-7)
    cases = {name: of.case(name, mode, "drawn") for name, mode in of.names()}
    given = cases.pop("as given")
    assert len(given.inputs[0]) == 64 and not given.note and of.most_rows == 2
    assert {case.note for case in cases.values()} == {"float64 runs take too long here"}


@pytest.mark.parametrize("share, one", [(1.0, False), (0.99, True)])
def test_candidates_share_memory_for_outputs_only_where_one_output_is_large(
    monkeypatch: pytest.MonkeyPatch, share: float, one: bool
) -> None:
    """Candidates with room for two runs are judged side by side, where both outputs together are large."""
    text = TEXT.format(forward=" " * 8 + "return y")
    of = Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False, strict=False)
    monkeypatch.setattr("kgen.evaluator.correctness.outputs._LARGE_OUTPUT", share * of.output_bytes)
    memories = [of.outputs.memory(subject, 2 * of.output_bytes) for subject in ("first", "second")]
    assert (memories[0] is memories[1]) == one


def test_a_loss_does_not_keep_the_memory_of_its_terms() -> None:
    of = oracle("return torch.nn.functional.smooth_l1_loss(y, y * 2)")
    [expected] = of.case("as given", "eval", "drawn").expected
    assert expected.exact.untyped_storage().nbytes() == expected.exact.nbytes
