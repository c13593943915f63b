"""The family ``gemm``: where it is offered, its space, its launcher's memory, and weights that are split once."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from models import NAMES, design, made, module, plainest, reference, source
from torch.utils import cpp_extension

from kgen.candidate import Candidate
from kgen.design import Design
from kgen.evaluator.build import read_extension
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import cpu, for_arch
from kgen.search import STRATEGIES, Point
from kgen.space import Space
from kgen.templates import Task
from kgen.templates.cuda import gemm

FULL = {"batch_size": "1024", "in_features": "8192", "out_features": "8192"}
LINEAR = "self.linear = nn.Linear(12, 20)"


def bare(rows: int, k: int, n: int, arch: str = "sm_90", accuracy: Accuracy = Accuracy.FP32) -> Design:
    """A linear layer alone."""
    text = source("return self.linear(x)", f"torch.randn({rows}, {k})", f"self.linear = nn.Linear({k}, {n})")
    return design(made(text), for_arch(arch), accuracy)


def product_space(of: Design) -> Space:
    """The space of the first plan's product."""
    return of.choices[0].spaces[0]


def values(space: Space, axis: str) -> set:
    return {p[axis] for p in space.allowed()}


# Where it is offered


def test_cpu_has_no_products_of_its_own() -> None:
    for name in NAMES:
        assert "gemm" not in "".join(o.name for o in design(reference(name, "eval"), cpu()).options)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_gpu_without_the_tensor_cores_has_no_products_of_its_own(arch: str) -> None:
    of = design(reference(NAMES[0], "eval"), for_arch(arch))
    assert "gemm" not in "".join(o.name for o in of.options)


def test_gpu_without_the_tensor_cores_says_what_it_lacks() -> None:
    found = [r for r in design(reference(NAMES[0], "both"), for_arch("sm_75")).rejections() if "gemm" in r.plan]
    assert "gemm[linear] + row[gelu, softmax]" in {r.plan for r in found}
    assert {r.reason for r in found} == {"products of its own need the tensor cores of sm_80 or later"}


@pytest.mark.parametrize(
    ("arch", "variants"),
    [("sm_80", {"sm80"}), ("sm_86", {"sm80"}), ("sm_90", {"sm90", "sm80"}), ("sm_90a", {"sm90", "sm80"}), ("sm_100", {"sm80"})],
)
def test_variants_are_those_of_the_architecture(arch: str, variants: set[str]) -> None:
    assert values(product_space(bare(1024, 1024, 1024, arch)), "variant") == variants


# The space


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 1111, 999), (64, 8192, 8192), (1024, 8192, 8192), (16384, 4096, 4096)])
def test_products_of_any_size_have_a_combination(arch: str, sizes: tuple[int, int, int]) -> None:
    assert any(product_space(bare(*sizes, arch)).allowed())


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_stages_fit_the_shared_memory(arch: str) -> None:
    of = bare(1024, 8192, 8192, arch)
    for params in product_space(of).allowed():
        text = of.candidate(point(of, params)).source
        sizes = [int(v) for v in re.findall(r"constexpr int (?:STAGES|SLOTS) = (\d+);", text)]
        rows, cols, k = map(int, re.search(r"BLOCK_M = (\d+), BLOCK_N = (\d+), BLOCK_K = (\d+)", text).groups())
        stage = 65536 / 2 if params["variant"] == "sm90" else 4 * k * (rows + cols)
        assert sizes[0] * stage <= of.hardware.shared_bytes_per_block


def test_small_batches_are_split_along_k() -> None:
    assert max(values(product_space(bare(64, 8192, 8192)), "splits")) == 4


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
    first = next(product_space(bare(*sizes)).allowed())
    assert (first["variant"], first["tile"], first["splits"], first["cluster"]) == (variant, tile, splits, cluster)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [((16384, 4096, 4096), "128x256"), ((512, 4096, 4096), "64x128/2"), ((1024, 1024, 1024), "64x64/4")],
)
def test_first_combination_of_warps_is_what_was_fastest_on_an_h200(sizes: tuple[int, int, int], tile: str) -> None:
    assert next(p for p in product_space(bare(*sizes)).allowed() if p["variant"] == "sm80")["tile"] == tile


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_space_is_small(arch: str) -> None:
    assert all(len(list(product_space(bare(n, n, n, arch)).allowed())) <= 24 for n in (64, 512, 1024, 4096))


def test_combinations_that_cannot_win_are_ruled_out() -> None:
    found = [r for r in bare(1024, 1024, 1024).rejections() if r.constraint == "slow"]
    assert {r.params["k0.tile"] for r in found} >= {"128x256"}


@pytest.mark.parametrize("accuracy", [Accuracy.FP32, Accuracy.KERNELBENCH])
def test_one_product_is_ruled_out_where_float32_is_asked_for(accuracy: Accuracy) -> None:
    of = bare(1024, 8192, 8192, accuracy=accuracy)
    assert values(product_space(of), "products") == {3}
    assert "one_product" in {r.constraint for r in of.rejections()}


