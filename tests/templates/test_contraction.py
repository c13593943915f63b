"""The schedule of contractions: where it is offered, its space, its launcher's memory, and weights that are split once."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from models import NAMES, design, made, module, plainest, reference, source, unwrapped
from torch.utils import cpp_extension

from kgen.candidate import Candidate, Params, ParamValue
from kgen.codegen.space import Space
from kgen.devices.hardware import cpu, for_arch
from kgen.evaluator.candidates.build import read_extension
from kgen.protocol import Accuracy
from kgen.templates.cuda.contraction import template
from kgen.tuning.design import Design
from kgen.tuning.search import STRATEGIES, Point

FULL = {"batch_size": "1024", "in_features": "8192", "out_features": "8192"}
LINEAR = "self.linear = nn.Linear(12, 20)"


def bare(rows: int, k: int, n: int, arch: str = "sm_90", accuracy: Accuracy = Accuracy.FP32) -> Design:
    """A linear layer alone."""
    text = source("return self.linear(x)", f"torch.randn({rows}, {k})", f"self.linear = nn.Linear({k}, {n})")
    return design(made(text), for_arch(arch), accuracy)


def contraction_space(of: Design) -> Space:
    """The space of the first kernel of the first plan."""
    return of.choices[0].spaces[0]


def values(space: Space, axis: str) -> set:
    return {p[axis] for p in space.allowed()}


def own(of: Design) -> list[Params]:
    """The combinations of that space whose kernels multiply themselves."""
    return [p for p in contraction_space(of).allowed() if p["variant"] != "library"]


# Where it is offered


def test_cpu_has_contractions_of_its_own_beside_the_library() -> None:
    for name in NAMES:
        options = [o.name for o in design(reference(name, "eval"), cpu()).options]
        assert any("contraction[" in option for option in options) and any("linear(library)" in option for option in options)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_gpu_without_the_tensor_cores_has_no_contractions_of_its_own(arch: str) -> None:
    of = design(reference(NAMES[0], "eval"), for_arch(arch))
    assert "contraction" not in "".join(o.name for o in of.options)


def test_gpu_without_the_tensor_cores_says_what_it_lacks() -> None:
    found = [r for r in design(reference(NAMES[0], "both"), for_arch("sm_75")).rejections() if "contraction" in r.plan]
    assert "contraction[linear] + inner_reduction[gelu, softmax]" in {r.plan for r in found}
    assert {r.reason for r in found} == {"contractions of our own need the tensor cores of sm_80 or later"}


@pytest.mark.parametrize(
    ("arch", "variants"),
    [("sm_80", {"sm80"}), ("sm_86", {"sm80"}), ("sm_90", {"sm90", "sm80"}), ("sm_90a", {"sm90", "sm80"}), ("sm_100", {"sm80"})],
)
def test_variants_are_those_of_the_architecture(arch: str, variants: set[str]) -> None:
    assert values(contraction_space(bare(512, 512, 512, arch)), "variant") == {*variants, "whole", "library"}


@pytest.mark.parametrize(
    ("forward", "right"),
    [("x @ y", (4096, 8192)), ("x @ y.mT", (8192, 4096)), ("x.mT @ y", (4096, 8192)), ("x.mT @ y.mT", (8192, 4096)), ("torch.bmm(x[None], y[None])", (4096, 8192))],
)
def test_wgmma_comes_first_for_large_products_of_half_types_in_any_layout(forward: str, right: tuple[int, int]) -> None:
    inputs = ", ".join(f"torch.empty({size}, dtype=torch.bfloat16)" for size in ((4096, 4096), right))
    of = design(made(source(f"return {forward}", inputs, "", "x, y")), for_arch("sm_90a"), Accuracy.PYTORCH)
    first = next(contraction_space(of).allowed())
    assert (first["variant"], first["tile"], first["swizzle_group"]) == ("sm90", "128x256", 16)


@pytest.mark.parametrize("name", [NAMES[1], NAMES[3]])
def test_pytorch_keeps_no_statistics_of_contractions_of_our_own(name: str) -> None:
    found = [o.name for o in design(reference(name, "train"), for_arch("sm_90")).options]
    assert any("contraction[" in n for n in found) and any("batch_norm(library)" in n for n in found)
    assert not any("contraction[" in n and "batch_norm(library)" in n for n in found)


def test_pytorch_keeps_statistics_that_cannot_be_our_own() -> None:
    text = source("return self.norm(self.linear(x))", "torch.randn(6, 20, 12)", f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)")
    found = [o.name for o in design(made(text, "train"), for_arch("sm_90")).options]
    assert "contraction[linear] + batch_norm(library)" in found


# The space


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 1111, 999), (64, 8192, 8192), (1024, 8192, 8192), (16384, 4096, 4096)])
def test_contractions_of_any_size_have_a_combination(arch: str, sizes: tuple[int, int, int]) -> None:
    assert any(contraction_space(bare(*sizes, arch)).allowed())


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_stages_fit_the_shared_memory(arch: str) -> None:
    of = bare(1024, 8192, 8192, arch)
    for params in (p for p in contraction_space(of).allowed() if p["variant"] != "library"):
        text = of.candidate(point(of, params)).source
        sizes = [int(v) for v in re.findall(r"constexpr int (?:STAGES|SLOTS) = (\d+);", text)]
        rows, cols, k = map(int, re.search(r"BLOCK_M = (\d+), BLOCK_N = (\d+), BLOCK_K = (\d+)", text).groups())
        stage = 65536 / 2 if params["variant"] == "sm90" else 4 * k * (rows + cols)
        assert sizes[0] * stage <= of.hardware.shared_bytes_per_block


def test_small_batches_are_split_along_k() -> None:
    assert max(p["splits"] for p in own(bare(64, 8192, 8192))) == 4


@pytest.mark.parametrize(
    ("sizes", "variant", "tile", "splits", "cluster"),
    [
        ((1, 8192, 8192), "sm90", "64x256", 4, 1),
        ((64, 8192, 8192), "sm90", "64x256", 4, 1),
        ((256, 8192, 8192), "sm90", "128x128", 1, 1),
        ((512, 4096, 4096), "sm90", "128x128", 1, 1),
        ((1024, 8192, 8192), "sm90", "128x256", 1, 1),
        ((16384, 4096, 4096), "sm90", "128x256", 1, 1),
        ((2048, 2048, 2048), "sm90", "128x256", 1, 1),
        ((1024, 1024, 1024), "sm90", "128x128", 1, 2),
        ((1000, 1111, 999), "sm90", "128x128", 1, 2),
        ((512, 512, 512), "sm90", "128x128", 1, 4),
    ],
)
def test_first_combination_is_what_was_fastest_on_an_h200(
    sizes: tuple[int, int, int], variant: str, tile: str, splits: int, cluster: int
) -> None:
    first = next(contraction_space(bare(*sizes)).allowed())
    assert (first["variant"], first["tile"], first["splits"], first["cluster"]) == (variant, tile, splits, cluster)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [((16384, 4096, 4096), "128x256"), ((512, 4096, 4096), "64x128/2"), ((1024, 1024, 1024), "64x64/4")],
)
def test_first_combination_of_warps_is_what_was_fastest_on_an_h200(sizes: tuple[int, int, int], tile: str) -> None:
    assert next(p for p in contraction_space(bare(*sizes)).allowed() if p["variant"] == "sm80")["tile"] == tile


def test_first_combination_of_whole_rows_is_what_was_fastest_on_an_h200() -> None:
    first = next(p for p in contraction_space(bare(512, 512, 512)).allowed() if p["variant"] == "whole")
    assert (first["tile"], first["stages"], first["swizzle_group"]) == ("32x64", 4, 8)


@pytest.mark.parametrize("sizes", [(1024, 1024, 1024), (1000, 1111, 999), (1024, 8192, 8192)])
def test_whole_rows_are_for_small_products(sizes: tuple[int, int, int]) -> None:
    assert "whole" not in values(contraction_space(bare(*sizes)), "variant")


def test_rows_that_do_not_fit_are_not_split_whole() -> None:
    found = [r for r in bare(64, 2000, 64).rejections() if r.params["k0.variant"] == "whole"]
    assert "shared_memory" in {r.constraint for r in found}


def test_whole_rows_take_one_launch_and_no_memory() -> None:
    text = candidate(bare(512, 512, 512), variant="whole").source
    launcher = text[text.index('extern "C" int linear(') :]
    assert launcher.count("launch_early(") == 1 and "launch_early(contraction_kernel" in unwrapped(launcher)
    assert "workspace" not in text and "repair_rows" not in text


def test_statistics_of_whole_rows_have_memory() -> None:
    text = source("return self.norm(self.linear(x))", "torch.randn(512, 512)", "self.linear, self.norm = nn.Linear(512, 512), nn.BatchNorm1d(512)")
    of = design(made(text, "train"), for_arch("sm_90"))
    number = next(n for n, o in enumerate(of.options) if o.name.startswith("contraction[linear, moments]"))
    kernel, *others = of.options[number].kernels
    params = next(p for p in kernel if p["variant"] == "whole")
    found = of.candidate(Point(number, (kernel.index(params), *(0 for _ in others)))).source
    assert re.search(r"\(batch_size \+ 15\) // 16 \* (1024|4096)\b", found)


def test_a_right_operand_that_is_no_weight_is_not_read_by_blocks_that_split_whole_rows() -> None:
    of = design(made(source("return torch.matmul(x, y)", "torch.randn(512, 512), torch.randn(512, 512)", "", "x, y")), for_arch("sm_90"))
    assert "whole" not in values(contraction_space(of), "variant")
    assert "whole_rows" in {r.constraint for r in of.rejections()}


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [((32768, 64, 32768), "192x128"), ((32768, 32, 32768), "192x128"), ((32768, 128, 32768), "128x128+"), ((4096, 4096, 4096), "128x256")],
)
def test_warpgroups_multiply_in_turns_or_have_tiles_of_their_own_where_storing_takes_as_long_as_multiplying(sizes: tuple[int, int, int], tile: str) -> None:
    assert next(contraction_space(of_inputs(*sizes)).allowed())["tile"] == tile


def test_each_warpgroup_with_a_tile_of_its_own_has_a_ring() -> None:
    """In a ring of both, it would not see the phases of the other's slots."""
    text = candidate(of_inputs(32768, 256, 32768), tile="128x128+").source
    assert "constexpr int SLOTS = 3;" in text and "Place place = {group * SLOTS};" in text and "barrier_init(empty + 8 * i, 4);" in text


