"""Spaces: combinations, what constraints rule out, and covering sets; and the spaces that the templates declare."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from models import NAMES, design, made, reference, source, unwrapped

from kgen.candidate import COUNTABLE, Params
from kgen.codegen.registry import templates
from kgen.codegen.space import Axis, Constraint, Space
from kgen.devices.hardware import cpu, for_arch
from kgen.tuning.design import Design
from kgen.tuning.search import Point

SPACE = Space(
    dict,
    (Axis("a", (1, 2, 3)), Axis("b", ("x", "y"))),
    (
        Constraint("no_3x", ("a", "b"), "3 does not go with x", lambda s: s != {"a": 3, "b": "x"}),
        Constraint("no_2", ("a",), "2 is too small", lambda s: s["a"] != 2),
    ),
)


def test_size_counts_all_combinations() -> None:
    assert SPACE.size == 6 == len(list(SPACE.allowed())) + len(list(SPACE.ruled_out()))


def test_plainest_combination_comes_first() -> None:
    assert next(SPACE.allowed()) == {"a": 1, "b": "x"}


def test_combinations_fit_a_column_of_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    found = design(reference(NAMES[0], "eval"), cpu())
    monkeypatch.setitem(found.__dict__, "options", (SimpleNamespace(size=1 << 70),))
    assert found.combinations == COUNTABLE < 1 << 31


def test_allowed_combinations_break_no_constraint() -> None:
    assert list(SPACE.allowed()) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 3, "b": "y"}]


#: What a constraint of three axes may read, and its condition.
READINGS = {
    "a later parameter": (("b",), lambda s: s["b"] == "x"),
    "two parameters": (("c", "a"), lambda s: s["c"] < s["a"]),
    "one that the space has not": (("b", "d"), lambda s: s["b"] == "x" and s.get("d", 1) == 1),
    "nothing": ((), lambda s: True),
    "nothing, and fails": ((), lambda s: False),
}


@pytest.mark.parametrize("reading", READINGS)
def test_allowed_combinations_are_those_that_break_nothing(reading: str) -> None:
    axes = Axis("a", (1, 2)), Axis("b", ("x", "y")), Axis("c", (0, 1))
    constraints = (Constraint("one", READINGS[reading][0], "", READINGS[reading][1]), Constraint("other", ("a", "c"), "", lambda s: s["c"] < s["a"]))
    space = Space(dict, axes, constraints)
    combinations = list(Space(dict, axes).allowed())
    assert list(space.allowed()) == [p for p in combinations if all(c.holds(p) for c in constraints)]
    assert [p for p in combinations if p not in [of for of, _ in space.ruled_out()]] == list(space.allowed())


def test_constraint_is_asked_once_for_the_values_that_it_reads() -> None:
    asked = []
    space = Space(dict, SPACE.axes, (Constraint("some", ("a",), "", lambda s: not asked.append(s["a"])),))
    assert (len(list(space.allowed())), list(space.ruled_out()), asked) == (6, [], [1, 2, 3])


def test_first_broken_constraint_is_told() -> None:
    both = Space(dict, SPACE.axes, (*SPACE.constraints, Constraint("no_x", ("b",), "", lambda s: s["b"] != "x")))
    found = {(p["a"], p["b"]): of.name for p, of in both.ruled_out()}
    assert found == {(1, "x"): "no_x", (2, "x"): "no_2", (2, "y"): "no_2", (3, "x"): "no_3x"}


def test_covering_set_has_every_allowed_value() -> None:
    covering = SPACE.covering_set()
    assert {(k, v) for p in covering for k, v in p.items()} == {("a", 1), ("a", 3), ("b", "x"), ("b", "y")}


def test_covering_set_is_allowed() -> None:
    assert all(p in list(SPACE.allowed()) for p in SPACE.covering_set())


def test_space_without_axes_has_one_combination() -> None:
    assert list(Space(dict, ()).allowed()) == [{}]


# The spaces of the templates


@pytest.fixture(scope="module", params=["cpu", "sm_80", "sm_90"])
def reference_design(request: pytest.FixtureRequest) -> Design:
    hardware = cpu() if request.param == "cpu" else for_arch(request.param)
    return design(reference(NAMES[1], "train", batch_size="1024", out_features="8192"), hardware)


def test_every_kernel_has_an_allowed_combination(reference_design: Design) -> None:
    assert all(all(option.kernels) for option in reference_design.options)


def test_every_constraint_says_why(reference_design: Design) -> None:
    constraints = {c for choice in reference_design.choices for s in choice.spaces for c in s.constraints}
    assert all(c.name.isidentifier() and c.reason and "\n" not in c.reason for c in constraints)


def test_constraints_depend_on_what_they_read_and_nothing_else(reference_design: Design) -> None:
    """Each constraint of a space says the same of all combinations with the same values of the parameters that it reads."""
    schedules = templates(reference_design.hardware.device_type)
    for kernel in {id(k): k for choice in reference_design.choices for k in choice.kernels}.values():
        space = kernel.space
        parameters = schedules[kernel.label.partition("[")[0]].parameters
        assert len({c.name for c in space.constraints}) == len(space.constraints)
        combinations = [*space.allowed(), *(params for params, _ in space.ruled_out())]
        for params in random.Random(0).sample(combinations, min(20, len(combinations))):
            for constraint in space.constraints:
                assert set(constraint.reads) <= parameters.keys(), constraint.name
                axes = next(axes for axes in space.variants if all(params[a.name] in a.values for a in axes))
                others = {a.name: random.Random(1).choice(a.values) for a in axes if a.name not in constraint.reads}
                assert constraint.holds(space.schedule(**params)) == constraint.holds(space.schedule(**params | others)), constraint.name


def test_ruled_out_combinations_have_their_reasons(reference_design: Design) -> None:
    found = reference_design.rejections()
    assert found and all(r.reason and r.constraint and r.plan and r.params for r in found)


def test_reason_names_the_parameters_that_rule_a_combination_out() -> None:
    of = design(made(source("return torch.sigmoid(x)", "torch.empty(64, 1001)")), for_arch("sm_90"))
    assert {r.reason for r in of.rejections() if r.constraint == "vector_width"} == {"a row of 1001 does not divide into vectors of that width (vec)"}


def test_allowed_and_ruled_out_combinations_are_all(reference_design: Design) -> None:
    options, choices = reference_design.options, reference_design.choices
    spaces = {k: s for o, c in zip(options, choices) for k, s in reversed([*zip(o.kernels, c.spaces)])}
    ruled_out = [r for r in reference_design.rejections() if r.constraint != "device"]
    assert reference_design.kernel_combinations + len(ruled_out) == sum(s.size for s in spaces.values())


def test_kernel_of_several_plans_is_one(reference_design: Design) -> None:
    kernels = [kernel for option in reference_design.options for kernel in option.kernels]
    named = {(kernel.name, len(kernel)) for kernel in kernels}
    assert len(named) <= len(set(kernels)) < len(kernels)


def test_sum_over_kernels_is_far_less_than_the_product(reference_design: Design) -> None:
    assert 10 * reference_design.kernel_combinations < reference_design.combinations


def test_candidate_leads_back_to_its_point(reference_design: Design) -> None:
    draw = random.Random(0)
    for number, option in enumerate(reference_design.options):
        point = Point(number, option.draw(draw))
        made = reference_design.candidate(point)
        assert reference_design.point(made.plan, made.params) == point


def test_candidate_for_both_modes_leads_back_to_its_point() -> None:
    found = design(reference(NAMES[1], "both"), cpu())
    point = Point(3, found.options[3].draw(random.Random(0)))
    made = found.candidate(point)
    assert found.point(made.plan, made.params) == point


@pytest.mark.parametrize(
    ("plan", "params"), [("of another problem", {}), (None, {"k0.tile": 3}), (None, {})]
)
def test_what_a_design_has_not_leads_to_no_point(reference_design: Design, plan: str | None, params: Params) -> None:
    assert reference_design.point(plan or reference_design.options[0].name, params) is None


def test_blocks_fit_the_device() -> None:
    hardware = for_arch("sm_90")
    found = design(reference(NAMES[0], "eval", out_features="8192"), hardware)
    blocks = {p["block"] for o in found.options for k in o.kernels for p in k if "block" in p}
    assert blocks and max(blocks) <= hardware.max_threads_per_block


@pytest.mark.parametrize("columns", ["1000", "999", "1", "2"])
def test_vectors_divide_the_row(columns: str) -> None:
    found = design(reference(NAMES[0], "eval", out_features=columns), for_arch("sm_90"))
    options = [o for o in found.options if "product_to_sum" not in o.name]  # its rows are those of the operand
    widths = {p["vec"] for o in options for k in o.kernels for p in k if "vec" in p}
    assert widths and all(int(columns) % int(w) == 0 for w in widths)


@pytest.mark.parametrize(("pixels", "widest"), [("5, 3", 1), ("5, 6", 2), ("5, 12", 4)])
def test_vectors_divide_rows_of_any_batch(pixels: str, widest: int) -> None:
    """A channel's row is as long as all images: 8 of them divide into vectors that one does not."""
    loaded = made(source("return self.norm(x)", f"torch.rand(8, 16, {pixels})", "self.norm = nn.BatchNorm2d(16)"), "train")
    found = design(loaded, for_arch("sm_90"))
    (kernel,) = next(o for o in found.options if o.name.startswith("inner_reduction[mean") and len(o.kernels) == 1).kernels
    assert max(p["vec"] for p in kernel) == widest