@pytest.mark.parametrize("sizes", [(64, 8192, 8192), (1000, 1111, 999), (1024, 8192, 8192)])
def test_one_product_comes_first_where_tf32_is_asked_for(sizes: tuple[int, int, int]) -> None:
    assert next(product_space(bare(*sizes, accuracy=Accuracy.TF32)).allowed())["products"] == 1


def test_one_product_takes_half_the_memory() -> None:
    text = candidate(bare(1024, 8192, 8192, accuracy=Accuracy.TF32), products=1).source
    assert "batch_size * 4097)" in text and "new_empty(33562624)" in text  # 8192 x 8192 / 2 and 8192 exponents


def test_k_is_split_in_one_way() -> None:
    for params in product_space(bare(64, 8192, 8192)).allowed():
        assert params["splits"] == 1 or params["cluster"] == 1


def test_full_chips_are_hardly_split_along_k() -> None:
    assert values(product_space(bare(16384, 4096, 4096)), "splits") == {1}


def test_short_sums_are_not_split_along_k() -> None:
    assert values(product_space(bare(64, 500, 8192)), "splits") == {1}


def test_first_combination_is_for_the_newest_instructions() -> None:
    assert next(product_space(bare(1024, 8192, 8192)).allowed())["variant"] == "sm90"


def test_search_goes_through_both_variants() -> None:
    of = bare(1024, 1024, 1024)
    search, seen = STRATEGIES["exhaustive"](of.options[:1]), set()
    while (found := search.ask()) is not None:
        search.tell(found, 1.0)
        seen.add(of.options[0].kernels[0][found.choice[0]]["variant"])
    assert seen == {"sm90", "sm80"}


# The file


def point(of: Design, params: dict) -> Point:
    """The first plan with these parameters of the product, and the plainest of the others."""
    kernels = of.options[0].kernels
    return Point(0, (kernels[0].index(params), *(0 for _ in kernels[1:])))


def candidate(of: Design, **wanted: object) -> Candidate:
    """The first combination of the first plan's product that has these parameters."""
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
    text = candidate(bare(64, 1111, 999), splits=1).source
    assert "workspace = x.new_empty(batch_size * 1153)" in text


def test_split_sums_have_memory() -> None:
    text = candidate(bare(64, 8192, 1000), splits=16).source
    assert "workspace = x.new_empty(batch_size * 24193)" in text and "finish_kernel" in text


def test_rows_of_a_flattened_batch_are_those_of_the_product() -> None:
    text = source("return self.linear(x)", "torch.randn(6, 5, 12)", LINEAR)
    found = plainest(design(made(text), for_arch("sm_90")))[0].source
    assert "launch(_linear, 5 * batch_size, dense(x)" in found and "new_empty(5 * batch_size * 65)" in found


def test_bias_is_added_in_the_epilogue() -> None:
    text = candidate(bare(64, 64, 64)).source
    assert "const float linear = linear_sum + linear_bias;" in text


@pytest.mark.parametrize(
    ("arguments", "init", "spelled"),
    [
        ("self.r", "self.r = nn.Parameter(torch.randn(20))", "const Vector<2> r_vector = load_vector<2>(r_in + col);"),
        ("y", "", "const Vector<2> y_vector = load_vector<2>(y_in + row * 20 + col);"),
        ("y[:, :1]", "", "_in[row];"),
        ("self.r", "self.r = nn.Parameter(torch.randn(()))", "const float r = r_in[0];"),
    ],
)
def test_operands_of_maps_are_read_as_they_broadcast(arguments: str, init: str, spelled: str) -> None:
    text = source(f"return self.linear(x) * {arguments}", "torch.randn(6, 12), torch.randn(6, 20)", f"{LINEAR}\n{init}", "x, y")
    found = next(c for c in plainest(design(made(text), for_arch("sm_90"))) if "gemm[linear, mul]" in c.plan)
    assert spelled in found.source


def test_operands_of_columns_are_read_before_anything_is_stored() -> None:
    text = candidate(bare(64, 64, 64)).source
    assert text.index("load_vector<2>(linear_bias_in") < text.index("store_vector<2>(linear_out")


def test_many_operands_of_columns_are_read_for_fewer_columns_at_once() -> None:
    names = "abcd"
    init = "; ".join(f"self.{n} = nn.Parameter(torch.randn(20))" for n in names)
    forward = "return (self.linear(x).relu() * self.a + self.b) * self.c - self.d"
    text = source(forward, "torch.randn(6, 12)", f"{LINEAR}\n{init}")
    found = next(c for c in plainest(design(made(text), for_arch("sm_90"))) if c.kernels == 1)
    assert "GROUPS < 16" in candidate(bare(6, 12, 20)).source and "GROUPS < 4" in found.source


def test_values_called_as_the_kernel_calls_its_own_are_renamed() -> None:
    text = source("return self.linear(x).tanh() * self.N + self.sums", "torch.randn(6, 12)",
                  f"{LINEAR}\nself.N, self.sums = nn.Parameter(torch.ones(20)), nn.Parameter(torch.ones(20))")  # fmt: skip
    found = plainest(design(made(text), for_arch("sm_90")))[0].source
    assert "const float N_2 = N_2_columns[group][j];" in found
    assert "const float sums_2 = sums_2_columns[group][j];" in found