@pytest.mark.parametrize(("arch", "k", "once"), [("sm_90", 8192, True), ("sm_90", 8256, False), ("sm_80", 4096, False)])
def test_columns_that_a_cluster_has_room_for_are_read_once(arch: str, k: int, once: bool) -> None:
    of = design(made(source("return x @ y", f"torch.empty(4096, {k}), torch.empty({k}, 4096)", "", "x, y")), for_arch(arch))
    assert ("split_strips<" in plainest(of, 1)[0].source) == once


def test_a_tile_of_x_that_has_all_of_k_is_kept_along_a_row_of_tiles() -> None:
    """The next one is loaded meanwhile, and so are the exponents of the next tile of y."""
    text = candidate(of_inputs(32768, 64, 32768), tile="192x128").source
    assert "constexpr int X_SLOTS = 2;" in text and "if (work.row != kept.row) load_x(work.row);" in text
    assert "tile_of(index, tiles_m, tiles_n, 1, tile_m, tile_n);" in text and "ahead = exponents_of(index + stride);" in text


def test_three_warpgroups_share_tiles_of_x_and_a_ring_of_tiles_of_w() -> None:
    """Their registers add up to those of a multiprocessor, and each of the twelve warps frees what it has used."""
    text = candidate(of_inputs(32768, 64, 32768), tile="192x128").source
    assert "constexpr int SLOTS = 4;" in text and "constexpr int THREADS = 512;" in text and "barrier_init(empty + 8 * i, 12);" in text
    assert "setmaxnreg.dec.sync.aligned.u32 24;" in text and "setmaxnreg.inc.sync.aligned.u32 160;" in text


