"""Which convolutions and recurrent layers count as in TF32, measured and predicted, and what follows for kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from models import captured, graph, made, source

from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.rewrites.table import variants
from kgen.devices.hardware import for_arch
from kgen.problems.problem import LoadedProblem
from kgen.protocol import Accuracy, LibraryProduct
from kgen.tuning import precision
from kgen.tuning.design import Design
from kgen.tuning.precision import predicted

PRODUCT = LibraryProduct("aten.convolution", (4, 16, 20, 20), (32, 16, 3, 3), (1, 1), (1, 1), (1, 1))
EXACT, ROUNDED = 1.5e-7, 2.9e-4


def of(init: str = "nn.Conv2d(16, 32, 3, padding=1)", shape: str = "4, 16, 20, 20", forward: str = "self.conv(x).relu()"):
    return made(source(f"return {forward}", f"torch.randn({shape})", f"self.conv = {init}"), "eval")


def marks(found: OpGraph) -> list[tuple[bool, int]]:
    return [(n.tf32, n.products) for n in found.nodes if "conv" in n.op]


@pytest.mark.parametrize("errors, expected", [
    (((4, ROUNDED), (1, ROUNDED)), (True, 1)),
    (((4, ROUNDED), (1, EXACT)), (True, 3)),
    (((4, EXACT), (1, ROUNDED)), (False, 3)),
    ((), (False, 3)),
])
def test_a_convolution_is_marked_as_it_was_measured(errors: tuple[tuple[int, float], ...], expected: tuple[bool, int]) -> None:
    found = precision.measured(captured(of()), [replace(PRODUCT, errors=errors)])
    assert marks(found.graphs[0][1]) == [expected]


def test_a_convolution_of_another_shape_is_not_marked() -> None:
    other = replace(PRODUCT, stride=(2, 2), errors=((4, ROUNDED),))
    assert marks(precision.measured(captured(of()), [other]).graphs[0][1]) == [(False, 3)]


@pytest.mark.parametrize("init, shape, tf32, reason", [
    ("nn.Conv2d(16, 32, 3)", "4, 16, 20, 20", True, "enough channels in one group"),
    ("nn.Conv2d(3, 32, 3)", "4, 3, 20, 20", False, "3 channels"),
    ("nn.Conv2d(64, 64, 3, groups=4)", "4, 64, 20, 20", False, "4 groups"),
    ("nn.ConvTranspose2d(3, 32, 3)", "4, 3, 20, 20", True, "enough channels in one group"),
])
def test_groups_and_few_channels_are_predicted_in_float32(init: str, shape: str, tf32: bool, reason: str) -> None:
    found, (one,) = predicted(graph(of(init, shape)))
    assert (one.tf32, one.products, one.reason) == (tf32, 1 if tf32 else 3, reason)
    assert marks(found) == [(tf32, one.products)]


def products_of(errors: tuple[tuple[int, float], ...], accuracy: Accuracy) -> set[object]:
    """The values of ``products`` in the spaces of a convolution that was measured so."""
    loaded = of()
    found = precision.measured(captured(loaded), [replace(PRODUCT, errors=errors)])
    design = Design(loaded.problem, found, for_arch("sm_90a"), accuracy)
    return {params["products"] for option in design.options for kernel in option.kernels for params in kernel if "products" in params}


@pytest.mark.parametrize("accuracy, errors, expected", [
    (Accuracy.PYTORCH, ((4, ROUNDED), (1, ROUNDED)), {1, 3}),
    (Accuracy.PYTORCH, ((4, ROUNDED), (1, EXACT)), {3}),
    (Accuracy.FP32, ((4, ROUNDED), (1, ROUNDED)), {3}),
    (Accuracy.TF32, ((4, EXACT),), {1, 3}),
])
def test_one_product_is_tried_only_where_cudnn_used_tf32_at_every_batch(
    accuracy: Accuracy, errors: tuple[tuple[int, float], ...], expected: set[object]
) -> None:
    assert products_of(errors, accuracy) == expected


def layers() -> LoadedProblem:
    return made(source("return self.lstm(x)[0]", "torch.randn(5, 4, 24)", "self.lstm = nn.LSTM(24, 32, 2)"), "eval")


@pytest.mark.parametrize("errors, expected", [
    (((4, ROUNDED), (1, ROUNDED)), {(True, 1)}), (((4, ROUNDED), (1, EXACT)), {(True, 3)}), (((4, EXACT),), {(False, 3)}),
])
def test_products_and_steps_of_recurrent_layers_are_marked_as_they_were_measured(
    errors: tuple[tuple[int, float], ...], expected: set[tuple[bool, int]]
) -> None:
    product = LibraryProduct("aten._cudnn_rnn", (5, 4, 24), (128, 24), errors=errors)
    ((_, found),) = precision.measured(captured(layers()), [product]).graphs
    apart = next(variant.graph for variant in variants(found) if "layers_apart" in variant.rewrites)
    assert {(n.tf32, n.products) for n in apart.nodes if n.op in ("linear", "lstm")} == expected


@pytest.mark.parametrize("accuracy, expected", [(Accuracy.PYTORCH, {0, 1, 2}), (Accuracy.FP32, {0, 2}), (Accuracy.TF32, {0, 1, 2})])
def test_states_are_one_term_only_where_pytorch_multiplies_in_tf32(accuracy: Accuracy, expected: set[object]) -> None:
    loaded = layers()
    of = Design(loaded.problem, precision.guessed(captured(loaded)), for_arch("sm_90a"), accuracy)
    assert {params["terms"] for option in of.options for kernel in option.kernels for params in kernel if "terms" in params} == expected


@pytest.mark.parametrize("forward", ["F.avg_pool2d(self.conv(x), 2)", "self.conv(x).mean(2)"])
def test_a_rewrite_keeps_what_is_known_of_a_convolution(forward: str) -> None:
    found, _ = predicted(graph(of(forward=forward)))
    rewritten = [variant.graph for variant in variants(found) if variant.graph != found]
    kept = [mark for one in rewritten for mark in marks(one)]
    assert kept and set(kept) == {(True, 1)}