def test_odd_columns_are_stored_one_by_one() -> None:
    text = candidate(bare(64, 64, 33)).source
    assert "if (col >= N) continue;" in text and "store_vector" not in text


def test_rows_that_fill_no_step_are_padded() -> None:
    assert "N = 999, K = 1111, PITCH = 1152;" in candidate(bare(64, 1111, 999)).source


def test_rows_too_long_for_registers_are_read_twice() -> None:
    assert "split_long_rows<40000, 40000, 1024, 2>" in candidate(bare(64, 40000, 64)).source


def test_kernels_of_both_modes_split_their_own_weights() -> None:
    of = design(reference(NAMES[1], "both", **FULL), for_arch("sm_90"))
    text = plainest(of)[0].source
    assert "_train_linear_split_weight.argtypes" in text and "_eval_linear_split_weight.argtypes" in text


def test_template_has_what_its_text_needs_for_every_combination() -> None:
    of = design(reference(NAMES[0], "eval", **FULL), for_arch("sm_90"))
    (_, plan), space = of.choices[0].plans[0], product_space(of)
    found = {gemm.render(Task(plan, plan.kernels[0], of.hardware), p).specific for p in space.allowed()}
    assert found == {True, False}


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


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Candidate], tuple[types.ModuleType, Launches]]:
    """A candidate's module without its kernels, and what it launches."""
    monkeypatch.setattr(cpp_extension, "load_inline", lambda **_: "")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())

    def load(of: Candidate) -> tuple[types.ModuleType, Launches]:
        found, launches = module(of), Launches()
        found.launch = launches
        return found, launches

    return load


def small(forward: str = "return self.linear(x).relu()", init: str = LINEAR) -> Candidate:
    return plainest(design(made(source(forward, "torch.randn(6, 12)", init)), for_arch("sm_90")))[0]


def test_weight_is_split_once(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    assert model._weights() is model._weights() and len(launches.seen) == 1


def test_memory_of_a_split_weight_holds_both_parts_and_the_exponents(loaded: Callable) -> None:
    (memory,) = loaded(small())[0].ModelNew()._weights()
    assert memory.numel() == 20 * 64 + 20  # two float16 parts of 20 rows of 12, padded to 64, and 20 exponents


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
    model._weights()
    change(model)
    (memory,) = model._weights()
    assert len(launches.seen) == 2 and memory[0].item() == pytest.approx(model.linear.weight.sum().item())


def _with_gradient(p: torch.nn.Parameter) -> torch.nn.Parameter:
    p.grad = torch.ones_like(p)
    return p


def test_changed_bias_splits_nothing(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    model._weights()
    torch.nn.init.ones_(model.linear.bias)
    model._weights()
    assert len(launches.seen) == 1


def test_refresh_splits_again(loaded: Callable) -> None:
    found, launches = loaded(small())
    model = found.ModelNew()
    model._weights()
    model.linear.weight.data.copy_(torch.ones(20, 12))
    model.refresh()
    (memory,) = model._weights()
    assert memory[0].item() == 240.0 and len(launches.seen) == 2


def test_split_weights_are_in_no_state_dict_and_no_copy(loaded: Callable) -> None:
    found, _ = loaded(small())
    model = found.ModelNew()
    model._weights()
    assert set(model.state_dict()) == {"linear.weight", "linear.bias"}
    assert copy.deepcopy(model)._prepared is None


def test_model_with_split_weights_is_pickled_without_them(loaded: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = loaded(small())
    monkeypatch.setitem(__import__("sys").modules, "candidate", found)
    model = found.ModelNew()
    model._weights()
    assert pickle.load(io.BytesIO(pickle.dumps(model)))._prepared is None


def test_folded_weight_is_split(loaded: Callable) -> None:
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)"
    found, _ = loaded(small("return self.norm(self.linear(x)).relu()", init))
    assert "fold_batchnorm_into_linear" in found.__doc__
    model = found.ModelNew().eval()
    model.norm.running_var.fill_(4.0)
    *_, memory = model._weights()
    scale = (4.0 + model.norm.eps) ** -0.5
    assert memory[0].item() == pytest.approx(model.linear.weight.sum().item() * scale, rel=1e-4)


def test_columns_of_a_weight_are_split_as_rows(loaded: Callable) -> None:
    found, _ = loaded(small("return torch.matmul(x, self.w)", "self.w = nn.Parameter(torch.randn(12, 20))"))
    sizes = []
    found.launch = lambda kernel, rows, weight, memory: sizes.append((rows, weight.shape, weight.is_contiguous()))
    found.ModelNew()._weights()
    assert sizes == [(20, (20, 12), True)]


def test_weight_of_two_products_is_split_once(loaded: Callable) -> None:
    forward = "return self.linear(x).relu(), self.linear(x * 2.0)"
    found, launches = loaded(small(forward))
    assert len(found.ModelNew()._weights()) == 1 and len(launches.seen) == 1
