"""Loops over time that export unrolled: those of linear recurrences become scans, which compute the same in float64; others stay."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.utils._pytree as pytree
from evaluated import run
from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.rewrites.unrolled import unrolled_to_scan

ROWS = "torch.randn(3, 9, 8), torch.randn(3, 8), torch.rand(3, 9, 8)"
#: Forwards of ``x``, ``y`` and ``b``, with their inputs and the number of scans.
LOOPS = {
    "a gated state of parts": ("h, o = y, []\nfor u, v in zip(x.unbind(1), b.unbind(1)):\n    h = v.sigmoid() * h + u\n    o.append(h)\nreturn torch.stack(o, 1)", ROWS, 1),
    "averages of slices, put together": ("h, o = y, []\nfor t in range(9):\n    h = 0.9 * h + 0.1 * x[:, t:t+1]\n    o.append(h)\nreturn torch.cat(o, 1)",
                                         "torch.randn(3, 9, 8), torch.randn(3, 1, 8), torch.randn(1)", 1),
    "steps from the last one back": ("h, o = y, []\nfor t in reversed(range(9)):\n    h = 0.9 * h + b[:, t] * x[:, t]\n    o.insert(0, h * b[:, t])\nreturn torch.stack(o, 1), h", ROWS, 1),
    "a first step that is an input": ("h = x[:, 0]\no = [h]\nfor t in range(1, 10):\n    h = (1 - y) * h + y * x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)",
                                      "torch.randn(3, 10, 8), torch.randn(8), torch.randn(1)", 1),
    "outputs of the matrix before": ("s, o = x.new_zeros(3, 2, 4, 4), []\nfor t in range(9):\n    k = x[:, :, t].unsqueeze(-1) @ b[:, :, t].unsqueeze(-2)\n"
                                     "    o.append((x[:, :, t].unsqueeze(-2) @ (y[:, None, None] * k + s)).squeeze(-2))\n    s = y[:, None, None] * s + k\nreturn torch.stack(o, 2), s",
                                     "torch.randn(3, 2, 9, 4), torch.rand(2), torch.randn(3, 2, 9, 4)", 1),
    "two states, of which outputs are a quotient": ("n, d, o = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []\nfor t in range(9):\n    e = torch.exp(b[:, t])\n    o.append((n + e * x[:, t]) / (d + e))\n"
                                                    "    n = y * n + e * x[:, t]\n    d = y * d + e\nreturn torch.stack(o, 1)", "torch.randn(3, 9, 8), torch.rand(8), torch.randn(3, 9, 8)", 2),
    "two layers in one loop": ("g, h, o = y, y, []\nfor t in range(9):\n    g = 0.5 * g + x[:, t]\n    h = b[:, t] * h + torch.tanh(g)\n    o.append(h)\nreturn torch.stack(o, 1)", ROWS, 2),
    "sums over a state": ("h, o = x.new_zeros(3, 8, 4), []\nfor t in range(9):\n    h = torch.exp(x[:, t, :, None] * y) * h + (x * b)[:, t, :, None] * b[:, t, None, :4]\n"
                          "    o.append(torch.einsum('bdn,bn->bd', h, b[:, t, 4:]))\nreturn torch.stack(o, 1)", "torch.rand(3, 9, 8), -torch.rand(8, 4), torch.rand(3, 9, 8)", 1),
    "the last state alone": ("h = y\nfor t in range(9):\n    h = b[:, t] * h + x[:, t]\nreturn h.tanh()", ROWS, 1),
    "states that a mask resets": ("h, o = y, []\nfor t in range(9):\n    h = torch.where(b[t] > 0, 0.0, h) * 0.9 + x[t]\n    o.append(h)\nreturn torch.stack(o)",
                                  "torch.randn(9, 3, 8), torch.randn(3, 8), torch.randn(9, 3, 1)", 1),
    "states that are written and read back": ("o = torch.zeros_like(x)\nfor t in range(9):\n    o[:, t] = (b[:, t] * o[:, t - 1] if t else 0.0) + x[:, t]\nreturn o", ROWS, 1),
    "every second element": ("h, o = y, []\nfor t in range(0, 18, 2):\n    h = h.lerp(x[:, t], 0.1) + x[:, t + 1]\n    o.append(h)\nreturn torch.stack(o, -1)",
                             "torch.randn(3, 18, 8), torch.randn(3, 8), torch.randn(1)", 1),
    "gates of the state": ("h, o = y, []\nfor t in range(9):\n    z = torch.sigmoid(h + x[:, t])\n    h = z * h + (1 - z) * b[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)", ROWS, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOPS)
def test_a_loop_over_time_is_as_many_scans_as_it_has_linear_states(case: str) -> None:
    text, inputs, count = LOOPS[case]
    loaded = made(source(text, inputs, "", "x, y, b"))
    module, exact = loaded.model(), [v.double() for v in loaded.inputs()]
    captured = graph(loaded)
    assert [n.op for n in unrolled_to_scan(captured).nodes].count("linear_recurrence") == count
    plan = plans(captured, tuple(templates("cuda").values()))[0]
    names = inspect.signature(module.forward).parameters
    for got, truth in zip(run(plan, module, dict(zip(names, exact))), pytree.tree_leaves(module(*exact)), strict=True):
        torch.testing.assert_close(got, truth, rtol=1e-9, atol=1e-9)


def test_steps_that_are_one_number_apart_from_others_stay() -> None:
    text = "h, o = y, []\nfor t in range(9):\n    h = (0.9 if t < 5 else 0.8) * h + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)"
    found = graph(made(source(text, ROWS, "", "x, y, b")))
    assert unrolled_to_scan(found) is found


def test_steps_that_divide_the_state_by_zero_stay() -> None:
    text = "h, o = y, []\nfor t in range(9):\n    h = h / 0.0 + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)"
    found = graph(made(source(text, ROWS, "", "x, y, b")))
    assert unrolled_to_scan(found) is found


def test_sums_of_matrices_are_stored_in_another_order_than_their_own() -> None:
    text = "return torch.relu((x.view(9, 3, 5, 4) @ y.view(9, 3, 4, 4)).permute(1, 0, 2, 3)).flatten(0, 1)"
    loaded = made(source(text, "torch.randn(9, 3, 5, 4), torch.randn(9, 3, 4, 4)", "", "x, y"))
    exact = [v.double() for v in loaded.inputs()]
    for plan in plans(graph(loaded), tuple(templates("cuda").values())):
        (got,) = run(plan, loaded.model(), dict(zip("xy", exact)))
        torch.testing.assert_close(got, loaded.model()(*exact))
