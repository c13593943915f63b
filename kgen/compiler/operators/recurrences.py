"""Cells of recurrent layers, as expressions: one entry for each operator. Gates are in PyTorch's order."""

from __future__ import annotations

from kgen.compiler.loops.expr import Expr, w, x, y, z
from kgen.compiler.loops.functions import apply_sigmoid, positive, tanh
from kgen.compiler.loops.recurrence import Cell, CellStep


def _step(name: str, expression: Expr, *args: str) -> CellStep:
    return CellStep(name, expression, args)


def _plain(activation: Expr) -> Cell:
    return Cell(1, (_step("next_hidden", activation, "x0", "h0"),))


#: By the names of the library's operators of a whole layer.
CELLS = {
    "lstm": Cell(
        4,
        (
            _step("input_gate", apply_sigmoid(x + y), "x0", "h0"),
            _step("forget_gate", apply_sigmoid(x + y), "x1", "h1"),
            _step("candidate", tanh(x + y), "x2", "h2"),
            _step("output_gate", apply_sigmoid(x + y), "x3", "h3"),
            _step("next_cell", x * y + z * w, "forget_gate", "cell", "input_gate", "candidate"),
            _step("next_hidden", x * tanh(y), "output_gate", "next_cell"),
        ),
        ("hidden", "cell"),
    ),
    "gru": Cell(
        3,
        (
            _step("reset_gate", apply_sigmoid(x + y), "x0", "h0"),
            _step("update_gate", apply_sigmoid(x + y), "x1", "h1"),
            _step("candidate", tanh(x + y * z), "x2", "reset_gate", "h2"),
            _step("next_hidden", x + y * (z - x), "candidate", "update_gate", "hidden"),
        ),
    ),
    "rnn_tanh": _plain(tanh(x + y)),
    "rnn_relu": _plain(positive(x + y)),
}
