"""Breadth: problems of every kind that users write are captured, planned, and right when left to the library."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from models import captured, made, pair, source
from overlaps import faults

from kgen.candidate import Candidate
from kgen.codegen.roofline import Work
from kgen.devices.hardware import cpu, for_arch
from kgen.tuning.design import Design
from kgen.tuning.prediction import Predictor
from kgen.tuning.search import Point

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
ROWS = "torch.randn(6, 20)"


def text(body: str, inputs: str = ROWS, init: str = "[]") -> str:
    """A problem whose classes are ``body``."""
    return f"{HEAD}{textwrap.dedent(body).strip()}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return {init}\n"


#: Each kind of problem with its text.
PROBLEMS = {
    # Names of parameters
    "capital parameters": source("return A @ B", "torch.randn(6, 20), torch.randn(20, 3)", arguments="A, B"),
    "names that differ in case": source("return x * X", "torch.randn(6, 20), torch.randn(6, 20)", arguments="x, X"),
    "builtins as names": source("return input + sum", f"{ROWS}, {ROWS}", arguments="input, sum"),
    "names of the rendered file": source(
        "return F.relu(check) + torch.tanh(run) * device", f"{ROWS}, {ROWS}, {ROWS}", arguments="check, run, device"
    ),
    "names of modules": text(
        """
        class Model(nn.Module):
            def forward(self, F, nn, batch_size=3):
                return (F * batch_size) @ nn
        """,
        f"{ROWS}, torch.randn(20, 4)",
    ),
    "self under another name": text(
        """
        class Model(nn.Module):
            def __init__(this):
                super().__init__()
                this.w = nn.Parameter(torch.randn(20))

            def forward(this, x):
                return x * this.w
        """
    ),
    # Arguments
    "several inputs": source("return x * y + z", f"{ROWS}, torch.randn(6, 1), torch.randn(20)", arguments="x, y, z"),
    "inputs without a batch": source("return torch.dot(x, y)", "torch.randn(20), torch.randn(20)", arguments="x, y"),
    "an input without dimensions": source("return x * y", f"torch.tensor(2.0), {ROWS}", arguments="x, y"),
    "the batch of a later input": source(
        "return F.linear(x, w)", "torch.randn(4, 20), torch.randn(6, 20)", arguments="w, x"
    ),
    "square matrices": source("return A @ B", "torch.randn(8, 8), torch.randn(8, 8)", arguments="A, B"),
    "defaults": source("return x * scale if mask is None else x", arguments="x, mask=None, scale=2.0"),
    "keyword-only arguments": source("return F.softmax(x, dim) * scale", arguments="x, *, dim=-1, scale=0.5"),
    "a number and a flag": source("return x * k if flag else x", f"{ROWS}, 3, True", arguments="x, k, flag"),
    "a list of tensors": source("return xs[0] + xs[1]", "[torch.randn(6, 20), torch.randn(6, 20)]", arguments="xs"),
    "a dict of tensors": source(
        "return batch['x'] * batch['mask']", "{'x': torch.randn(6, 20), 'mask': torch.rand(6, 20) > 0.5}", arguments="batch"
    ),
    "any number of arguments": source("return rest[0] - rest[1]", f"{ROWS}, {ROWS}", arguments="*rest, **more"),
    "arguments by position alone": source("return x - y", f"{ROWS}, {ROWS}", arguments="x, /, y"),
    "a default that is no literal": text(
        """
        def twice(x):
            return x * 2.0


        class Model(nn.Module):
            def forward(self, x, after=twice, dtype=torch.float32):
                return after(torch.tanh(x)).to(dtype)
        """
    ),
    # Types
    "indices": source(
        "return self.table(x).mean(1)", "torch.randint(0, 9, (6, 5))", "self.table = nn.Embedding(9, 20)"
    ),
    "targets": source(
        "return F.cross_entropy(x, y)", f"{ROWS}, torch.randint(0, 20, (6,))", arguments="x, y"
    ),
    "gathered": source("return x.gather(1, at)", f"{ROWS}, torch.randint(0, 20, (6, 4))", arguments="x, at"),
    "a mask of bools": source(
        "return x.masked_fill(mask, float('-inf')).softmax(-1)", f"{ROWS}, torch.rand(6, 20) > 0.9", arguments="x, mask"
    ),
    "bools out": source("return x > 0, x.argmax(1)"),
    # Constants made in forward
    "a constant number": source("return torch.minimum(x, torch.tensor(0.5)) * torch.tensor(2)"),
    "bounds that are tensors": source(
        "top = torch.log(torch.tensor(4.0))\nreturn torch.clamp(x, max=top) + torch.clamp(x, min=x.mean(0)) + torch.clamp(x, min=top, max=top)"
    ),
    "a constant on the device": source("return x * torch.tensor(2.0, device=x.device, dtype=x.dtype)"),
    "a constant computed": source("return x / torch.sqrt(torch.tensor(x.shape[1]))"),
    "a constant vector": source("return x * torch.tensor([0.5, float('inf'), -1.0, 2.0], device=x.device).repeat(5)"),
    "a constant that is changed": source("c = torch.tensor([1.0, 2.0])\ny = x[:, :2] * c\nc.add_(1.0)\nreturn y * c"),
    "a constant returned": source("return x * 2.0, torch.tensor(3.0)"),
    "an array of numpy": source("import numpy as np\nreturn x * torch.from_numpy(np.arange(20, dtype='float32'))"),
    "a tensor of the module's file": text(
        """
        WINDOW = torch.linspace(0.0, 1.0, 20)


        class Model(nn.Module):
            def forward(self, x):
                return x * WINDOW
        """
    ),
    "a mask made in forward": source(
        "mask = torch.tril(torch.ones(20, 20, device=x.device)).bool()\n"
        "return (x[:, :, None] * x[:, None]).masked_fill(~mask, 0.0)"
    ),
    "a table made at the first call": source(
        "if self.table is None:\n    self.table = torch.arange(20, device=x.device) * 0.1\nreturn x + self.table", init="self.table = None"
    ),
    "positions": source("return x + torch.arange(x.shape[1], device=x.device).float()"),
    # What changes nothing
    "layers that do nothing": source(
        "return self.layers(x).clone().contiguous().detach() * 2.0",
        init="self.layers = nn.Sequential(nn.Identity(), nn.Dropout(0.0), nn.Dropout(0.0), nn.Linear(20, 8))",
    ),
    "a copy returned": source("y = torch.tanh(x)\nreturn y, y.clone(), x.clone()"),
    # Modules
    "a sequential": source(
        "return self.layers(x)", init="self.layers = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 4))"
    ),
    "a list of modules": source(
        "for block in self.blocks:\n    x = x + block(x)\nreturn x",
        init="self.blocks = nn.ModuleList([nn.Linear(20, 20) for _ in range(3)])",
    ),
    "a dict of modules": source(
        "return self.parts['in'](x)", init="self.parts = nn.ModuleDict({'in': nn.Linear(20, 8), '1': nn.Linear(20, 8)})"
    ),
    "a list of parameters": source(
        "return x * self.ws[0] + self.ws[1]", init="self.ws = nn.ParameterList([torch.randn(20), torch.randn(20)])"
    ),
    "a dict of parameters": source(
        "return x * self.ws['of a']", init="self.ws = nn.ParameterDict({'of a': torch.randn(20)})"
    ),
    "results with names": source("least, most = x.aminmax()\nreturn (x - least) / (most - least), x.max(1)"),
    "tensors in a list": source("return x * self.scales[1]", init="self.scales = [torch.rand(20), torch.rand(20)]"),
    "tied weights": source(
        "return self.b(F.relu(self.a(x)))", init="self.a, self.b = nn.Linear(20, 20), nn.Linear(20, 20)\nself.b.weight = self.a.weight"
    ),
    "a parameter called like an input": source("return x * self.x", init="self.x = nn.Parameter(torch.randn(20))"),
    "a module with a number in its constructor": source(
        "return x * self.rates[1]", init="self.rates = [r.item() for r in torch.linspace(0, 1, 3)]"
    ),
    "a recurrent network": source("return self.lstm(x)", "torch.randn(6, 5, 20)", "self.lstm = nn.LSTM(20, 8, batch_first=True)"),
    "cells": source(
        "h, c = self.lstm(x, state)\nreturn self.gru(h), c",
        "torch.randn(6, 20), (torch.zeros(6, 8), torch.zeros(6, 8))",
        "self.lstm, self.gru = nn.LSTMCell(20, 8), nn.GRUCell(8, 4)",
        "x, state",
    ),
    "the last place of a product": source(
        "return self.head(x)[:, [-1], :]", "torch.randn(2, 5, 20)", "self.head = nn.Linear(20, 30, bias=False)"
    ),
    "an empty batch": source("return torch.softmax(x * 2.0, -1).sum(), x", "torch.randn(0, 20)"),
    "an encoder": source(
        "return self.encoder(x)",
        "torch.randn(2, 5, 16)",
        "layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)\nself.encoder = nn.TransformerEncoder(layer, 2)",
    ),
    "a normalised weight": source("return self.f(x)", init="self.f = nn.utils.parametrizations.weight_norm(nn.Linear(20, 8))"),
    "a spectral norm": source("return self.f(x)", init="self.f = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 8))"),
    # Where Model comes from
    "an imported class": "import torch\nfrom torch.nn import Softmin as Model\n\n\ndef get_inputs():\n    return [torch.randn(6, 20)]\n\n\n"
    "def get_init_inputs():\n    return [1]\n",
    "another name for a class": text("Model = nn.Linear", init="[20, 8]"),
    "a forward inherited in the file": text(
        """
        class Base(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = nn.Linear(20, width)

            def forward(self, x, factor=2.0):
                return self.linear(x) * factor


        class Model(Base):
            pass
        """,
        init="[8]",
    ),
    "a forward inherited from torch": text("class Model(nn.Linear):\n    scale = 2.0\n", init="[20, 8]"),
    "a forward that calls helpers": text(
        """
        def halves(x):
            return x.chunk(2, dim=-1)


        class Gate(nn.Module):
            def forward(self, x):
                a, b = halves(x)
                return a * torch.sigmoid(b)


        class Model(nn.Module):
            def __init__(self, width=8):
                super().__init__()
                self.gate, self.linear = Gate(), nn.Linear(20, width)

            def project(self, x):
                return self.linear(x)

            def forward(self, x):
                return self.gate(self.project(x))
        """
    ),
    # Views and writes
    "heads split and merged": source(
        "b, s, d = x.shape\n"
        "q = x.reshape(b, s, 4, d // 4).permute(0, 2, 1, 3)\n"
        "y = torch.softmax(q @ q.transpose(-1, -2), -1) @ q\n"
        "return y.permute(0, 2, 1, 3).contiguous().view(b, s, d)",
        "torch.randn(2, 5, 16)",
    ),
    "patches": source(
        "b, c, h, w = x.shape\n"
        "return x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5).flatten(1, 2).flatten(2)",
        "torch.randn(2, 3, 8, 8)",
    ),
    "a window": source("return x.unfold(1, 4, 2).mean(-1)"),
    "einsum": source("return torch.einsum('bik,bjk->bij', x, x)", "torch.randn(3, 5, 8)"),
    "a write into a view": source("y = torch.tanh(x)\ny[:, 0] = 0.0\ny[:, 1:3] += 1.0\nreturn y"),
    "rows written in a loop": source("y = torch.zeros_like(x)\nfor i in range(3):\n    y[i] = x[i] * (i + 1)\nreturn y"),
    "a buffer moved on": source(
        "self.mean = 0.9 * self.mean + 0.1 * x.mean(0)\nreturn x - self.mean", init="self.register_buffer('mean', torch.zeros(20))"
    ),
    "a buffer moved on in place": source(
        "self.mean[:4] = x.mean(0)[:4]\nreturn x - self.mean", init="self.register_buffer('mean', torch.zeros(20))"
    ),
    "a region without gradients": source(
        "with torch.no_grad():\n    scale = x.abs().amax()\nreturn x / scale"
    ),
    "a buffer written without gradients, read by nothing": source(
        "with torch.no_grad():\n    self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)\nreturn x.softmax(1)",
        init="self.register_buffer('mean', torch.zeros(20))",
    ),
    "a buffer written without gradients, after its use": text(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer('centre', torch.zeros(20))

            @torch.no_grad()
            def update(self, x):
                self.centre.lerp_(x.mean(0), 0.1)

            def forward(self, x):
                y = torch.softmax(x - self.centre, 1)
                if self.training:
                    self.update(x)
                return y
        """
    ),
    "a buffer written with gradients, read by nothing": source(
        "with torch.enable_grad():\n    self.mean.copy_(x.mean(0))\nreturn x.softmax(1)",
        init="self.register_buffer('mean', torch.zeros(20))",
    ),
    "a buffer written in autocast, read by nothing": source(
        "with torch.autocast(x.device.type, dtype=torch.bfloat16):\n    self.mean.copy_((x.t() @ x).sum(0))\nreturn x.softmax(1)",
        init="self.register_buffer('mean', torch.zeros(20))",
    ),
    "a buffer written in nested regions": source(
        "with torch.no_grad():\n    with torch.enable_grad():\n        with torch.inference_mode():\n            self.mean[:4] = x.mean(0)[:4]\n"
        "        self.mean += 1.0\n    self.mean *= 2.0\nreturn x.softmax(1)",
        init="self.register_buffer('mean', torch.zeros(20))",
    ),
    "a vmap": source("return torch.vmap(lambda row: row.softmax(0) * row.sum())(x)"),
    # Outputs
    "a tuple": source("return torch.tanh(x), x.sum()"),
    "a list": source("return [x * 2.0, (x + 1.0, None)]"),
    "a dict": source("return {'y': x * 2.0, '{odd}': [x.mean()], 'rows': x.shape[0]}"),
    "a scalar": source("return ((x - y) ** 2).mean()", f"{ROWS}, {ROWS}", arguments="x, y"),
    "two results of one operator": source("return torch.max(x, dim=1)"),
    "running statistics that are means of all batches": source(
        "return self.m(self.n(x).unsqueeze(2)).squeeze(2)", init="self.n, self.m = (nn.BatchNorm1d(20, momentum=None) for _ in range(2))"
    ),
    "the same tensor twice": source("y = x * 2.0\nreturn y, y"),
    "sizes that follow values in between": source("return x[x > 0].sum()"),
    "sizes that follow values, returned": source(
        "return x.relu(), torch.unique(at), at[at > 2]", f"{ROWS}, torch.randint(0, 9, (6,))", arguments="x, at"
    ),
    "rows that values choose": source(
        "rows = torch.where(x[:, 0] > 0)[0]\nreturn x.index_add(0, rows, self.l(x[rows]))", init="self.l = nn.Linear(20, 20)"
    ),
}


