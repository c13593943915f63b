"""Labels of foreign candidates: what they say, and how the share of own kernels is measured."""

from collections import Counter
from dataclasses import replace

import pytest
from candidates import render
from models import design, plainest, reference

from kgen.candidate import Candidate, Trust
from kgen.evaluator.candidates.checks import Operators
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.strict import profile, replaced
from kgen.evaluator.strict.strict import NO_KERNEL, has_native_code, profile_labels
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Status

NATIVE = [
    "import ctypes", "import triton.language as tl", "from torch.utils.cpp_extension import load_inline",
    "import torch\nf = torch.compile(g)", "from torch import ops\nops.load_library('a')", "__import__('os')", "exec('x')",
]


@pytest.mark.parametrize("source", NATIVE)
def test_a_file_that_may_run_native_code_is_not_labelled(source):
    assert has_native_code(source)


@pytest.mark.parametrize("source", ["import torch", "import torch.nn.functional as F\nF.linear(x, y)", "x = model.eval()"])
def test_a_file_that_only_calls_the_library_is_labelled(source):
    assert not has_native_code(source)


@pytest.mark.parametrize("found, more, label", [
    ({"own_ns": 23, "all_ns": 100}, {}, "own kernels 23% of the time"),
    ({"own_ns": 23, "all_ns": 100}, {"accelerator": False}, "own kernels and Python 23% of the time"),
    ({"own_ns": 0, "all_ns": 100}, {}, NO_KERNEL),
    ({"own_ns": 1, "all_ns": 1000}, {}, "own kernels less than 1% of the time"),
    ({"own_ns": 0, "all_ns": 0}, {}, "share of own kernels not known: the profiler sees no kernel here"),
    ({"own_ns": "23", "all_ns": 100}, {}, "share of own kernels not known: the profiler sees no kernel here"),
    ({"own_ns": -1, "all_ns": True}, {}, "share of own kernels not known: the profiler sees no kernel here"),
])
def test_the_share_of_own_kernels_is_told(found, more, label):
    assert profile_labels(found, **{"accelerator": True} | more) == [label]


@pytest.mark.parametrize("name", [
    "void at::native::vectorized_elementwise_kernel<4>", "nvjet_sm90_sss_128x128", "ampere_sgemm_128x64_tn",
    "void cublasLt::splitKreduce_kernel<32>", "Memcpy DtoD (Device -> Device)", "void cudnn::ops::nchwToNhwc",
])
def test_kernels_of_the_library_are_known_by_their_names(name):
    assert profile.library_ns({name: 100, "row_gelu_softmax": 200}) == 100


def test_on_the_cpu_time_outside_library_operators_is_own():
    assert profile.library_ns({"aten::linear": 400, "mkldnn::gelu": 50, "my::op": 300}) == 450


@pytest.fixture
def profiled(evaluator, judge, monkeypatch):
    """Judges a foreign file with its profile."""
    monkeypatch.setattr(evaluator.checks, "profiles", True)
    return judge


def test_the_share_of_own_kernels_is_labelled_when_asked_for(judge, profiled, monkeypatch, evaluator):
    found = profiled(render())
    assert any(label.startswith("own kernels") for label in found.labels)
    assert found.replaced == 0.5 and not any("replaces" in label for label in found.labels)  # of product, bias, GELU and softmax
    monkeypatch.setattr(evaluator.checks, "profiles", False)
    assert not any(label.startswith("own kernels") for label in judge(render()).labels)


def test_a_profile_that_fails_is_no_failure_of_the_candidate(profiled, monkeypatch):
    from kgen.evaluator.correctness.validate import WorkerClient

    ask = WorkerClient.ask
    monkeypatch.setattr(WorkerClient, "ask", lambda self, do, *rest, **request: (
        {"error": "no profiler"} if do == "profile" else ask(self, do, *rest, **request)))
    evaluation = profiled(render())
    assert evaluation.status is Status.OK, evaluation.reason
    assert "not profiled: no profiler" in evaluation.labels


def test_an_answer_that_counts_no_operators_is_no_failure_of_the_candidate():
    with pytest.raises(Failure):
        replaced.called({"operators": {"relu": "many"}})