@pytest.mark.parametrize(("k", "last"), [(64, "if (k == 3) give_turn();"), (32, "if (k == 1) give_turn();"), (16, "give_turn();")])
def test_a_turn_goes_on_before_the_last_products_are_waited_for(k: int, last: str) -> None:
    text = candidate(of_inputs(32768, k, 32768), tile="192x128").source
    multiplying = text[text.index("take_turn();") : text.index("release(place);")]
    assert re.search(rf"multiply\([^;]*\);\s*{re.escape(last)}\s*wgmma_wait<0>\(\);", multiplying)
    assert multiplying.count("give_turn();") == 1 and ("part" in multiplying) == (k > 16)


@pytest.mark.parametrize(("rows", "k", "offered"), [(32768, 64, True), (32768, 1, True), (32768, 65, False), (4096, 64, True), (1024, 64, False)])
def test_warpgroups_take_turns_at_short_sums_of_many_results(rows: int, k: int, offered: bool) -> None:
    of = of_inputs(rows, k, 4000)
    found = [p for p in own(of) if p["tile"] == "192x128"]
    assert [(p["promotion_interval"], p["swizzle_group"]) for p in found] == [(16, 16)] * offered
    assert offered or "tiles_in_turns" in {r.constraint for r in of.rejections() if r.params["k0.tile"] == "192x128"}


@pytest.mark.parametrize(("forward", "balanced"), [("torch.triu(x @ y)", True), ("(x @ y).relu()", False), ("torch.triu(x.mT @ y)", False)])
def test_operands_of_triangles_are_balanced(forward: str, balanced: bool) -> None:
    """Any other result has all of k."""
    of = design(made(source(f"return {forward}", "torch.empty(999, 999), torch.empty(999, 999)", "", "x, y")), for_arch("sm_90"))
    assert ("balance_rows<" in plainest(of, 1)[0].source) == balanced


def of_inputs(rows: int, k: int, n: int) -> Design:
    """A product of two inputs."""
    return design(made(source("return x @ y", f"torch.empty({rows}, {k}), torch.empty({k}, {n})", "", "x, y")), for_arch("sm_90"))


def test_slices_come_first_for_long_sums_of_few_results() -> None:
    first = next(contraction_space(of_inputs(256, 524288, 256)).allowed())
    assert (first["variant"], first["splits"]) == ("slices", 33)  # times four tiles: all multiprocessors


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (1024, 1024, 1024), (512, 1024, 2048)])
def test_slices_are_left_out_where_operands_are_read_often(sizes: tuple[int, int, int]) -> None:
    assert "slices" not in values(contraction_space(of_inputs(*sizes)), "variant")


@pytest.mark.parametrize(("k", "n"), [(99998, 64), (99996, 65)])
def test_slices_are_of_rows_that_begin_at_multiples_of_16_bytes(k: int, n: int) -> None:
    of = of_inputs(64, k, n)
    assert "slices" not in values(contraction_space(of), "variant")
    assert "slices_of_inputs" in {r.constraint for r in of.rejections()}


def test_a_weight_is_not_split_in_slices() -> None:
    assert "slices" not in values(contraction_space(bare(256, 524288, 256)), "variant")


def test_slices_take_memory_for_sums_and_exponents_alone() -> None:
    text = candidate(of_inputs(256, 524288, 256), variant="slices").source
    assert "workspace = x.new_empty(batch_size * 8449 + 256 * 1 + 3)" in text and "split_rows" not in text


@pytest.mark.parametrize(("n", "shared"), [(256, {1, 2}), (384, {1}), (128, {1})])
def test_blocks_share_slices_of_x_in_pairs(n: int, shared: set[int]) -> None:
    assert {p["multicast"] for p in own(of_inputs(256, 524288, n)) if p["variant"] == "slices"} == shared


def test_warps_share_a_strip_of_many_partial_sums() -> None:
    assert "for (int split = warp; split < 16; split += 8)" in candidate(bare(64, 8192, 1000), splits=16).source
    assert "for (int split = 0; split < 4; ++split)" in candidate(bare(64, 8192, 8192), splits=4).source


@pytest.mark.parametrize(("k", "call"), [(33, "split_short_rows<33, 64, 8, 2>"), (200, "split_short_rows<200, 256, 32, 2>"), (300, "split_rows<300, 320, 64, 1, 2>")])
def test_a_block_splits_several_short_rows(k: int, call: str) -> None:
    assert call in candidate(of_inputs(4096, k, 4096), variant="sm90").source


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_space_is_small(arch: str) -> None:
    assert all(len(list(contraction_space(bare(n, n, n, arch)).allowed())) <= 36 for n in (64, 512, 1024, 4096))


def test_combinations_that_cannot_win_are_ruled_out() -> None:
    found = [r for r in bare(1024, 1024, 1024).rejections() if r.constraint == "slow"]
    assert {r.params["k0.tile"] for r in found} >= {"128x256"}


