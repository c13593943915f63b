"""Controls: where kgen changes nothing, a file runs the operators that eager PyTorch runs."""

from __future__ import annotations

import types

import pytest
import torch
from models import made, source
from torch.utils._python_dispatch import TorchDispatchMode

from kgen.devices.hardware import cpu
from kgen.tuning.design import Design, captured

IMAGES = "torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)"
SEQUENCES = "torch.randn(2, 5, 16)"


#: Operators that fill memory with one number; a control has one for all of them.
FILLS = frozenset(f"aten.{name}.default" for name in ("full", "zeros", "ones", "new_ones", "new_zeros", "new_full", "zeros_like", "ones_like"))


class Recorder(TorchDispatchMode):
    """Records the operators that compute; views move nothing. One that writes in place is the same as one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if not any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            self.operators.append("fill" if str(func) in FILLS else str(func).replace("_.", "."))
        return func(*args, **(kwargs or {}))


def operators(module: torch.nn.Module, inputs: list) -> list[str]:
    with torch.no_grad(), Recorder() as recorder:
        module(*inputs)
    return recorder.operators


#: forward, inputs, __init__, and an operator that is fused where PyTorch takes its fast path.
MODULES = {
    "an encoder layer": ("self.f(x)", SEQUENCES, "self.f = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)", "aten._transformer_encoder_layer_fwd.default"),
    "an encoder layer with a mask": ("self.f(x, torch.triu(x.new_ones(5, 5), 1).bool())", SEQUENCES, "self.f = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)", "aten._transformer_encoder_layer_fwd.default"),
    "an encoder": ("self.f(x)", SEQUENCES, "self.f = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)", "aten._transformer_encoder_layer_fwd.default"),
    "attention": ("self.f(x, x, x, need_weights=False)[0]", SEQUENCES, "self.f = nn.MultiheadAttention(16, 2, batch_first=True)", "aten._native_multi_head_attention.default"),
    "causal attention of grouped heads": (
        "F.scaled_dot_product_attention(x.view(2, 5, 4, 4).transpose(1, 2), *2 * [x[..., :8].view(2, 5, 2, 4).transpose(1, 2)], is_causal=True, enable_gqa=True)",
        SEQUENCES, "", "",
    ),
    "images with channels last": ("F.relu(self.norm(self.f(x)))", IMAGES, "self.f, self.norm = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.BatchNorm2d(4)", ""),
    "an LSTM": ("self.f(x)[0][:, -1]", SEQUENCES, "self.f = nn.LSTM(16, 8, 2, batch_first=True)", ""),
    "a bidirectional GRU": ("self.f(x.transpose(0, 1), torch.zeros(4, 2, 8))", SEQUENCES, "self.f = nn.GRU(16, 8, 2, bidirectional=True)", ""),
    "a mask that export alone needs": ("x if not torch.compiler.is_exporting() else x + torch.zeros(5, 16)", SEQUENCES, "", ""),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
@pytest.mark.parametrize("case", MODULES)
def test_control_runs_the_operators_of_eager(case: str) -> None:
    value, inputs, init, fused = MODULES[case]
    loaded = made(source(f"return {value}", inputs, init), "eval")
    design = Design(loaded.problem, captured(loaded), cpu())
    text = types.ModuleType("control")
    exec(design.candidate(design.control).source, text.__dict__)
    given = loaded.inputs()
    eager = operators(loaded.model().eval(), given)
    assert operators(text.ModelNew(*loaded.init_inputs()).eval(), given) == eager
    assert not fused or fused in eager
