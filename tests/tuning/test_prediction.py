"""Predictions: times from bytes and operations, and the order of plans that follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.costs import library_cost
from kgen.compiler.fusion.fusion import MOST_PLANS, plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.rewrites.table import REWRITES
from kgen.devices.hardware import cpu, expected_ceilings, for_arch
from kgen.devices.kinds import KINDS
from kgen.protocol import Accuracy
from kgen.tuning import precision, prediction
from kgen.tuning.prediction import LIBRARY_CLASSES, Predictor, in_order, library_class

TEMPLATES = tuple(templates("cuda").values())
LAUNCH = KINDS["cuda"].launch_ms
LARGE = "torch.empty(16384, 65536, device='meta')"  # 4.29 GB
COPY_MS = 2 * 4 * 16384 * 65536 / 4.23e9


def captured(forward: str, inputs: str = LARGE, init: str = "", arguments: str = "x") -> OpGraph:
    return graph(made(source(forward, inputs, init, arguments), "eval"))


def plan(found: OpGraph, name: str) -> FusionPlan:
    return next(p for p in plans(found, TEMPLATES) if p.name == name)


def control(found: OpGraph) -> FusionPlan:
    return plans(found, TEMPLATES)[-1]


def h200(accuracy: Accuracy | None = None) -> Predictor:
    return Predictor(for_arch("sm_90"), accuracy)


def test_pointwise_operator_takes_a_copy_and_a_launch() -> None:
    found = captured("return x.relu()")
    assert h200().ms(control(found)) == pytest.approx(COPY_MS + LAUNCH, rel=1e-5)


def test_fused_operators_take_one_copy() -> None:
    found = captured("return x.relu().tanh()")
    assert h200().ms(plan(found, "pointwise[relu, tanh]")) == pytest.approx(COPY_MS + LAUNCH, rel=1e-5)
    assert h200().ms(control(found)) == pytest.approx(2 * (COPY_MS + LAUNCH), rel=1e-5)


def test_view_takes_no_time() -> None:
    found = captured("return x.view(-1)")
    (step,) = h200().prediction(control(found)).steps
    assert (step.ms, step.bound) == (0.0, "none")


@pytest.mark.parametrize(
    ("accuracy", "library", "own"),
    [
        (None, 51.0, 774.0 / 3),
        (Accuracy.FP32, 51.0, 774.0 / 3),
        (Accuracy.TF32, 413.0, 774.0),
    ],
)
def test_product_takes_the_rate_of_its_arithmetic(accuracy: Accuracy | None, library: float, own: float) -> None:
    found = captured("return self.linear(x)", "torch.empty(8192, 8192, device='meta')", "self.linear = nn.Linear(8192, 8192)")
    gflop = 2 * 8192**3 / 1e9
    predictor = h200(accuracy)
    assert predictor.ms(control(found)) == pytest.approx(gflop / library + LAUNCH, rel=1e-4)
    assert predictor.ms(plan(found, "contraction[linear]")) == pytest.approx(gflop / own + LAUNCH, rel=1e-4)
    assert predictor.limit_ms(found) == pytest.approx(gflop / own, rel=1e-4)


@pytest.mark.parametrize(
    ("accuracy", "rate"), [(None, 413.0), (Accuracy.TF32, 413.0), (Accuracy.FP32, 51.0), (Accuracy.KERNELBENCH, 51.0)]
)
def test_convolution_of_many_channels_is_in_tf32_by_default(accuracy: Accuracy | None, rate: float) -> None:
    found, _ = precision.predicted(captured(
        "return self.conv(x)", "torch.empty(16, 512, 64, 64, device='meta')", "self.conv = nn.Conv2d(512, 512, 3, padding=1)"
    ))
    share = library_class(found, found.nodes[0]).arithmetic
    gflop = 2 * 16 * 64 * 64 * 512 * 512 * 9 / 1e9
    assert h200(accuracy).ms(control(found)) == pytest.approx(gflop / rate / share + LAUNCH, rel=1e-4)


@pytest.mark.parametrize(
    ("forward", "init", "expected"),
    [
        ("return x.relu()", "", "one pass"),
        ("return x.sum(0)", "", "reduction"),
        ("return torch.softmax(x, 1)", "", "softmax"),
        ("return torch.cumsum(x, 1)", "", "running values"),
        ("return F.max_pool2d(x, 2)", "", "pooling"),
        ("return F.avg_pool2d(x, 2)", "", "one pass"),
        ("return self.conv(x)", "self.conv = nn.Conv2d(4, 4, 3)", "convolution, 2-d"),
        ("return self.conv(x)", "self.conv = nn.ConvTranspose2d(4, 4, 3)", "convolution, 2-d"),
        ("return self.conv(x)", "self.conv = nn.Conv2d(4, 4, 1)", "convolution, 1x1"),
        ("return self.conv(x)", "self.conv = nn.Conv2d(4, 4, 3, groups=4)", "depthwise convolution"),
    ],
)
def test_library_call_has_the_class_of_its_operator(forward: str, init: str, expected: str) -> None:
    found = captured(forward, "torch.randn(2, 4, 8, 8)", init)
    assert library_class(found, found.nodes[0]).name == expected


CONVOLUTION = "self.conv = nn.Conv2d(32, 32, 3)"


def test_channels_last_is_the_faster_convolution_on_a_cpu() -> None:
    found = captured("return self.conv(x).relu()", "torch.empty(8, 32, 64, 64, device='meta')", CONVOLUTION)
    predictor = Predictor(cpu())
    tried = plans(found, tuple(templates("cpu").values()), predictor.order)
    assert tried[0].name.startswith("transpose[copy] + conv2d_channels_last(library) + transpose[relu]")
    others = [p for p in tried if "channels_last" not in p.name]
    assert {p.name.partition("(")[0].partition("[")[0] for p in others} >= {"conv2d", "implicit_gemm"}
    assert 1.3 * predictor.ms(tried[0]) < min(map(predictor.ms, others))


def test_cost_of_channels_last_has_the_copy_of_the_images() -> None:
    found = captured("return self.conv(x).relu()", "torch.empty(8, 3, 64, 64, device='meta')", "self.conv = nn.Conv2d(3, 32, 3)")
    last = REWRITES["convolutions_channels_last"].run(found)
    costs = [library_cost(of, of.nodes[0]) for of in (found, last)]
    assert costs[1].nbytes - costs[0].nbytes == 2 * found.inputs[0].type.nbytes
    assert costs[1].flops == costs[0].flops > 0


def test_operator_is_in_one_class() -> None:
    operators = [operator for found in LIBRARY_CLASSES for operator in found.operators]
    assert len(operators) == len(set(operators))


def test_blocks_share_few_rows() -> None:
    few, many = (captured("return torch.softmax(x, 1)", f"torch.empty({n}, 16384, device='meta')") for n in (13, 13 * 132))
    times = [h200().ms(plan(found, "inner_reduction[softmax]")) - LAUNCH for found in (few, many)]
    assert times[1] / times[0] == pytest.approx(132.0, rel=1e-2)


def test_rows_that_no_chip_keeps_are_read_twice() -> None:
    found = captured("return torch.softmax(x, 1)", "torch.empty(16, 1 << 26, device='meta')")
    bytes_ms = 4 * 16 * (1 << 26) / h200().ceilings.copy_gbytes_per_second / 1e6
    assert h200().ms(plan(found, "inner_reduction[softmax]")) == pytest.approx(3 * bytes_ms + LAUNCH, rel=1e-5)


def test_cpu_has_rates_without_measuring() -> None:
    ceilings = expected_ceilings(cpu())
    assert ceilings.copy_gbytes_per_second and ceilings.float32_tflops
    assert Predictor(cpu()).ms(control(captured("return x.relu()"))) > 100


def test_ceilings_that_were_measured_are_kept() -> None:
    measured = replace(for_arch("sm_90"), copy_gbytes_per_second=3000.0, float16_tflops=None)
    ceilings = expected_ceilings(measured)
    assert (ceilings.copy_gbytes_per_second, ceilings.float16_tflops) == (3000.0, 774.0)


@pytest.mark.parametrize(("arch", "as_of"), [("sm_87", "sm_86"), ("sm_60", "sm_70"), ("sm_999", "sm_120")])
def test_unknown_gpu_has_the_ceilings_of_the_nearest_older_one(arch: str, as_of: str) -> None:
    unknown = replace(for_arch("sm_90"), arch=arch, **dict.fromkeys(vars(for_arch("sm_90").ceilings)))
    assert expected_ceilings(unknown) == for_arch(as_of).ceilings


def test_control_stands_between_plans_that_may_beat_it_and_slower_ones() -> None:
    times = {"fast": 1.0, "tie": 9.95, "also": 10.1, "slow": 12.0, "control": 10.0}
    assert in_order(["slow", "also", "tie", "fast"], "control", times.__getitem__) == ["fast", "tie", "also", "control", "slow"]


def test_plans_with_the_same_main_steps_come_behind_others() -> None:
    times = {"a": 1.0, "a again": 1.01, "b": 1.1, "control": 1.2, "c": 1.3, "b again": 1.4}
    found = in_order(["b", "b again", "a again", "c", "a"], "control", times.__getitem__, lambda plan: plan[0])
    assert found == ["a", "b", "a again", "control", "c", "b again"]


def test_small_steps_do_not_tell_plans_apart() -> None:
    """Each plan measures the softmax of the large input; only what becomes of its small result differs."""
    found = captured("return (torch.softmax(x, 1).amax(1).sigmoid() * 2.0).sum()")
    predictor = h200()
    several = [p for p in plans(found, TEMPLATES, predictor.order) if p.name.startswith("inner_reduction[softmax, amax]")]
    assert len(several) > 1 and len({predictor.main(p) for p in several}) == 1


def test_equal_small_steps_count_together() -> None:
    """No layer takes a twentieth of the time, and plans whose layers are cut otherwise are told apart."""
    found = captured("for _ in range(40):\n    x = torch.softmax(x, 1).sigmoid()\nreturn x")
    predictor = h200()
    assert len({predictor.main(p) for p in plans(found, TEMPLATES, predictor.order)}) > 1


def test_ties_keep_their_order() -> None:
    assert in_order(["b", "a"], "control", {"a": 1.0, "b": 1.0, "control": 2.0}.__getitem__) == ["b", "a", "control"]


def test_control_is_among_the_plans_that_are_kept() -> None:
    found = in_order(list(range(1, 100)), 1000, float)
    assert len(found) == MOST_PLANS and found[-1] == 1000


def test_plans_come_in_the_order_of_their_predicted_times() -> None:
    found = captured("return torch.softmax(self.linear(x).relu(), 1)", "torch.empty(1024, 8192, device='meta')",
                     "self.linear = nn.Linear(8192, 8192)")  # fmt: skip
    predictor = h200()
    times = [predictor.ms(p) for p in plans(found, TEMPLATES, predictor.order)]
    assert times == sorted(times) and len(times) > 4


@pytest.mark.parametrize(("tf32", "products", "second"), [(True, 3, True), (True, 1, False), (False, 3, False)])
def test_librarys_tf32_comes_second_where_kernels_need_three_products(tf32: bool, products: int, second: bool) -> None:
    found = captured("return F.max_pool2d(self.conv(x).tanh(), 2)", "torch.empty(512, 64, 32, 32, device='meta')", "self.conv = nn.Conv2d(64, 128, 5)")
    found = replace(found, nodes=tuple(replace(n, tf32=tf32, products=products) if "conv" in n.op else n for n in found.nodes))
    ordered = plans(found, TEMPLATES, h200().order)
    assert ordered[1].kernels and ordered[1].name.startswith("conv2d(library)") is second


@pytest.mark.parametrize(("most", "left"), [(2, {0, 2}), (1, {0})])
def test_plans_of_too_many_kernels_are_left_out(monkeypatch: pytest.MonkeyPatch, most: int, left: set[int]) -> None:
    monkeypatch.setattr(prediction, "MOST_KERNELS", most)
    found = captured("return torch.linalg.matrix_exp(x.relu()).relu()", "torch.empty(8, 4, 4)")
    assert {len(p.kernels) for p in plans(found, TEMPLATES, h200().order)} == left


def test_of_equal_plans_those_that_compute_small_values_once_come_first() -> None:
    found = plans(captured("return F.batch_norm(x, None, None, training=True)", "torch.empty(64, 64, 64, 64)"), TEMPLATES, h200().order)
    names = [p.name for p in found]
    assert names.index("inner_reduction[mean, variance, inverse_deviation] + pointwise[normalise]") < names.index(
        "inner_reduction[mean, variance] + pointwise[inverse_deviation, normalise]")
