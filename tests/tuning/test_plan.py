"""``plan``: what kgen could do for a problem, on paper."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from models import NAMES, PROBLEMS, source

from kgen.errors import CaptureError, DeviceError
from kgen.problems.problem import read_problem
from kgen.tuning.plan import BEST, ModePlan, Planned, plan

LINEAR = ("self.linear = nn.Linear(8192, 8192)", "torch.randn(1024, 8192)")


def planned(tmp_path: Path, forward: str, inputs: str = "torch.randn(64, 1024)", init: str = "", arch: str = "sm_90") -> Planned:
    (tmp_path / "made_up.py").write_text(source(forward, inputs, init))
    return plan(read_problem(str(tmp_path / "made_up.py")), arch)


def only(found: Planned) -> ModePlan:
    (mode,) = found.modes
    return mode


def test_best_plan_leaves_to_the_library_what_no_kernel_computes(tmp_path: Path) -> None:
    found = planned(tmp_path, "return torch.logcumsumexp(self.linear(x).relu(), 1)", LINEAR[1], LINEAR[0])
    assert found.library_calls == ["aten.logcumsumexp.default"]
    (best, *_) = only(found).best
    assert best.reasons == (("logcumsumexp", "no kernel of ours computes aten.logcumsumexp"),)


def test_library_calls_have_one_entry_for_each_node(tmp_path: Path) -> None:
    found = planned(tmp_path, "return torch.logcumsumexp(torch.logcumsumexp(x, 1).relu(), 1)")
    assert found.library_calls == ["aten.logcumsumexp.default"] * 2


def test_views_are_no_library_calls(tmp_path: Path) -> None:
    found = planned(tmp_path, "return torch.logcumsumexp(x.unsqueeze(1), 2).relu()")
    assert found.library_calls == ["aten.logcumsumexp.default"]
    assert len(only(found).best[0].views) == 1


def test_counters_of_calls_are_no_library_calls(tmp_path: Path) -> None:
    counted = "self.n = nn.BatchNorm1d(8)"
    found = planned(tmp_path, "return torch.logcumsumexp(self.n(x), 1)", "torch.randn(64, 8)", counted)
    assert found.library_calls == ["aten.logcumsumexp.default"]
    assert any(operator.aten == "aten.add_.Tensor" for operator in only(found).operators)


def test_best_plans_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    mode = only(planned(tmp_path, "return torch.softmax(self.linear(x).relu(), 1)", LINEAR[1], LINEAR[0]))
    times = [ranked.prediction.ms for ranked in mode.best]
    assert times == sorted(times) and len(times) == BEST
    assert times[0] < mode.control.ms
    assert "x as fast as PyTorch's own operators" in mode.verdict


def test_limit_is_no_longer_than_any_plan(tmp_path: Path) -> None:
    mode = only(planned(tmp_path, "return torch.softmax(self.linear(x).relu(), 1)", LINEAR[1], LINEAR[0]))
    assert 0 < mode.limit_ms < min(ranked.prediction.ms for ranked in mode.best)


def test_problem_without_a_kernel_is_told_so(tmp_path: Path) -> None:
    mode = only(planned(tmp_path, "return torch.logcumsumexp(x, 1)"))
    assert mode.verdict == "kgen has nothing for this problem: all 1 operators stay library calls"
    assert mode.best[0].plan.control


def test_problem_that_is_fast_already_is_told_so(tmp_path: Path) -> None:
    mode = only(planned(tmp_path, "return x.relu()", "torch.randn(16384, 65536)"))
    assert "no plan is predicted to beat PyTorch" in mode.verdict
    assert mode.best[0].plan.name == "pointwise[relu]"


def test_gpu_without_tensor_cores_leaves_products_to_the_library(tmp_path: Path) -> None:
    found = planned(tmp_path, "return self.linear(x)", *reversed(LINEAR), arch="sm_75")
    assert found.library_calls == ["aten.linear.default"]
    assert only(found).best[0].reasons[0][1] == "contractions of our own need the tensor cores of sm_80 or later"


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90a", "sm_120", "cpu"])
def test_every_architecture_can_be_planned_for(tmp_path: Path, arch: str) -> None:
    found = planned(tmp_path, "return self.linear(x).relu()", *reversed(LINEAR), arch=arch)
    assert found.hardware.arch == arch or (arch, found.hardware.device_type) == ("cpu", "cpu")
    assert only(found).best[0].plan.kernels


def test_unknown_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="sm_12"):
        planned(tmp_path, "return x", arch="sm_12")


def test_forward_that_cannot_be_captured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be captured"):
        planned(tmp_path, "return x * 2 if x.sum() > 0 else x")


def test_sizes_cost_nothing(tmp_path: Path) -> None:
    tracemalloc.start()
    found = planned(tmp_path, "return self.linear(x).relu()", "torch.randn(1 << 20, 1 << 16)", "self.linear = nn.Linear(1 << 16, 1 << 16)")
    assert only(found).work.nbytes > 1 << 38
    assert tracemalloc.get_traced_memory()[1] < 1 << 28
    tracemalloc.stop()


def test_inputs_that_need_values_are_made(tmp_path: Path) -> None:
    found = planned(tmp_path, "return x.relu()", "torch.randn(int(torch.randint(6, 7, ()).item()), 20)")
    assert only(found).operators[0].shape == (6, 20)


@pytest.mark.parametrize("name", NAMES)
def test_reference_problems_are_predicted_to_be_faster(name: str) -> None:
    mode = only(plan(read_problem(str(PROBLEMS / f"{name}.py")), "sm_90"))
    assert 4.0 < mode.control.ms / mode.best[0].prediction.ms < 6.0


def test_both_modes_are_planned_where_they_differ() -> None:
    found = plan(read_problem(str(PROBLEMS / "linear_scale_batchnorm.py"), mode="both"), "sm_90")
    assert [mode.mode for mode in found.modes] == ["train", "eval"]


def test_mode_is_the_one_that_the_constructor_leaves(tmp_path: Path) -> None:
    assert planned(tmp_path, "return x.relu()", init="self.eval()").problem.mode == "eval"
