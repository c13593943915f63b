"""The accuracy gate: which errors it allows."""

from dataclasses import replace

import pytest
import torch

from kgen.evaluator.correctness.tolerance import EPSILON, Expected, Typical, _errors_in, as_matrix
from kgen.protocol import Accuracy


def within(name, exact, eager, noisy_runs, typical=Typical()):
    """The expectation once all runs were seen."""
    found = Expected.begun(name, exact, eager)
    for run in noisy_runs:
        found.see(run)
    return found.settle(typical)


def leaf(rows=64, columns=256, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(rows, columns, dtype=torch.float64, generator=generator) * scale
    return within("output", exact, noisy(exact, 4, 1), [noisy(exact, 1, 2).double()])


def noisy(exact, epsilons, seed):
    generator = torch.Generator().manual_seed(seed)
    errors = epsilons * EPSILON * torch.randn(exact.shape, dtype=torch.float64, generator=generator)
    return (exact * (1 + errors)).float()


def test_an_error_of_eagers_size_is_allowed():
    judged = leaf().judge(noisy(leaf().exact, 4, 9), Accuracy.FP32)
    assert judged["ok"] and 0.5 < judged["ratio"] < 2


def test_an_error_of_four_times_eagers_is_refused():
    judged = leaf().judge(noisy(leaf().exact, 16, 9), Accuracy.FP32)
    assert not judged["ok"] and judged["used"] > 1


@pytest.mark.parametrize("seen", [1.0, 1.9, 4.0])
def test_exact_values_in_float32_judge_alike_where_pytorch_errs_much_more(seen):
    exact = torch.randn(64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = within("output", exact, noisy(exact, 2000, 1), [])
    narrow, value = whole.narrowed(), noisy(exact, 2000 * seen, 9)
    assert narrow.exact.dtype == torch.float32 and narrow.nbytes < whole.nbytes
    by_whole, by_narrow = (of.judge(value, Accuracy.TF32) for of in (whole, narrow))
    assert by_narrow["ok"] == by_whole["ok"] == (seen < 2)
    assert by_narrow["ratio"] == pytest.approx(by_whole["ratio"], rel=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1e300])
def test_exact_values_stay_in_float64_where_float32_would_show_or_overflow(scale):
    exact = torch.randn(64, 256, dtype=torch.float64) * scale
    eager = noisy(exact, 4, 1) if scale == 1.0 else exact.float()
    assert within("output", exact, eager, []).narrowed().exact.dtype == torch.float64


def test_a_small_row_of_zeros_among_large_rows_is_refused():
    scale = torch.ones(64, 1, dtype=torch.float64)
    scale[5] = 1e-12
    expected = leaf(scale=scale)
    value = noisy(expected.exact, 4, 9)
    assert expected.judge(value, Accuracy.FP32)["ok"]
    value[5] = 0
    assert not expected.judge(value, Accuracy.FP32)["ok"]


def test_a_row_whose_elements_share_one_error_is_allowed_what_such_errors_scatter():
    """As where a softmax all but decides between two values: a run whose one error is small says little of the next."""
    draw = torch.Generator().manual_seed(4)
    exact = torch.randn(800, 64, dtype=torch.float64, generator=draw)
    direction = torch.randn(800, 64, dtype=torch.float64, generator=draw)

    def shared() -> torch.Tensor:
        return exact + 1e-4 * torch.randn(800, 1, dtype=torch.float64, generator=draw) * direction

    for _ in range(20):
        expected = within("output", exact, shared().float(), [shared() for _ in range(3)])
        assert expected.judge(shared().float(), Accuracy.FP32)["ok"]
        wrong = shared()
        wrong[7] += 3e-3 * direction[7]
        assert not expected.is_clear(expected.judge(wrong.float(), Accuracy.FP32))  # fresh inputs will tell


def test_how_much_errors_scatter_from_row_to_row_tells_how_many_a_row_has():
    draw = torch.Generator().manual_seed(7)
    exact = torch.rand(400, 256, dtype=torch.float64, generator=draw) + 0.5
    of_elements = 1e-6 * torch.randn(400, 256, dtype=torch.float64, generator=draw)
    of_rows = 1e-6 * torch.randn(400, 1, dtype=torch.float64, generator=draw)
    several, one = (within("output", exact, (exact * (1 + error)).float(), []) for error in (of_elements, of_rows))
    assert 150 < several.errors[0] < 400 and one.errors[0] < 2
    eager = (exact * (1 + of_elements)).float()[:1]
    known, single = (within("output", exact[:1], eager, [], typical=whole.typical) for whole in (several, one))
    assert known.independent > 50 and single.independent < 2  # as many as a row of the problem's own batch


def test_some_of_millions_of_rows_tell_how_errors_scatter():
    lines = torch.ones(1, dtype=torch.float64).expand((1 << 24) + 1)  # more than torch.quantile takes
    assert _errors_in(lines, lines) > 1e6


def test_few_different_values_are_few_errors():
    """As where inputs are zeros: every pixel of a channel is its bias, with its one error."""
    channels = torch.rand(4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) + 0.5
    alike, different = channels.expand(4, 4000), channels * torch.linspace(1, 2, 4000, dtype=torch.float64)

    def used(exact: torch.Tensor) -> float:
        expected = within("output", exact, exact.float(), [noisy(exact, 0.1, 1).double()])
        return expected.judge((exact * (1 + 3.5 * EPSILON)).float(), Accuracy.FP32)["used"]

    assert used(alike) < 1 < used(different)


def test_rows_that_are_all_the_same_are_judged_like_one_of_them():
    """As where inputs are zeros: an error of a softmax's sum is that of every element of every row."""
    row = torch.rand(1, 480, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5

    def used(epsilons, rows):
        exact = row * torch.linspace(1, rows, 64, dtype=torch.float64)[:, None]
        expected = within("output", exact, exact.float(), [noisy(exact, 0.3, 1).double()])
        return expected.judge((exact * (1 + epsilons * EPSILON)).float(), Accuracy.FP32)["used"]

    assert used(2.7, rows=1) < 0.8 < 1 < used(2.7, rows=2)
    assert used(30, rows=1) > 1


def test_a_small_column_of_zeros_is_refused():
    scale = torch.ones(1, 256, dtype=torch.float64)
    scale[0, 5] = 1e-12
    expected = leaf(scale=scale)
    value = noisy(expected.exact, 4, 9)
    value[:, 5] = 0
    assert not expected.judge(value, Accuracy.FP32)["ok"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_element_that_is_not_finite_is_refused(bad):
    value = noisy(leaf().exact, 4, 9)
    value[3, 7] = bad
    judged = leaf().judge(value, Accuracy.FP32)
    assert not judged["ok"] and "1 of" in judged["note"]


def test_a_nan_of_pytorch_must_be_a_nan():
    exact = leaf().exact.clone()
    exact[0, 0] = float("nan")
    expected = within("output", exact, noisy(exact, 4, 1), [noisy(exact, 1, 2).double()])
    value = noisy(exact, 4, 9)
    assert expected.judge(value, Accuracy.FP32)["ok"]
    value[0, 0] = 0
    assert not expected.judge(value, Accuracy.FP32)["ok"]


def test_where_only_pytorch_overflows_a_candidate_may_be_either():
    exact = leaf().exact
    eager = noisy(exact, 4, 1)
    eager[0, 0] = float("inf")
    expected = within("output", exact, eager, [])
    assert expected.judge(noisy(exact, 4, 9), Accuracy.FP32)["ok"]
    assert expected.judge(eager.clone(), Accuracy.FP32)["ok"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_mostly_not_finite_is_judged_in_its_kinds_and_in_what_is_finite(value):
    exact = torch.full((40, 40), value, dtype=torch.float64)
    exact[::5] = leaf().exact[:40, :40][::5]
    expected = within("output", exact, exact.float(), [])
    assert expected.judge(exact.float(), Accuracy.FP32)["ok"]
    assert not expected.judge(exact.nan_to_num(0, 0, 0).float(), Accuracy.FP32)["ok"]
    assert not expected.judge(exact.float() * (1 + 1e-3), Accuracy.FP32)["ok"]
    again = expected.again(exact.float() * 2)
    assert again.judge(exact.float() * 2, Accuracy.FP32)["ok"]
    assert not again.judge(exact.float(), Accuracy.FP32)["ok"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_no_other(value):
    exact = torch.tensor(value, dtype=torch.float64)
    expected = within("output", exact, exact.float(), [])
    assert expected.judge(exact.float(), Accuracy.FP32)["ok"]
    assert not expected.judge(torch.tensor(0.5), Accuracy.FP32)["ok"]


def test_a_row_that_pytorch_gets_right_by_another_kernel_may_have_its_typical_error_and_no_other():
    exact = torch.rand(1, 4096, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    many = noisy(exact.expand(64, -1), 4000, 1)  # what PyTorch makes of many rows
    typical = within("output", exact.expand(64, -1), many, []).typical
    assert typical.maximum > 2 * typical.rms
    expected = within("output", exact, exact.float(), [], typical)
    assert expected.judge(noisy(exact, 4000, 9), Accuracy.TF32)["ok"]
    assert not expected.judge(noisy(exact, 12000, 9), Accuracy.TF32)["ok"]


def test_integers_on_which_float32_and_float64_differ_are_a_matter_of_rounding():
    exact, noisy_run = torch.tensor([3, 2, 4, 7]), torch.tensor([0, 1, 4, 7])
    expected = within("output", exact, torch.tensor([3, 1, 4, 7]), [noisy_run])
    assert expected.judge(torch.tensor([5, 0, 4, 7]), Accuracy.FP32)["ok"]
    assert expected.judge(torch.tensor([3, 1, 5, 7]), Accuracy.FP32)["note"] == "1 of 4 elements differ"


def test_rows_of_integers_that_are_mostly_a_matter_of_rounding_are_an_order_still_and_other_rows_are_judged():
    eager = torch.arange(4).expand(2, 4).contiguous()
    expected = within("output", torch.tensor([[1, 2, 0, 3], [1, 0, 2, 3]]), eager, [])
    assert expected.judge(torch.tensor([[3, 2, 1, 0], [1, 0, 2, 3]]), Accuracy.FP32)["ok"]
    assert expected.judge(torch.tensor([[3, 2, 1, 0], [1, 0, 3, 2]]), Accuracy.FP32)["note"] == "2 of 8 elements differ"
    assert "twice" in expected.judge(torch.tensor([[0, 0, 0, 3], [0, 1, 2, 3]]), Accuracy.FP32)["note"]


def test_rounding_does_not_excuse_another_shape():
    value = torch.tensor([1, 2])
    expected = within("output", torch.tensor([1, 2, 3]), value, [])
    assert expected.judge(value, Accuracy.FP32)["ok"] and not expected.judge(value + 1, Accuracy.FP32)["ok"]


def test_complex_numbers_are_judged_by_their_error():
    torch.manual_seed(0)
    exact = torch.fft.fft(torch.randn(16, 32, dtype=torch.float64))
    expected = within("output", exact, exact.to(torch.complex64), [])
    fuzz = 2e-7 * torch.randn(16, 32, dtype=torch.complex64)
    assert expected.judge(exact.to(torch.complex64) + fuzz, Accuracy.FP32)["ok"]
    for wrong in (exact.conj(), exact.imag + 0j, exact * (1 + 1e-5)):
        assert not expected.judge(wrong.to(torch.complex64), Accuracy.FP32)["ok"]


def test_a_type_of_lower_precision_is_judged_by_its_own_epsilon():
    torch.manual_seed(0)
    exact = torch.randn(64, 128, dtype=torch.float64)
    half = exact.bfloat16()
    expected = within("output", exact, half, [])
    other = half.clone()
    other[3, 4] = torch.nextafter(half[3, 4], half[3, 4] * 2)
    assert expected.judge(other, Accuracy.FP32)["ok"] and not expected.judge(half * 1.02, Accuracy.FP32)["ok"]


def test_what_only_float64_can_hold_is_no_measure_of_the_rest():
    exact = torch.rand(8, 32, dtype=torch.float64) + 1
    exact[0, 0] = 1e200
    expected = within("output", exact, exact.float(), [])
    assert expected.judge(exact.float(), Accuracy.FP32)["ok"]
    assert not expected.judge(exact.float() * 1.001, Accuracy.FP32)["ok"]


def test_a_statistic_of_infinities_may_be_infinite_or_nan_but_not_finite():
    exact = torch.tensor([float("inf"), *range(15)], dtype=torch.float64)
    statistic = replace(within("state", exact, exact.float(), []), either=True)
    for value, right in ((float("inf"), True), (float("nan"), True), (1.0, False)):
        mine = exact.float()
        mine[0] = value
        assert statistic.judge(mine, Accuracy.FP32)["ok"] is right
    assert not within("output", exact, exact.float(), []).judge(mine.fill_(float("nan")), Accuracy.FP32)["ok"]


def test_integers_must_be_equal():
    expected = within("output", torch.arange(4), torch.arange(4), [])
    assert expected.judge(torch.arange(4), Accuracy.FP32)["ok"]
    assert not expected.judge(torch.arange(4) + 1, Accuracy.FP32)["ok"]


def test_kernelbenchs_tolerance_is_absolute_and_relative():
    exact = torch.full((2, 8), 100.0, dtype=torch.float64)
    expected = within("output", exact, exact.float(), [])
    assert expected.judge(exact.float() + 0.009, Accuracy.KERNELBENCH)["ok"]
    assert not expected.judge(exact.float() + 0.02, Accuracy.KERNELBENCH)["ok"]
    assert not expected.judge(exact.float() + 0.009, Accuracy.FP32)["ok"]


def test_what_may_be_anything_is_not_judged():
    expected = leaf()
    value = expected.exact.float()
    places = torch.zeros(value.shape, dtype=torch.bool)
    places[3] = True
    expected.excuse(places)
    value[3] = float("nan")
    assert expected.judge(value, Accuracy.FP32)["ok"]
    value[4, 0] = float("nan")
    assert not expected.judge(value, Accuracy.FP32)["ok"]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_line_may_have_many_times_pytorchs_error_but_not_that_of_half_precision(axis):
    """Where the elements of a line share one error, PyTorch may miss it by luck in one of thousands."""
    exact = torch.rand(2000, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5
    expected = within("output", exact, noisy(exact, 1, 1), [noisy(exact, 1, 2).double()])

    def used(error):
        value = exact.float()
        line = value.narrow(axis, 7, 1)
        line.copy_(exact.narrow(axis, 7, 1) * (1 + error))
        return expected.judge(value, Accuracy.FP32)

    assert used(60 * EPSILON)["used"] < 8 and not used(2.0**-11)["ok"]


def test_a_line_of_zeros_shows_beside_lines_that_are_much_larger():
    exact = torch.rand(200, 64, dtype=torch.float64) + 0.5
    exact[7] *= 1e-9
    expected = within("output", exact, exact.float(), [noisy(exact, 1, 2).double()])
    value = exact.float()
    assert expected.judge(value, Accuracy.FP32)["ok"]
    value[7] = 0
    assert not expected.judge(value, Accuracy.FP32)["ok"]


def test_an_error_of_the_whole_may_cross_the_threshold_of_a_row_that_relu_made_zero():
    before = torch.randn(256, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    before[7] = -before[7].abs()
    before[7, 9] = -1e-6
    exact, tf32 = before.relu(), 2.0**-10  # error of TF32, which eager did not make
    expected = within("output", exact, exact.float(), [(before + tf32 * torch.randn_like(before)).relu()])
    value = exact.float()
    value[7, 9] = 2 * tf32
    assert not exact[7].any() and expected.judge(value, Accuracy.PYTORCH)["ok"]
    value[7] = 0.1
    assert not expected.judge(value, Accuracy.PYTORCH)["ok"]


def test_expected_values_judge_the_same_after_a_move():
    expected = leaf()
    moved = expected.to("meta").to("meta")
    assert moved.exact.is_meta and moved.allowed.rows.is_meta and moved.name == expected.name
    value = noisy(expected.exact, 4, 9)
    assert expected.to("cpu").judge(value, Accuracy.FP32) == expected.judge(value, Accuracy.FP32)
    assert expected.nbytes >= expected.exact.nbytes


@pytest.mark.parametrize("shape, rows, columns", [((), 1, 1), ((3,), 1, 3), ((3, 0), 3, 0), ((2, 3, 4), 6, 4), ((0, 4), 0, 4)])
def test_a_tensor_of_any_shape_has_rows_and_columns(shape, rows, columns):
    assert as_matrix(torch.empty(shape)).shape == (rows, columns)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_decides_at_the_edge_of_the_range(dtype: torch.dtype) -> None:
    """There PyTorch's result may be finite where another that is as accurate is infinite, and the other way."""
    most = torch.finfo(dtype).max
    exact = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64).repeat(8, 1) * most / 2
    exact[3, 5] = most * (1 + torch.finfo(dtype).eps / 4)
    finite, infinite = exact.to(dtype), exact.to(dtype)
    finite[3, 5], infinite[3, 5] = most, float("inf")
    for eager, candidate in ((finite, infinite), (infinite, finite)):
        assert within("output", exact, eager, []).judge(candidate, Accuracy.PYTORCH)["ok"]
    infinite[2, 9] = float("inf")
    assert not within("output", exact, finite, []).judge(infinite, Accuracy.PYTORCH)["ok"]


# Few errors: several inputs together ------------------------------------------------------------------------------


def sums(count: int, error: float, seed: int) -> tuple[list[Expected], list[torch.Tensor]]:
    """Expected values of some sums, of which PyTorch errs by about an epsilon, and values that err by ``error`` times that."""
    draw = torch.Generator().manual_seed(seed)
    exact = 1 + torch.rand(count, dtype=torch.float64, generator=draw)
    eager, mine = (exact * (1 + 3 * EPSILON * torch.randn(count, dtype=torch.float64, generator=draw) * by) for by in (1, error))
    return [within("output", x, y.double(), []) for x, y in zip(exact, eager)], [x.double() for x in mine]


@pytest.mark.parametrize("error, ok", [(1.0, True), (1.3, True), (4.0, False)])
def test_a_sum_is_judged_by_its_errors_over_32_inputs(error: float, ok: bool) -> None:
    for seed in range(20):
        (own, *others), values = sums(32, error, seed)
        row = own.pooled(values, others)
        assert row["ok"] is ok and row["runs"] == 32 and row["ratio"] == pytest.approx(error, rel=0.6)


def test_one_input_does_not_decide_about_a_sum_unless_it_is_hopeless() -> None:
    (own,), _ = sums(1, 1.0, 3)
    assert own.few and not own.is_clear(own.judge(own.exact, Accuracy.FP32))
    assert own.is_clear(own.judge(own.exact * 1.01, Accuracy.FP32))


def test_an_epsilon_of_a_sum_is_allowed_where_pytorch_is_exact() -> None:
    exact = [torch.tensor(x, dtype=torch.float64) for x in (1.0, 2.0, 1.5, 1.25)]
    own, *others = (within("output", x, x.float(), []) for x in exact)
    assert own.pooled([x * (1 + 0.9 * EPSILON) for x in exact], others)["ok"]
    assert not own.pooled([x * (1 + 1.5 * EPSILON) for x in exact], others)["ok"]


def test_inputs_that_all_give_the_same_are_one_input() -> None:
    exact = torch.tensor(1.5, dtype=torch.float64)
    own, *others = (within("output", exact, exact.float(), []) for _ in range(4))
    assert own.pooled([exact * (1 + 1.5 * EPSILON)] * 4, others)["runs"] == 1


def test_eight_inputs_are_enough_where_errors_are_well_within_what_is_allowed() -> None:
    (own, *others), values = sums(8, 0.3, 1)
    assert own.is_clear_together(own.pooled(values, others))
    (own, *others), values = sums(8, 1.9, 1)
    assert not own.is_clear_together(own.pooled(values, others))


@pytest.mark.parametrize("rows, few", [(8, True), (4096, False)])
def test_thousands_of_errors_are_not_few(rows: int, few: bool) -> None:
    exact = torch.randn(rows, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert within("output", exact, noisy(exact, 4, 1), []).few is few


def test_a_value_that_is_not_finite_over_fresh_inputs_is_refused() -> None:
    (own, *others), values = sums(8, 1.0, 1)
    values[5] = values[5] * float("nan")
    assert not own.pooled(values, others)["ok"]
