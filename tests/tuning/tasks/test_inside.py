"""Kernels of a file get their times from a profile that names functions of the device."""

from __future__ import annotations

import torch
from torch.autograd import DeviceType

from kgen.evaluator.candidates.kernel_times import kernel_ms
from kgen.evaluator.runtime.device import Host
from kgen.tuning.tasks.inside import inside_ms


def test_kernels_of_one_launcher_share_its_time() -> None:
    profile = {"void linear_kernel<4>(float const*)": 2.0, "linear_2_contraction::contraction_kernel(int)": 0.25, "linear_2_split_kernel": 0.25, "gemm": 9.0}
    assert inside_ms(("linear", "linear", "linear_2", "softmax"), profile) == (1.0, 1.0, 0.5, None)


def test_profile_has_the_time_of_a_call_by_name() -> None:
    class Profiled(Host):
        kernels_on = DeviceType.CPU

    x = torch.ones(1 << 16)
    assert 0.0 < kernel_ms(lambda: x.add(x), lambda: None, Profiled("cpu"))["aten::add"] < 1e3
    assert kernel_ms(lambda: x.add(x), lambda: None, Host("cpu")) == {}
