"""Contractions: their operations, and which convolutions are depthwise."""

from __future__ import annotations

import pytest
from models import graph, made, source

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import flops, is_depthwise, kernel_size, sums_of

CONV = "self.conv = nn.{}"


def captured(forward: str, inputs: str, init: str = "", arguments: str = "x") -> OpGraph:
    return graph(made(source(forward, inputs, init, arguments)))


def contraction(found: OpGraph) -> Node:
    (node,) = (n for n in found.nodes if sums_of(n))
    return node


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "arguments", "expected"),
    [
        ("return F.linear(x, y)", "torch.randn(6, 12), torch.randn(20, 12)", "", "x, y", 2 * 6 * 12 * 20),
        ("return x @ y", "torch.randn(6, 12), torch.randn(12)", "", "x, y", 2 * 6 * 12),
        ("return torch.mv(x, y)", "torch.randn(6, 12), torch.randn(12)", "", "x, y", 2 * 6 * 12),
        ("return torch.dot(x, y)", "torch.randn(12), torch.randn(12)", "", "x, y", 2 * 12),
        ("return torch.addmm(z, x, y, beta=2)", "torch.randn(6, 12), torch.randn(12, 20), torch.randn(20)", "", "x, y, z",
         2 * 6 * 12 * 20),
        ("return torch.baddbmm(z, x, y)", "torch.randn(3, 6, 12), torch.randn(3, 12, 20), torch.randn(3, 6, 20)", "", "x, y, z",
         2 * 3 * 6 * 12 * 20),
        ("return torch.addbmm(z, x, y)", "torch.randn(3, 6, 12), torch.randn(3, 12, 20), torch.randn(6, 20)", "", "x, y, z",
         2 * 3 * 6 * 12 * 20),
        ("return torch.einsum('bij,bjk->bik', x, y)", "torch.randn(3, 6, 12), torch.randn(3, 12, 20)", "", "x, y",
         2 * 3 * 6 * 12 * 20),
        ("return torch.einsum('...ij,jk->...ik', x, y)", "torch.randn(3, 4, 6, 12), torch.randn(12, 20)", "", "x, y",
         2 * 3 * 4 * 6 * 12 * 20),
        ("return torch.einsum('ij,ij->', x, x)", "torch.randn(6, 12)", "", "x", 2 * 6 * 12),
        ("return torch.einsum('ij->ji', x)", "torch.randn(6, 12)", "", "x", 0),
        ("return F.scaled_dot_product_attention(x, y, y)", "torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)", "", "x, y",
         2 * 2 * (2 * 3 * 5 * 7 * 8)),
        ("return self.conv(x)", "torch.randn(2, 4, 9)", CONV.format("Conv1d(4, 6, 3)"), "x", 2 * 2 * 6 * 7 * 4 * 3),
        ("return self.conv(x)", "torch.randn(2, 4, 9)", CONV.format("Conv1d(4, 6, 3, padding='same')"), "x", 2 * 2 * 6 * 9 * 4 * 3),
        ("return self.conv(x)", "torch.randn(2, 4, 8, 8)", CONV.format("Conv2d(4, 6, 3, groups=2)"), "x", 2 * 2 * 6 * 36 * 2 * 9),
        ("return self.conv(x)", "torch.randn(2, 4, 5, 5, 5)", CONV.format("Conv3d(4, 6, 3)"), "x", 2 * 2 * 6 * 27 * 4 * 27),
        ("return self.conv(x)", "torch.randn(2, 4, 9)", CONV.format("ConvTranspose1d(4, 6, 3, stride=2)"), "x", 2 * 2 * 9 * 4 * 6 * 3),
        ("return self.conv(x)", "torch.randn(2, 4, 5, 5)", CONV.format("ConvTranspose2d(4, 6, 3)"), "x", 2 * 2 * 25 * 4 * 6 * 9),
        ("return self.conv(x)", "torch.randn(2, 4, 5, 5, 5)", CONV.format("ConvTranspose3d(4, 6, 3, groups=2)"), "x",
         2 * 2 * 125 * 4 * 3 * 27),
        ("return self.rnn(x)[0]", "torch.randn(5, 2, 8)", "self.rnn = nn.LSTM(8, 16)", "x", 2 * 10 * (4 * 16 * 8 + 4 * 16 * 16)),
        ("return self.rnn(x)[0]", "torch.randn(5, 2, 8)", "self.rnn = nn.GRU(8, 16)", "x", 2 * 10 * (3 * 16 * 8 + 3 * 16 * 16)),
    ],
)  # fmt: skip
def test_operations_are_two_for_each_term(forward: str, inputs: str, init: str, arguments: str, expected: int) -> None:
    found = captured(forward, inputs, init, arguments)
    assert sum(flops(found, node) for node in found.nodes) == expected


@pytest.mark.parametrize("forward", ["return x.relu()", "return x.sum(0)", "return torch.softmax(x, 1)", "return x.t()"])
def test_other_operators_have_no_operations(forward: str) -> None:
    found = captured(forward, "torch.randn(6, 12)")
    assert [flops(found, node) for node in found.nodes] == [0]


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("Conv2d(4, 4, 3, groups=4)", True),
        ("Conv2d(4, 8, 3, groups=4)", True),
        ("Conv2d(4, 4, 3, groups=2)", False),
        ("Conv2d(4, 4, 3)", False),
        ("ConvTranspose2d(4, 4, 3, groups=4)", True),
        ("ConvTranspose2d(4, 8, 3, groups=4)", True),
        ("ConvTranspose2d(4, 1, 3)", False),
    ],
)
def test_convolution_of_each_channel_alone_is_depthwise(init: str, expected: bool) -> None:
    found = captured("return self.conv(x)", "torch.randn(2, 4, 8, 8)", CONV.format(init))
    assert is_depthwise(found, contraction(found)) is expected


def test_convolution_of_one_channel_is_not_depthwise() -> None:
    found = captured("return self.conv(x)", "torch.randn(2, 1, 8, 8)", CONV.format("Conv2d(1, 4, 3)"))
    assert not is_depthwise(found, contraction(found))


def test_matmul_is_not_depthwise() -> None:
    found = captured("return x @ x", "torch.randn(6, 6)")
    assert not is_depthwise(found, contraction(found))


def test_kernel_of_a_convolution_has_its_spatial_dimensions() -> None:
    found = captured("return self.conv(x)", "torch.randn(2, 4, 8, 8)", CONV.format("Conv2d(4, 4, (3, 5))"))
    assert kernel_size(found, contraction(found)) == (3, 5)