@pytest.mark.parametrize("accuracy", [Accuracy.FP32, Accuracy.KERNELBENCH])
def test_one_product_is_ruled_out_where_float32_is_asked_for(accuracy: Accuracy) -> None:
    of = bare(1024, 8192, 8192, accuracy=accuracy)
    assert values(contraction_space(of), "products") == {3}
    assert "one_product" in {r.constraint for r in of.rejections()}


@pytest.mark.parametrize("sizes", [(64, 8192, 8192), (1000, 1111, 999), (1024, 8192, 8192)])
def test_one_product_comes_first_where_tf32_is_asked_for(sizes: tuple[int, int, int]) -> None:
    assert next(contraction_space(bare(*sizes, accuracy=Accuracy.TF32)).allowed())["products"] == 1


def test_one_product_takes_half_the_memory() -> None:
    text = candidate(bare(1024, 8192, 8192, accuracy=Accuracy.TF32), products=1).source
    assert "batch_size * 4097)" in text and "new_empty(33562624)" in text  # 8192 x 8192 / 2 and 8192 exponents


def test_k_is_split_in_one_way() -> None:
    assert all(p["splits"] == 1 or p["cluster"] == 1 for p in own(bare(64, 8192, 8192)))


def test_full_chips_are_hardly_split_along_k() -> None:
    assert {p["splits"] for p in own(bare(16384, 4096, 4096))} == {1}


def test_short_sums_are_not_split_along_k() -> None:
    assert {p["splits"] for p in own(bare(64, 500, 8192))} == {1}


def test_tiles_of_w_are_shared_where_large_tiles_fill_the_chip() -> None:
    assert {p["tile"] for p in own(bare(16384, 4096, 4096)) if p["multicast"] == 2} == {"128x256"}
    assert {p["multicast"] for p in own(bare(512, 4096, 4096))} == {1}
    assert values(contraction_space(bare(16384, 4096, 4096, "sm_80")), "multicast") == {1}


def test_small_tiles_of_w_are_shared_where_sums_are_short() -> None:
    assert {p["tile"] for p in own(bare(32768, 1024, 4096)) if p["multicast"] == 2} == {"128x256", "128x128"}


def test_terms_of_weights_may_be_rounded_where_sums_are_long() -> None:
    of = bare(128, 32768, 8192)
    assert own(of)[0]["term_bits"] == "9+9"
    assert {(p["variant"], p["term_bits"]) for p in own(of)} == {("sm90", "9+9"), ("sm90", "11+11"), ("sm80", "11+11")}
    text = candidate(of, term_bits="9+9").source
    assert text.count("split_rows<32768, 32768, 1024, 4, 2, false, true>(") == 2 and "linear_weight_split_short" in text
    assert "split_long_rows<40000, 40000, 1024, 2, true>" in candidate(bare(128, 40000, 8192), term_bits="9+9").source
    assert not any("term_bits" in p for other in (bare(128, 16384, 8192), of_inputs(128, 32768, 8192)) for p in own(other))


def test_blocks_that_share_tiles_of_w_wait_for_each_other() -> None:
    text = unwrapped(candidate(bare(16384, 4096, 4096), multicast=2).source)
    assert "barrier_init(empty + 8 * i, 16);" in text and "LD, 64))" in text and text.count("cluster_sync();") == 2


def test_small_products_have_accumulators_of_their_own_where_sums_are_longer() -> None:
    of = bare(256, 8192, 8192)
    assert {p["tile"] for p in own(of) if p["promotion_interval"] == 128} <= {"128x128", "64x256"}
    text = candidate(of, promotion_interval=128).source
    assert "wgmma(small, a_lo, b_hi, first);" in text and "wgmma(large, a_hi, b_hi, first);" in text
    assert "if (step % 2 == 1 || step + 1 == LD / BLOCK_K) add_up(sums, small, large);" in text


def test_short_sums_take_short_intervals() -> None:
    """On positive data, a float32 sum of 64 products is more exact than an interval of 64, and one of 256 than one of 128."""
    def of_sm90(of: Design) -> set[ParamValue]:
        return {p["promotion_interval"] for p in own(of) if p["variant"] == "sm90"}

    assert of_sm90(bare(256, 64, 8192)) == {16}
    assert of_sm90(bare(256, 256, 8192)) == {64}
    assert of_sm90(bare(256, 512, 8192)) == {64, 128}


def test_few_results_take_short_intervals_and_are_not_left_to_the_library() -> None:
    """Many threads of PyTorch share such a sum: on positive data, it is more exact than an interval of 64, however long it is."""
    few, more = (list(contraction_space(bare(rows, 8192, 1000)).allowed()) for rows in (1, 5))
    assert {p["promotion_interval"] for p in few if p["variant"] == "sm90"} == {16}
    assert {p["promotion_interval"] for p in more if p["variant"] == "sm90"} == {64, 128}
    assert "library" not in {p["variant"] for p in few} and "library" in {p["variant"] for p in more}


def test_kernels_of_a_contraction_start_while_the_one_before_ends() -> None:
    """Each waits for it before it touches memory."""
    text = candidate(bare(64, 8192, 8192), splits=4).source
    kernels = re.findall(r"__global__ .*?\n}\n", text, re.DOTALL)
    assert len(kernels) == 4 and all("wait_for_previous();" in kernel for kernel in kernels)
    assert "<<<" not in text and "__restrict__ partial" not in text


def test_statistics_have_memory_for_the_moments_of_each_strip() -> None:
    text = source("return self.norm(self.linear(x))", "torch.randn(300, 200)", "self.linear, self.norm = nn.Linear(200, 133), nn.BatchNorm1d(133)")
    of = design(made(text, "train"), for_arch("sm_90"))
    first = plainest(of, 1)[0]
    assert "moments]" in first.plan and "+ (batch_size + 15) // 16 * 272)" in first.source  # two for each of 136 columns