@pytest.mark.parametrize("calls, label", [
    ({"matmul": 1, "relu": 1, "softmax": 1, "mul": 2}, "replaces none of the problem's operators: calls the library for all 3"),
    ({"matmul": 1, "softmax": 1}, "replaces one trivial operator of 3: relu"),
    ({"matmul": 1, "relu": 1}, ""),
    ({"softmax": 1}, ""),
    ({}, ""),
])
def test_kernels_that_leave_nearly_all_to_the_library_are_labelled(calls, label):
    problem = Operators({"matmul": 1, "relu": 1, "softmax": 1}, ["relu"])
    assert replaced.labels(problem, Counter(calls)) == ([label] if label else [])


def test_a_problem_of_one_trivial_operator_that_is_replaced_is_not_labelled():
    assert replaced.labels(Operators({"relu": 1}, ["relu"]), Counter()) == []
    assert replaced.share(Operators({"relu": 1}, ["relu"]), Counter()) == 1.0
    assert replaced.share(Operators({}, []), Counter()) is None


@pytest.mark.gpu
def test_on_a_gpu_own_kernels_are_told_from_the_librarys(tmp_path):
    sizes = {"batch_size": "512", "in_features": "512", "out_features": "1024"}
    problem = read_problem("linear_gelu_softmax", sizes, mode="eval")
    with Evaluator(problem, device="cuda", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",),
                   profile=True) as evaluator:
        of = design(reference("linear_gelu_softmax", "eval", **sizes), evaluator.hardware)
        files = {c.plan: c for c in plainest(of)}
        shares = {}
        for plan in ("linear(library) + inner_reduction[gelu, softmax]", "linear(library) + gelu(library) + softmax(library)"):
            candidate = replace(files[plan], origin=Trust.FOREIGN)
            evaluation = evaluator.evaluate(candidate, evaluator.builder().build(candidate.source))
            assert evaluation.status is Status.OK, evaluation.reason
            shares[plan] = next(label for label in evaluation.labels if not label.startswith("noisy"))
    mixed, library = shares.values()
    assert mixed.startswith("own kernels") and mixed.endswith("% of the time")
    assert library == NO_KERNEL


DECOY = """
import ctypes
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "a_decoy"
CUDA_SOURCE = r'''
__global__ void gelu_kernel(float* x, const long count) {
    const long i = blockIdx.x * 256l + threadIdx.x;
    if (i < count) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
__global__ void decoy_kernel(const float* x, float* y, const long count) {
    const long i = blockIdx.x * 256l + threadIdx.x;
    if (i < count) y[i] = 2.0f * x[i];
}
extern "C" void launch(float* x, float* y, long count, void* stream) {
    const int blocks = static_cast<int>((count + 255) / 256);
    const cudaStream_t queue = static_cast<cudaStream_t>(stream);
    decoy_kernel<<<blocks, 256, 0, queue>>>(x, y, count);
    gelu_kernel<<<blocks, 256, 0, queue>>>(x, count);
}
'''
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]
library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                  is_python_module=False, no_implicit_headers=True))
library.launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        z = torch.empty_like(y)
        library.launch(y.data_ptr(), z.data_ptr(), y.numel(), torch.cuda.current_stream().cuda_stream)
        return torch.softmax(y, 1)
"""


@pytest.mark.gpu
@pytest.mark.parametrize("decoy_stream", ["queue", "0"])
def test_a_kernel_whose_result_nothing_reads_is_labelled(tmp_path, decoy_stream):
    problem = read_problem("linear_gelu_softmax", {"batch_size": "512", "in_features": "512", "out_features": "1024"}, mode="eval")
    with Evaluator(problem, device="cuda", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",), profile=True) as evaluator:
        candidate = Candidate(DECOY.replace("<<<blocks, 256, 0, queue>>>(x, y, count)", f"<<<blocks, 256, 0, {decoy_stream}>>>(x, y, count)"), "by hand", {}, "cuda", origin=Trust.FOREIGN)
        evaluation = evaluator.evaluate(candidate, evaluator.builder().build(candidate.source))
    assert evaluation.status is Status.OK, evaluation.reason
    assert "replaces one trivial operator of 4: gelu" in evaluation.labels
    unread = [label for label in evaluation.labels if "nothing reads" in label]
    assert len(unread) == 1 and "decoy_kernel" in unread[0]