@pytest.mark.parametrize(("columns", "device"), [
    pytest.param(columns, device, marks=[] if (device == "cpu") == (columns in ("1", "1000", "100000")) else [pytest.mark.exhaustive])
    for columns in ("1", "3", "1000", "8192", "100000") for device in ("cpu", "sm_90")])  # fmt: skip
def test_rows_of_any_length_have_a_combination(columns: str, device: str) -> None:
    hardware = cpu() if device == "cpu" else for_arch(device)
    for mode in ("train", "eval"):
        found = design(reference(NAMES[1], mode, out_features=columns), hardware)
        assert all(all(option.kernels) for option in found.options), columns


@pytest.mark.parametrize(("widths", "most"), [((128, 256, 512), 8192), ((128, 256), 2048), ((128,), 2048)])
def test_sums_of_a_lane_are_short_whatever_vectors_the_cpu_has(widths: tuple[int, ...], most: int) -> None:
    hardware = replace(cpu(), vector_bits=widths)
    found = design(reference(NAMES[0], "train", batch_size="1024", out_features="8192"), hardware)
    kernels = [kernel for option in found.options for kernel in option.kernels if kernel.name.startswith("inner_reduction")]
    assert kernels and {max(int(params["tile"]) for params in kernel) for kernel in kernels} == {most}