def test_first_combination_is_for_the_newest_instructions() -> None:
    assert next(contraction_space(bare(1024, 8192, 8192)).allowed())["variant"] == "sm90"


def test_search_goes_through_all_variants() -> None:
    of = bare(512, 512, 512)
    search, seen = STRATEGIES["exhaustive"](of.options[:1]), set()
    while (found := search.ask()) is not None:
        search.tell(found, 1.0)
        seen.add(of.options[0].kernels[0][found.choice[0]]["variant"])
    assert seen == {"sm90", "sm80", "whole", "library"}


# The file


def point(of: Design, params: dict) -> Point:
    """The first plan with these parameters of the contraction, and the plainest of the others."""
    kernels = of.options[0].kernels
    return Point(0, (kernels[0].index(params), *(0 for _ in kernels[1:])))


def candidate(of: Design, **wanted: object) -> Candidate:
    """The first combination of the first plan's contraction that has these parameters."""
    params = next(p for p in of.options[0].kernels[0] if all(p[k] == v for k, v in wanted.items()))
    return of.candidate(point(of, params))


@pytest.mark.parametrize(
    ("arch", "variant", "flag"),
    [
        ("sm_90", "sm90", "-gencode=arch=compute_90a,code=sm_90a"),
        ("sm_90", "sm80", "-gencode=arch=compute_90,code=sm_90"),
        ("sm_86", "sm80", "-gencode=arch=compute_86,code=sm_86"),
    ],
)
def test_flags_name_the_architecture_that_the_variant_needs(arch: str, variant: str, flag: str) -> None:
    found = read_extension(candidate(bare(1024, 1024, 1024, arch), variant=variant).source)
    assert flag in found.cuda_flags


def test_sizes_of_x_follow_the_batch() -> None:
    text = candidate(bare(64, 1111, 999), splits=1, variant="sm90").source
    assert "workspace = x.new_empty(batch_size * 1153)" in text


def test_split_sums_have_memory() -> None:
    text = candidate(bare(64, 8192, 1000), splits=16).source
    assert "workspace = x.new_empty(batch_size * 24193)" in text and "finish_kernel" in text


def test_rows_of_a_flattened_batch_are_those_of_the_contraction() -> None:
    text = source("return self.linear(x)", "torch.randn(6, 5, 12)", LINEAR)
    found = plainest(design(made(text), for_arch("sm_90")), 1)[0].source
    assert "= linear(tensors[0], weights[0]" in found and "5 * batch_size, stream))" in found and "new_empty(5 * batch_size * 65)" in found


def test_bias_is_added_in_the_epilogue() -> None:
    text = candidate(bare(64, 64, 64)).source
    assert "const float linear = linear_sum + linear_bias;" in text


@pytest.mark.parametrize(
    ("arguments", "init", "spelled"),
    [
        ("self.u", "self.u = nn.Parameter(torch.randn(20))", "const auto u_vector = load_vector<4>(u_in + col);"),
        ("y", "", "const auto y_vector = load_vector<4>(y_in + row * 20 + col);"),
        ("y[:, :1]", "", "_in[row * 20];"),
        ("self.u", "self.u = nn.Parameter(torch.randn(()))", "const float u = u_in[0];"),
    ],
)
def test_operands_of_maps_are_read_as_they_broadcast(arguments: str, init: str, spelled: str) -> None:
    text = source(f"return self.linear(x) * {arguments}", "torch.randn(6, 12), torch.randn(6, 20)", f"{LINEAR}\n{init}", "x, y")
    found = next(c for c in plainest(design(made(text), for_arch("sm_90"))) if "contraction[linear, mul]" in c.plan)
    assert spelled in found.source


def test_operands_of_columns_are_read_before_anything_is_stored() -> None:
    text = candidate(bare(64, 64, 64)).source
    assert text.index("load_vector<4>(linear_bias_in") < text.index("store_vector<4>(linear_out")


def test_many_operands_of_columns_are_read_for_fewer_columns_at_once() -> None:
    names = "abcd"
    init = "; ".join(f"self.{n} = nn.Parameter(torch.randn(20))" for n in names)
    forward = "return (self.linear(x).relu() * self.a + self.b) * self.c - self.d"
    text = source(forward, "torch.randn(6, 12)", f"{LINEAR}\n{init}")
    found = next(c for c in plainest(design(made(text), for_arch("sm_90"))) if c.kernels == 1)
    assert "Lanes::CHUNKS < 4" in candidate(bare(6, 12, 20)).source and "Lanes::CHUNKS < 1" in found.source


def test_values_called_as_the_kernel_calls_its_own_are_renamed() -> None:
    text = source("return self.linear(x).tanh() * self.N + self.sums", "torch.randn(6, 12)",
                  f"{LINEAR}\nself.N, self.sums = nn.Parameter(torch.ones(20)), nn.Parameter(torch.ones(20))")  # fmt: skip
    found = plainest(design(made(text), for_arch("sm_90")), 1)[0].source
    assert "const float N_2 = N_2_columns[chunk][j];" in found
    assert "const float sums_2 = sums_2_columns[chunk][j];" in found


@pytest.mark.parametrize(
    ("n", "dtype", "vec"), [(24, "float", 4), (22, "float", 2), (24, "bfloat16", 8), (20, "bfloat16", 4), (24, "half", 8)]
)
def test_lanes_finish_16_bytes_of_rows_where_results_allow(n: int, dtype: str, vec: int) -> None:
    text = source("return self.linear(x).relu()", f"torch.randn(64, 16).{dtype}()", f"self.linear = nn.Linear(16, {n}).{dtype}()")
    found = next(c for c in plainest(design(made(text), for_arch("sm_90"))) if "contraction[linear" in c.plan)
    assert f"lay_along_rows<{vec}, GROUPS>(sums);" in found.source


