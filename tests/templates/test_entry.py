"""A forward in one call of C: when it computes, and when it leaves a call to Python's way.

The device is emulated: tensors are on the CPU, and the text takes those for a GPU's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from emulated import Device, guarded
from models import design, made, source

from kgen.candidate import CALL, Candidate
from kgen.devices.hardware import for_arch
from kgen.tuning.design import Design
from kgen.tuning.search import Point

FORWARD, INIT = "return torch.cumsum(self.norm(x), 1).softmax(1) * y", "self.norm = nn.LayerNorm(20)"


def point(of: Design) -> Point:
    return Point(0, of.options[0].plainest, CALL)


def candidate(forward: str, inputs: str = "torch.randn(6, 20), torch.randn(6, 20)", init: str = "", arguments: str = "x, y") -> Candidate:
    of = design(made(source(forward, inputs, init, arguments)), for_arch("sm_90"))
    return of.candidate(point(of))


@pytest.mark.parametrize(("forward", "init"), [
    ("return torch.relu(x) + y, x", ""),  # two results
    ("return torch.sort(x + y)[0].softmax(1)", ""),  # a call of the library
])  # fmt: skip
def test_other_forwards_have_no_entry(forward: str, init: str) -> None:
    of = design(made(source(forward, "torch.randn(6, 20), torch.randn(6, 20)", init, "x, y")), for_arch("sm_90"))
    assert of.obstacle(point(of)) == "forward is not one run of kernels"


def test_by_python_a_forward_has_no_entry() -> None:
    of = design(made(source(FORWARD, "torch.randn(6, 20), torch.randn(6, 20)", INIT, "x, y")), for_arch("sm_90"))
    assert of.obstacle(point(of)) is None
    assert "_entry" in of.candidate(point(of)).source and "_entry" not in of.candidate(replace(point(of), launching="")).source


def on_the_cpu(of: Candidate) -> Candidate:
    """The text for tensors on the CPU, whose device has no index and no stream."""
    changed = of.source
    for gpu, cpu in (("type_of_device == 1", "type_of_device == 0"), ("device == wanted_device", "wanted_device == 0"),
                     ("PyLong_AsLongLong(part(7)) == device", "device == 0"),
                     ('"libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"', 'cpu, "aoti_torch_get_dim"'),
                     ("torch.stream(device, &stream)", "(stream = nullptr, false)")):  # fmt: skip
        assert changed.count(gpu) == 1, gpu
        changed = changed.replace(gpu, cpu)
    return replace(of, source=changed)


@pytest.fixture(scope="module")
def parts(whole_device: Device) -> tuple[Any, Any, Any]:
    """PyTorch's module, the candidate's file, and its module with the same weights."""
    of = candidate(FORWARD, init=INIT)
    file = whole_device.module(on_the_cpu(of))
    model, new = made(source(FORWARD, "torch.randn(6, 20), torch.randn(6, 20)", INIT, "x, y")).model(), file.ModelNew()
    for parameter in new.parameters():
        parameter.data = guarded(parameter.data)
    return model, file, new


def given(rows: int = 6) -> list[torch.Tensor]:
    return [guarded(torch.randn(rows, 20)) for _ in range(2)]


def test_the_usual_call_is_one_call(parts: Any) -> None:
    model, file, new = parts
    with torch.no_grad():
        new(*given())
        for rows in (6, 6, 3, 9):
            x = given(rows)
            torch.testing.assert_close(file._entry(new._prepared, *x), model(*x))
            torch.testing.assert_close(new(*x), model(*x))


def test_what_is_not_usual_is_left_to_python(parts: Any) -> None:
    model, file, new = parts
    x, y = given()
    with torch.no_grad():
        new(x, y)
        kept = new._prepared
        assert file._entry(kept, x, y) is not None
        for other in ((x.double(), y), (x[:, :19], y), (x[:4], y), (x[None], y), (x.t().contiguous().t(), y), (torch.nn.Parameter(x), y),
                      (x.view(-1)[1:81].view(4, 20), y[:4]), (torch.empty(6, 20, device="meta"), y), (None, y)):  # fmt: skip
            assert file._entry(kept, *other) is None
        assert file._entry(None, x, y) is None
    assert file._entry(kept, x, y) is None  # a gradient may be asked for


def test_changed_and_replaced_weights_are_left_to_python(parts: Any) -> None:
    model, file, new = parts
    x, y = given()
    with torch.no_grad():
        new(x, y)
        kept, weight = new._prepared, new.norm.weight
        weight.mul_(2.0)  # is read where it lies
        model.norm.weight.mul_(2.0)
        torch.testing.assert_close(file._entry(kept, x, y), model(x, y))
        weight.data = guarded(weight.data)
        assert file._entry(kept, x, y) is None
        new.norm.weight = torch.nn.Parameter(guarded(weight.detach()))
        assert file._entry(kept, x, y) is None
        torch.testing.assert_close(new(x, y), model(x, y))
        assert file._entry(new._prepared, x, y) is not None

        apart = torch.nn.Parameter(torch.ones(40)[::2])  # kernels read a copy
        new.norm.weight = apart
        model.norm.weight = torch.nn.Parameter(torch.ones(20))
        torch.testing.assert_close(new(x, y), model(x, y))
        kept = new._prepared
        kept.stream = -2  # as on a device without streams
        torch.testing.assert_close(file._entry(kept, x, y), model(x, y))
        kept.stream = 5
        assert file._entry(kept, x, y) is None
        kept.stream = -2
        apart.mul_(3.0)
        assert file._entry(kept, x, y) is None