def control(of: Design) -> Candidate:
    """The candidate that leaves everything to the library."""
    number = next(n for n, choice in enumerate(of.choices) if all(plan.control for _, plan in choice.plans))
    return of.candidate(Point(number, ()))


def outputs(module: torch.nn.Module, inputs: list) -> tuple[list, Any]:
    with torch.no_grad():
        return pytree.tree_flatten(module(*inputs))


def assert_same_results(model: torch.nn.Module, new: torch.nn.Module, inputs: list) -> None:
    """The same values in the same containers, drawn from the same seed, and the same state afterwards."""
    torch.manual_seed(1)
    expected, structure = outputs(model, inputs)
    torch.manual_seed(1)
    found, same = outputs(new, inputs)
    assert [type(x) for x in found] == [type(x) for x in expected]
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        else:
            assert a == b
    for (name, a), (other, b) in zip(new.state_dict().items(), model.state_dict().items(), strict=True):
        assert name == other
        torch.testing.assert_close(a, b)
    if structure.type in (dict, list):
        assert same == structure


@lru_cache(maxsize=None)
def designs(name: str) -> tuple[Design, Design]:
    """Those of a GPU and of the CPU. Their plans are worked out once, which takes most of the time of a test."""
    loaded = made(PROBLEMS[name], "both")
    gpu, of = (Design(loaded.problem, captured(loaded), hardware) for hardware in (for_arch("sm_90"), cpu()))
    return gpu, of


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_kernel_overwrites_what_it_or_a_later_step_reads(name: str) -> None:
    plans = [plan for design in designs(name) for choice in design.choices for _, plan in choice.plans]
    assert not list(faults(plans))


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_captured_planned_and_right_when_left_to_the_library(name: str) -> None:
    loaded = made(PROBLEMS[name], "both")
    gpu, of = designs(name)
    assert control(gpu).source and gpu.combinations >= 1
    assert all(Work.of(graph).nbytes and Predictor(gpu.hardware).limit_ms(graph) for _, graph in captured(loaded).graphs)
    model, new = pair(loaded, control(of))
    for mode in (True, False):
        assert_same_results(model.train(mode), new.train(mode), loaded.inputs())