@pytest.mark.parametrize(("k", "rows", "offered"), [(64, 8192, True), (2048, 8192, False), (64, 512, False)])
def test_two_blocks_share_a_multiprocessor_for_short_k_and_many_tiles(k: int, rows: int, offered: bool) -> None:
    text = source("return self.linear(x)", f"torch.randn({rows}, {k}).half()", f"self.linear = nn.Linear({k}, 8192).half()")
    found = {(p["tile"], p["stages"]) for p in contraction_space(design(made(text), for_arch("sm_90"))).allowed() if p["variant"] == "sm90"}
    assert (("2x128x128", 3) in found) is offered
    assert {stages for tile, stages in found if tile != "2x128x128"} == {7}


def test_odd_columns_are_stored_one_by_one() -> None:
    text = candidate(bare(64, 64, 33)).source
    assert "if (col >= N) continue;" in text and "store_vector" not in text


def test_rows_that_fill_no_step_are_padded() -> None:
    assert "N = 999, K = 1111, LD = 1152;" in candidate(bare(64, 1111, 999)).source


def test_rows_too_long_for_registers_are_read_twice() -> None:
    assert "split_long_rows<40000, 40000, 1024, 2>" in candidate(bare(64, 40000, 64)).source


def test_kernels_of_both_modes_split_their_own_weights() -> None:
    of = design(reference(NAMES[1], "both", **FULL), for_arch("sm_90"))
    text = plainest(of, 1)[0].source
    assert "fill(_train_linear_moments_split_weight, " in text and "fill(_eval_linear_split_weight, " in text


def test_template_has_what_its_text_needs_for_every_combination() -> None:
    of = design(bare(1024, 2048, 1024), for_arch("sm_90"))
    space = contraction_space(of)
    found = {p["variant"]: template.render(space.schedule(**p)).specific for p in space.allowed()}
    assert found == {"sm90": True, "sm80": False, "library": False}


# Weights that are split once


@dataclass
class Launches:
    """Stands for the launchers: counts how often weights were split, and fills the memory with their sum."""

    seen: list[str] = field(default_factory=list)

    def __call__(self, kernel: str, rows: int, source: torch.Tensor, memory: torch.Tensor) -> None:
        self.seen.append(kernel)
        memory.fill_(source.sum().item())


class Library:
    """Stands for the built library: each launcher is its own name."""

    def __getattr__(self, name: str) -> object:
        return types.SimpleNamespace(name=name)


@dataclass(eq=False)
class Stream:
    """Stands for a stream: what it was told to wait for. An event is the stream that it was recorded on."""

    waited_for: list[Stream] = field(default_factory=list)

    def record_event(self) -> Stream:
        return self

    def wait_event(self, event: Stream) -> None:
        self.waited_for.append(event)


@dataclass
class Gpu:
    """Stands for a device: its current stream, whether that is being captured, and which memory which streams use."""

    stream: Stream = field(default_factory=Stream)
    capturing: bool = False
    used: list[tuple[int, Stream]] = field(default_factory=list)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: found.stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda t, stream: found.used.append((t.data_ptr(), stream)))
    return found


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> Callable[[Candidate], tuple[types.ModuleType, Launches]]:
    """A candidate's module without its kernels, and what it launches."""
    monkeypatch.setattr(cpp_extension, "load_inline", lambda **_: "")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())

    def load(of: Candidate) -> tuple[types.ModuleType, Launches]:
        found, launches = module(of), Launches()
        found.fill, found.check = launches, lambda *_: None
        return found, launches

    return load


def kept(model: Any) -> Any:
    """What a call on the current stream takes of the module's weights."""
    return model._weights(id(torch.cuda.current_stream()), torch.zeros(0))


def memory_of(model: Any) -> torch.Tensor:
    """The memory of the split weight: the largest in the table of pointers."""
    return max(kept(model).pointed, key=torch.Tensor.numel)


def small(forward: str = "return self.linear(x).relu()", init: str = LINEAR) -> Candidate:
    return plainest(design(made(source(forward, "torch.randn(6, 12)", init)), for_arch("sm_90")), 1)[0]


