"""Reasons: why an operator is a library call."""

from __future__ import annotations

import pytest
import torch
from models import graph, made, source

from kgen.compiler.fusion.reasons import why_library
from kgen.compiler.graph.graph import Node, Tensor
from kgen.compiler.operators.facts import aten_name
from kgen.compiler.operators.table import OPS


def why(forward: str, inputs: str = "torch.randn(6, 12)", init: str = "", arguments: str = "x", **more: object) -> str:
    """Of the last operator."""
    found = graph(made(source(forward, inputs, init, arguments), "train"))
    return why_library(found, found.nodes[-1], **{"own": False, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        ("return torch.logcumsumexp(x, 1)", "torch.randn(6, 12)", "no kernel of ours computes aten.logcumsumexp"),
        ("return x.sum(0)", "torch.randn(6, 12)", "this kind of device has no kernel for it"),
        ("return torch.softmax(x, 0)", "torch.randn(6, 12)", "this kind of device has no kernel for it"),
        ("return x.sum(1, dtype=torch.float64)", "torch.randn(6, 12)", "our kernels are for float32, bfloat16 and float16, it has float64"),
        ("return x.sum(1, dtype=torch.float32)", "torch.randn(6, 12)", "it converts to another dtype"),
        ("return x.to(memory_format=torch.channels_last)", "torch.randn(2, 3, 4, 5)", "it changes the order of dimensions in memory"),
        ("return x.clone(memory_format=torch.channels_last)", "torch.randn(2, 3, 4, 5)", "it changes the order of dimensions in memory"),
        ("return x.relu(), torch.full((3, 4), 1.5)", "torch.randn(6, 12)",
         "it is made of numbers alone: kernels make it where they read it, the library makes it for others"),
        ("return x.relu(), torch.arange(5) * 2", "torch.randn(6, 12)",
         "it is made of numbers alone: kernels make it where they read it, the library makes it for others"),
        ("return torch.clamp(x, 2.0, 1.0)", "torch.randn(6, 12)",
         "its arguments are not the tensors and numbers that our kernel takes"),
        ("return F.batch_norm(x, None, None, training=True)", "torch.randn(2, 3, 4, 4)",
         "it takes moments over other dimensions than the batch"),
        ("return F.conv2d(x, x)", "torch.randn(3, 3, 4, 4)", "conv2d follows the batch in another dimension than the first"),
        ("return x.sum(1)", "torch.randn(0, 12)", "the tensors are empty"),
    ],
)  # fmt: skip
def test_reason_names_what_keeps_kernels_off(forward: str, inputs: str, expected: str) -> None:
    assert why(forward, inputs) == expected


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [("it needs tensor cores", "it needs tensor cores"), ("", "this kind of device has no kernel for it")],
)
def test_reason_is_what_the_device_lacks(lacks: str, expected: str) -> None:
    assert why("return x @ self.w", init="self.w = nn.Parameter(torch.randn(12, 3))", lacks=lacks) == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("nn.LSTM(12, 8)", "plans with a kernel of it are predicted to be no faster"),
        ("nn.LSTM(12, 8, proj_size=3)", "our kernels of recurrent layers are for one dtype, without projections and dropout between layers"),
    ],
)
def test_reason_of_recurrent_layers(layers: str, expected: str) -> None:
    found = graph(made(source("return self.f(x)[0]", "torch.randn(3, 4, 12)", f"self.f = {layers}")))
    assert why_library(found, next(n for n in found.nodes if n.op == "aten.lstm.input"), own=False) == expected


def test_operator_that_other_plans_have_a_kernel_of_is_left_by_choice() -> None:
    assert why("return x.relu()", own=True) == "plans with a kernel of it are predicted to be no faster"


@pytest.mark.parametrize("op", OPS)
def test_every_operator_has_the_name_of_one_of_atens(op: str) -> None:
    name = aten_name(Node("made_up", op, (), Tensor((2,)), None))
    if name != "_operator.getitem":
        namespace, operator, overload = name.split(".")
        assert hasattr(getattr(getattr(torch.ops, namespace), operator), overload)


def test_convolution_with_channels_last_is_named_as_aten_names_it_with_its_reason() -> None:
    node = Node("made_up", "conv2d_channels_last", (), Tensor((2, 4, 4, 3)), None)
    assert aten_name(node) == "aten.conv2d.default"
    found = graph(made(source("return x.relu()")))
    assert why_library(found, node, own=False) == "the library reads its images with channels last, which our kernels of it do not"


def test_operator_is_named_as_aten_names_it() -> None:
    found = graph(made(source("return torch.cumsum(x.relu() @ self.w, 1)", init="self.w = nn.Parameter(torch.randn(20, 3))")))
    assert [aten_name(node) for node in found.nodes] == ["aten.relu.default", "aten.matmul.default", "aten.cumsum.default"]