def test_rows_too_long_for_a_block_come_through_the_shared_memory_of_a_team() -> None:
    loaded = made(source("return x / x.abs().mean(1, keepdim=True)", "torch.empty(64, 400000)"))
    of = design(loaded, for_arch("sm_90"))
    first = of.options[0].kernels[0][0]
    assert (first["row"], first["merge"]) == ("shared", "team")
    text = of.candidate(Point(0, (0,))).source
    assert "copy_async" in text and "take(row + teams, step" in text


def first_point(forward: str, inputs: str) -> Params:
    """The first point of the most fused plan's first kernel on an H200."""
    return design(made(source(forward, inputs)), for_arch("sm_90")).options[0].kernels[0][0]


def test_rows_of_half_types_that_crowd_registers_are_read_again_first_and_shared_memory_takes_vectors_of_16_bytes() -> None:
    of = design(made(source("return torch.softmax(x, 1)", "torch.empty(512, 393216).bfloat16()")), for_arch("sm_90"))
    first, *others = of.options[0].kernels[0]
    assert (first["row"], first["merge"], first["vec"]) == ("reread", "cluster", 8)
    assert {p["vec"] for p in others if (p["row"], p["merge"]) == ("shared", "team")} == {8}


def test_a_warp_takes_a_short_row_first_and_one_row_is_cut_into_parts_of_128_kilobytes() -> None:
    first = first_point("return torch.softmax(x, 1)", "torch.empty(16384, 512)")
    assert (first["row_per"], first["vec"]) == ("warp", 4)
    first = first_point("return x.square().mean()", "torch.empty(1 << 15, 1 << 15)")
    assert (first["block"], first["blocks"]) == (512, (1 << 32) // (128 << 10))


def test_moments_of_few_columns_are_split_over_blocks_first() -> None:
    forward = "return torch.nn.functional.batch_norm(x + 1, None, None, training=True)"
    of = design(made(source(forward, "torch.empty(16384, 4096)")), for_arch("sm_90"))
    kernels = {p[0]["splits"] for option in of.options for p in option.kernels if p.name.startswith("outer_reduction")}
    assert kernels == {4}


def test_first_team_is_the_smallest_that_holds_a_row_and_keeps_most_of_the_device_busy() -> None:
    of = design(made(source("return torch.softmax(x, 1)", "torch.empty(512, 393216)")), for_arch("sm_90"))
    points = of.options[0].kernels[0]
    first, resident = points[0], for_arch("sm_90").multiprocessors * 1024 // int(points[0]["block"])
    blocks = int(first["blocks"])
    assert blocks == min(int(p["blocks"]) for p in points if p["row"] == "shared" and p["block"] == first["block"])
    assert resident // blocks * blocks > 0.95 * resident


def test_long_rows_of_odd_length_stay_in_the_registers_of_a_cluster_first() -> None:
    first = first_point("return x / x.abs().mean(1, keepdim=True)", "torch.empty(4096, 65535)")
    assert (first["row"], first["merge"]) == ("registers", "cluster")


@pytest.mark.parametrize(("columns", "way"), [("32, 32", "two_pass"), ("512, 512", "online")])
def test_moments_of_rows_that_no_block_keeps_take_one_pass_first(columns: str, way: str) -> None:
    first = first_point("return F.group_norm(x, 8)", f"torch.empty(64, 64, {columns})")
    assert first["moments"] == way


@pytest.mark.parametrize("columns", [4095, 4096])
def test_lines_take_several_rows_first_whether_they_are_aligned_or_not(columns: int) -> None:
    first = first_point("return x.sum(1)", f"torch.empty(8, 512, {columns})")
    assert (first["row_per"], first["rows"]) == ("line", 2)


def test_only_the_last_step_of_a_kept_row_is_tested() -> None:
    of = design(made(source("return torch.softmax(x, 1)", "torch.empty(512, 1001)")), for_arch("sm_90"))
    points = of.options[0].kernels[0]
    number = next(n for n, p in enumerate(points) if (p["block"], p["row_per"], p["row"]) == (128, "block", "registers"))
    assert "if (step < 7 || col < 1001) {" in of.candidate(Point(0, (number,))).source


def behind_library(forward: str, inputs: str) -> Design:
    """A design in which the library computes what the kernels read."""
    return design(made(source(f"x = torch.linalg.matrix_exp(x)\n{forward}", inputs)), for_arch("sm_90"))


@pytest.mark.parametrize(("rows", "orders", "first"), [(64, set(), False), (1024, {"backward", "forward"}, True), (32768, {"backward", "forward"}, False)])
def test_blocks_go_backwards_over_what_the_cache_still_has(rows: int, orders: set[str], first: bool) -> None:
    of = behind_library("return F.relu(x)", f"torch.empty({rows}, 128, 128)")
    assert {p["order"] for p in of.options[0].kernels[0] if "order" in p} == orders
    assert ("gridDim.x - 1 - blockIdx.x" in of.candidate(Point(0, (0,))).source) == first


def test_blocks_take_all_rows_of_a_tile_first_where_rows_share_more_than_the_cache_holds() -> None:
    parameter, x = "self.w = nn.Parameter(torch.empty(4194304))", "torch.empty(4, 4194304)"
    of = design(made(source("return torch.sigmoid(x) * self.w", x, parameter)), for_arch("sm_90"))
    points = of.options[0].kernels[0]
    assert points[0]["order"] == "across" and {p["index"] for p in points if p["order"] == "across"} == {"tiled"}
    text = of.candidate(Point(0, (0,))).source
    assert "const long long row = blockIdx.x;" in text and "dim3(static_cast<unsigned>(blocks), 8192)" in text


def test_results_that_the_cache_cannot_hold_pass_it_if_a_plan_has_other_steps() -> None:
    alone, large, small = (
        design(made(source(f"return torch.sigmoid({x})", f"torch.empty({rows}, 128, 128)")), for_arch("sm_90")).candidate(Point(0, (0,))).source
        for x, rows in (("x", 2048), ("torch.linalg.matrix_exp(x)", 2048), ("torch.linalg.matrix_exp(x)", 64))
    )
    assert "load_vector<4>(linalg_matrix_exp_in" in large and "stream_vector<4>(sigmoid_out" in large
    assert "load_vector_once<4>(" not in large  # past the cache, loads of 4 GB took 2% longer on an H200
    assert not any(f"{word}<4>(" in text for text in (alone, small) for word in ("load_vector_once", "stream_vector"))


@pytest.mark.parametrize(("vec", "load", "value"), [(4, "x_vector[item] = load_vector<4>(x_in", "x_vector[item].v[j]"), (1, "x_item[item] = x_in[", "x_item[item]")])
def test_a_thread_loads_all_of_its_items_before_it_computes_one(vec: int, load: str, value: str) -> None:
    of = design(made(source("return torch.sigmoid(x)", "torch.empty(64, 4096)")), for_arch("sm_90"))
    number = next(n for n, p in enumerate(of.options[0].kernels[0]) if (p["vec"], p["items"]) == (vec, 2))
    text = of.candidate(Point(0, (number,))).source
    assert text.index(load) < text.index("for (int item = 0; item < 2", text.index(load)) < text.index(f"const float x = {value};")
    assert "for (int item" not in of.candidate(Point(0, (0,))).source  # one item needs no loop


def test_a_result_that_a_later_step_reads_stays_in_the_cache() -> None:
    of = design(made(source("return x - torch.linalg.matrix_exp(torch.sigmoid(x))", "torch.empty(1024, 128, 128)")), for_arch("sm_90"))
    text = of.candidate(Point(0, (0, 0))).source
    first = text[text.index("sigmoid_kernel(") : text.index("sub_kernel(")]
    assert "load_vector<4>(x_in" in first and "store_vector<4>(sigmoid_out" in first
    assert "stream_vector<4>(sub_out" in text


@pytest.mark.parametrize(
    ("images", "blocks", "row", "teams"), [("64, 64, 512, 512", 66, "reread", "rows < 4 ? rows : 4"), ("16, 8, 4096, 4096", 264, "reread", "1")]
)
def test_few_long_rows_are_read_again_where_they_fit(images: str, blocks: int, row: str, teams: str) -> None:
    of = design(made(source("return F.group_norm(x, 8)", f"torch.empty({images})")), for_arch("sm_90"))
    first = of.options[0].kernels[0][0]
    assert (first["merge"], first["blocks"], first["row"]) == ("team", blocks, row)
    text = of.candidate(Point(0, (0,))).source
    assert f"const long long most = {teams};" in text and "__launch_bounds__(512, 2)" in text


def test_a_thread_goes_backwards_over_its_own_columns() -> None:
    of = design(made(source("return torch.softmax(x, 1)", "torch.empty(512, 100000)")), for_arch("sm_90"))
    points = of.options[0].kernels[0]
    number = next(n for n, p in enumerate(points) if (p["block"], p["row"], p["blocks"], p["vec"]) == (1024, "reread", 1, 4))
    loop = "for (int col = lane * 4 < 100000 ? lane * 4 + (100000 - 1 - lane * 4) / 4096 * 4096 : -1; col >= 0; col -= 4096) {"
    assert loop in unwrapped(of.candidate(Point(0, (number,))).source)


@pytest.mark.parametrize(("rows", "streamed"), [(64, False), (1024, True)])
def test_results_that_the_cache_cannot_hold_are_written_past_it(rows: int, streamed: bool) -> None:
    found = design(made(source("return torch.softmax(x, 1)", f"torch.empty({rows}, 32768)")), for_arch("sm_90"))
    assert ("stream_vector<4>(softmax_out" in found.candidate(Point(0, (0,))).source) == streamed


def test_conditions_that_follow_the_row_are_found_for_each_row_of_a_block() -> None:
    """A stack of three parts: which of them a row lies in follows from its number."""
    init = "self.conv = nn.ConvTranspose2d(64, 8, 3, stride=2, padding=1, output_padding=1)"
    of = design(made(source("return (self.conv(x) * 0.5).mean((2, 3))", "torch.empty(16, 64, 128, 128)", init)), for_arch("sm_90"))
    points = [[next((p for p, params in enumerate(kernel) if params.get("rows") == 2), 0) for kernel in option.kernels] for option in of.options[:4]]
    texts = [of.candidate(Point(number, tuple(found))).source for number, found in enumerate(points)]
    assert any("within[r] = row % 3 < 2;" in text for text in texts)
    assert not any("    const bool within = row % 3" in text for text in texts)