def test_weight_is_split_once(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    assert kept(model) is kept(model) and len(launches.seen) == 1


def test_memory_of_a_split_weight_holds_both_parts_and_the_exponents(loaded: Callable) -> None:
    memory = memory_of(loaded(small())[0].ModelNew())
    assert memory.numel() == 20 * 64 + 20  # two float16 terms of 20 rows of 12, padded to 64, and 20 exponents


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
        lambda m: torch.nn.init.ones_(m.linear.weight),
        lambda m: setattr(m.linear, "weight", torch.nn.Parameter(torch.ones(20, 12))),
        lambda m: torch.optim.SGD([_with_gradient(m.linear.weight)], lr=0.1).step(),
    ],
    ids=["load_state_dict", "in place", "another tensor", "optimizer"],
)
def test_changed_weight_is_split_again(loaded: Callable, change: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    kept(model)
    change(model)
    memory = memory_of(model)
    assert len(launches.seen) == 2 and memory[0].item() == pytest.approx(model.linear.weight.sum().item())


def _with_gradient(p: torch.nn.Parameter) -> torch.nn.Parameter:
    p.grad = torch.ones_like(p)
    return p


def test_changed_bias_splits_nothing(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    kept(model)
    torch.nn.init.ones_(model.linear.bias)
    kept(model)
    assert len(launches.seen) == 1


def test_refresh_splits_again(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    kept(model)
    model.linear.weight.data.copy_(torch.ones(20, 12))
    model.refresh()
    memory = memory_of(model)
    assert memory[0].item() == 240.0 and len(launches.seen) == 2


def test_split_weights_are_in_no_state_dict_and_no_copy(loaded: Callable) -> None:
    found, _ = loaded(small())
    model = found.ModelNew()
    kept(model)
    assert set(model.state_dict()) == {"linear.weight", "linear.bias"}
    assert copy.deepcopy(model)._prepared is None


def test_model_with_split_weights_is_pickled_without_them(loaded: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = loaded(small())
    monkeypatch.setitem(__import__("sys").modules, "candidate", found)
    model = found.ModelNew()
    kept(model)
    assert pickle.load(io.BytesIO(pickle.dumps(model)))._prepared is None


def test_folded_weight_is_split(loaded: Callable) -> None:
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)"
    found, _ = loaded(small("return self.norm(self.linear(x)).relu()", init))
    assert "fold_batchnorm_into_linear" in found.__doc__
    model = found.ModelNew().eval()
    model.norm.running_var.fill_(4.0)
    memory = memory_of(model)
    scale = (4.0 + model.norm.eps) ** -0.5
    assert memory[0].item() == pytest.approx(model.linear.weight.sum().item() * scale, rel=1e-4)


def test_columns_of_a_weight_are_split_as_rows(loaded: Callable) -> None:
    found, _ = loaded(small("return torch.matmul(x, self.w)", "self.w = nn.Parameter(torch.randn(12, 20))"))
    sizes = []
    found.fill = lambda kernel, rows, weight, memory: sizes.append((rows, weight.shape, weight.is_contiguous()))
    found.ModelNew()._prepare_weights()
    assert sizes == [(20, (20, 12), True)]


def test_weight_of_two_contractions_is_split_once(loaded: Callable) -> None:
    forward = "return self.linear(x).relu(), self.linear(x * 2.0)"
    found, launches = loaded(small(forward))
    assert len(kept(found.ModelNew()).made) == 1 and len(launches.seen) == 1


# Streams and graphs


def test_another_stream_waits_for_split_weights(loaded: Callable, gpu: Gpu) -> None:
    model = loaded(small())[0].ModelNew()
    memory = memory_of(model)
    made_on, gpu.stream = gpu.stream, Stream()
    kept(model)
    assert gpu.stream.waited_for == [made_on] and gpu.used == [(memory.data_ptr(), gpu.stream)]


def test_stream_that_split_weights_were_made_on_waits_for_nothing(loaded: Callable, gpu: Gpu) -> None:
    model = loaded(small())[0].ModelNew()
    kept(model)
    kept(model)
    assert not gpu.stream.waited_for and not gpu.used


def test_weights_split_while_a_graph_is_captured_are_a_part_of_it_alone(loaded: Callable, gpu: Gpu) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    gpu.capturing = True
    kept(model)
    gpu.capturing = False
    kept(model)
    assert len(launches.seen) == 2


def test_graph_keeps_the_split_weights_that_it_was_captured_with(loaded: Callable, gpu: Gpu) -> None:
    model = loaded(small())[0].ModelNew()
    memory = memory_of(model)
    gpu.stream, gpu.capturing = Stream(), True
    assert memory_of(model) is memory_of(model) is memory
    gpu.capturing = False
    torch.nn.init.ones_(model.linear.weight)
    assert memory_of(model) is not memory
    assert [found.made[0] is memory for found in model._captured] == [True] and not gpu.used
    assert copy.deepcopy(model)._captured == ()


# Products by the library


def split(matrix: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What the splitting kernel makes of a matrix: float16 terms (2, rows, k) and exponents."""
    padded = torch.nn.functional.pad(matrix, (0, k - matrix.shape[1]))
    exponents = 14 - padded.abs().amax(1).log2().floor().int()
    scaled = torch.ldexp(padded, exponents[:, None])
    high = scaled.half()
    return torch.stack((high, (scaled - high.float()).half())), exponents


@dataclass
class SplitLaunches:
    """Stands for the launchers of a contraction by the library: what each kernel does to its memory.

    ``tensors`` are those whose pointers were asked for, by these."""

    k: int
    sums: int
    bias: torch.Tensor
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    exponents: list[torch.Tensor] = field(default_factory=list)  # of the weight, then of x

    def fill(self, kernel: types.SimpleNamespace, rows: int, weight: torch.Tensor, memory: torch.Tensor) -> None:
        self._split(weight, memory)

    def data_ptr(self, tensor: torch.Tensor) -> int:
        found = tensor.untyped_storage().data_ptr()
        self.tensors[found] = tensor
        return found

    def launch(self, kernels: types.SimpleNamespace, *arguments: int) -> None:
        if kernels.name == "launch_kernels_1":
            x, _, workspace = (self.tensors[pointer] for pointer in arguments[:3])
            self._split(x, workspace)
        else:
            out, workspace = (self.tensors[pointer] for pointer in arguments[:2])
            rows, ld = out.shape[0], (out.shape[1] + 3) // 4 * 4
            sums = workspace[rows * self.k :][: self.sums * rows * ld].view(self.sums, rows, ld)[..., : out.shape[1]]
            of_weight, of_x = self.exponents
            out.copy_(torch.ldexp(sums.sum(0), -of_x[:, None] - of_weight) + self.bias)

    def _split(self, matrix: torch.Tensor, memory: torch.Tensor) -> None:
        terms, exponents = split(matrix, self.k)
        self.exponents.append(exponents)
        memory[: terms.numel() // 2] = terms.flatten().view(torch.float32)


@pytest.mark.parametrize("columns", [64, 33])
def test_library_multiplies_parts_over_intervals_of_k(
    loaded: Callable, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    found, _ = loaded(candidate(bare(512, 1000, columns), variant="library"))
    for name in ("mm", "bmm"):  # on a CPU there is no such product
        monkeypatch.setattr(torch, name, lambda a, b, out_dtype, out: out.copy_(a.float() @ b.float()))
    model, x = found.ModelNew(), torch.randn(40, 1000)
    launches = SplitLaunches(1024, sums=8 + 2, bias=model.linear.bias)
    found.fill, found.launch = launches.fill, launches.launch
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda tensor: launches.data_ptr(tensor))
    with torch.no_grad():
        expected = x.double() @ model.linear.weight.double().t() + model.linear.bias
        assert (model._run(kept(model), 0, x) - expected).abs().max() < 2e-6


@pytest.mark.parametrize(("sizes", "intervals"), [((64, 1000, 64), []), ((512, 1000, 64), [8]), ((64, 8192, 64), [64])])
def test_few_rows_of_short_sums_are_not_left_to_the_library(sizes: tuple[int, int, int], intervals: list[int]) -> None:
    found = [p for p in contraction_space(bare(*sizes)).allowed() if p["variant"] == "library"]
    assert [p["splits"] for p in found] == intervals


def test_sums_of_intervals_must_fit_the_memory() -> None:
    text = source("return self.linear(x)", "torch.empty(65536, 1024)", "self.linear = nn.Linear(1024, 16384)")
    of = design(made(text), for_arch("sm_90"))
    assert "library" not in values(contraction_space(of), "variant")
    assert "sums_memory" in {r.constraint for r in of.rejections()}


def test_library_takes_one_product_whole() -> None:
    found = [p for p in contraction_space(bare(64, 8192, 64, accuracy=Accuracy.TF32)).allowed() if p["variant"] == "library"]
    assert {(p["products"], p["splits"]) for p in found} == {(1, 1)}


# Operands that are no weights, and batched contractions


def multiplied(forward: str, inputs: str, arguments: str = "x, y", init: str = "") -> Candidate:
    return plainest(design(made(source(forward, inputs, init, arguments)), for_arch("sm_90")), 1)[0]


@pytest.mark.parametrize(
    ("forward", "inputs", "spelled"),
    [
        ("return torch.matmul(x, y)", "torch.randn(6, 12), torch.randn(12, 20)", "x_dense.data_ptr(), y_dense.data_ptr(), "),
        ("return F.linear(x, y)", "torch.randn(6, 12), torch.randn(20, 12)", "x_dense.data_ptr(), y_dense.data_ptr(), "),
        ("return torch.bmm(x, y)", "torch.randn(6, 7, 12), torch.randn(6, 12, 20)", "x_dense.data_ptr(), y_dense.data_ptr(), "),
        ("return torch.matmul(x, y)", "torch.randn(3, 6, 7, 12), torch.randn(3, 6, 12, 20)", "x_dense.data_ptr(), y_dense.data_ptr(), "),
    ],
)
def test_operand_that_is_no_weight_is_split_in_each_call(forward: str, inputs: str, spelled: str) -> None:
    text = multiplied(forward, inputs).source
    assert spelled in text and "_weights" not in text and "_split_weight" not in text


def test_operand_used_twice_is_split_along_rows_and_along_columns() -> None:
    text = multiplied("return torch.matmul(x, x)", "torch.randn(5, 12, 12)", "x").source
    assert "split_strips<12, 64, 2>(x_in, w_terms" in text and "(x_in, x_terms" in text


@pytest.mark.parametrize(
    ("forward", "inputs", "columns"),
    [
        ("return torch.matmul(x.mT, y)", "torch.randn(6, 12), torch.randn(6, 20)", "x_in, x_terms, x_exponents, 1, static_cast<int>(rows)"),
        ("return torch.matmul(x.mT, y)", "torch.randn(3, 6, 12), torch.randn(3, 6, 20)", "x_in, x_terms, x_exponents, rows / GROUP, GROUP"),
    ],
)
def test_a_transposed_left_operand_is_split_along_its_columns(forward: str, inputs: str, columns: str) -> None:
    text = unwrapped(multiplied(forward, inputs).source)
    assert f"split_strips<6, 64, 2>({columns}" in text and "x_dense.data_ptr(), y_dense.data_ptr(), " in text


def test_memory_for_a_batch_of_contractions_follows_the_batch() -> None:
    text = multiplied("return torch.bmm(x, y)", "torch.randn(6, 7, 12), torch.randn(6, 12, 20)").source
    assert "workspace = x.new_empty(7 * batch_size * 65 + 7 * batch_size // 7 * 20 * 65 + 3)" in text
    assert ", 7 * batch_size, stream))" in text and "constexpr int GROUP = 7;" in text


def test_batch_of_weights_is_split_once(loaded: Callable) -> None:
    found, _ = loaded(multiplied("return torch.bmm(x, self.w)", "torch.randn(3, 7, 12)", "x", "self.w = nn.Parameter(torch.randn(3, 12, 20))"))
    sizes = []
    found.fill = lambda kernel, rows, weight, memory: sizes.append((rows, weight.shape, memory.numel()))
    found.ModelNew()._prepare_weights()
    assert sizes == [(60, (3, 20, 12), 60 * 65)]


def test_batches_are_left_to_kernels_of_our_own() -> None:
    of = design(made(source("return torch.bmm(x, y)", "torch.randn(6, 70, 120), torch.randn(6, 120, 200)", "", "x, y")), for_arch("sm_90"))
    assert values(contraction_space(of), "variant") == {"sm90", "sm80"}


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return torch.matmul(x, y)", "torch.randn(6, 12, 8), torch.randn(5, 1, 8, 20)"),  # matrices are broadcast
        ("return torch.matmul(x, y)", "torch.randn(12, 8), torch.randn(6, 8, 20)"),
        ("return torch.matmul(x, y)", "torch.randn(6, 12), torch.randn(12)"),
    ],
)
def test_contractions_of_other_shapes_are_left_to_the_library(forward: str, inputs: str) -> None:
    of = design(made(source(forward, inputs, "", "x, y")), for_arch("sm_90"))
    assert not any("contraction" in option.name for option in of.options)
