"""The evaluator on a GPU: right and wrong CUDA candidates, work outside the stream, and what one costs."""

import hashlib
from statistics import median

import pytest

from kgen.candidate import Candidate, Trust
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Status

pytestmark = pytest.mark.gpu

#: Adversarial cases of the default run state the same.
EXHAUSTIVE = pytest.mark.exhaustive

SIZES = {"batch_size": "300", "in_features": "256", "out_features": "1024"}

KERNEL = r"""
#include <cuda_runtime.h>

// One block for each row: exact GELU, then softmax with the maximum subtracted; x is overwritten.
__device__ float reduce(float value, bool largest) {
    __shared__ float shared[256];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) {
            float a = shared[threadIdx.x], b = shared[threadIdx.x + step];
            shared[threadIdx.x] = largest ? ((a > b || a != a) ? a : b) : a + b;
        }
        __syncthreads();
    }
    float result = shared[0];
    __syncthreads();
    return result;
}

__global__ void gelu_softmax_kernel(float* x, long columns) {
    float* row = x + blockIdx.x * columns;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += blockDim.x) {
        row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
        if (!(row[c] <= largest)) largest = row[c];
    }
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c] = expf(row[c] - largest);
    sum = reduce(sum, false);
    for (long c = threadIdx.x; c < columns; c += blockDim.x) row[c] /= sum;
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns);
    return (int)cudaGetLastError();
}
"""

MODULE = '''import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "{name}"
CUDA_SOURCE = r"""{kernel}"""
CUDA_FLAGS = ["-O3", "-Xptxas=-v", "{gencode}"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.side = None

    def tail(self, y):
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {{status}}")
        return y

    def forward(self, x):
        {body}
'''

PLAIN_BODY = "return self.tail(self.linear(x))"

SIDE = """self.side = self.side or torch.cuda.Stream()
main = torch.cuda.current_stream()
y = self.linear(x)
self.side.wait_stream(main)
with torch.cuda.stream(self.side):
    {work}
    self.tail(y)
{join}
return y"""


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    from kgen.evaluator.evaluator import Evaluator

    problem = read_problem("linear_gelu_softmax", SIZES)
    with Evaluator(problem, device="cuda", accuracy=Accuracy.FP32, home=tmp_path_factory.mktemp("home"),
                   baselines=("eager",)) as running:
        yield running


@pytest.fixture(scope="module")
def judge(evaluator):
    builder = evaluator.builder()

    def run(kernel=KERNEL, body=PLAIN_BODY):
        number = evaluator.hardware.arch.removeprefix("sm_")
        name = "test_" + hashlib.sha256(f"{kernel}{body}".encode()).hexdigest()[:16]
        source = MODULE.format(name=name, kernel=kernel, body=body.replace("\n", "\n        "),
                               gencode=f"-gencode=arch=compute_{number},code=sm_{number}")
        return evaluator.evaluate(Candidate(source, "by hand", {}, "cuda", origin=Trust.FOREIGN), builder.build(source))

    return run


def test_an_honest_kernel_is_ok_and_its_resources_are_known(judge):
    evaluation = judge()
    assert evaluation.status is Status.OK, evaluation.reason
    assert evaluation.build.kernels[0].registers > 0
    assert evaluation.timing.blocks


@EXHAUSTIVE
def test_a_side_stream_that_is_joined_is_ok(judge):
    evaluation = judge(body=SIDE.format(work="", join="main.wait_stream(self.side)"))
    assert evaluation.status is Status.OK, evaluation.reason


@EXHAUSTIVE
def test_a_side_stream_that_is_not_joined_is_caught(judge):
    work = "for _ in range(50): torch.mm(self.linear.weight, self.linear.weight.t())"
    assert judge(body=SIDE.format(work=work, join="")).status in (Status.SUSPICIOUS, Status.WRONG_VALUES)


def test_short_work_on_a_side_stream_that_is_not_joined_is_caught(judge):
    evaluation = judge(body=SIDE.format(work="torch.cuda._sleep(1_000_000)", join=""))  # cycles: half a millisecond
    assert evaluation.status in (Status.SUSPICIOUS, Status.WRONG_VALUES), evaluation


AHEAD = """self.side = self.side or torch.cuda.Stream(priority=-1)
with torch.cuda.stream(self.side if {ahead} else torch.cuda.current_stream()):
    for _ in range(20): weight = self.linear.weight.flip(0).flip(0)
torch.cuda.current_stream().wait_stream(self.side)
return self.tail(nn.functional.linear(x, weight, self.linear.bias))"""


def test_work_ahead_of_the_clock_gains_nothing(judge):
    times = {}
    for ahead in (True, False):
        evaluation = judge(body=AHEAD.format(ahead=ahead))
        assert evaluation.status is Status.OK, evaluation.reason
        times[ahead] = median(sample for burst in evaluation.timing.blocks for sample in burst)
    assert times[True] > 0.7 * times[False]


@EXHAUSTIVE
def test_an_unwritten_element_is_found(judge):
    body = "y = self.linear(x)\nz = torch.empty_like(y)\nz[:, 1:] = self.tail(y)[:, 1:]\nreturn z"
    assert judge(body=body).status is Status.WRONG_VALUES


def test_an_element_written_beyond_an_output_is_found(judge):
    beyond = KERNEL.replace("return (int)", "cudaMemsetAsync(x + rows * columns, 0, 4, (cudaStream_t)stream);\n    return (int)")
    body = "y = self.linear(x)\nreturn self.tail(torch.empty_like(y).copy_(y))"
    assert judge(body=body).status is Status.OK
    evaluation = judge(kernel=beyond, body=body)
    assert evaluation.status is Status.MUTATED_INPUT and "memory behind an output" in evaluation.reason


@EXHAUSTIVE
def test_tf32_is_found(judge):
    body = ("torch.backends.cuda.matmul.allow_tf32 = True\ny = self.linear(x)\n"
            "torch.backends.cuda.matmul.allow_tf32 = False\nreturn self.tail(y)")
    assert judge(body=body).status is Status.WRONG_VALUES


@EXHAUSTIVE
def test_an_illegal_access_ends_its_process_only(judge):
    broken = KERNEL.replace("float* row = x + blockIdx.x * columns;", "float* row = x + (1L << 45) + blockIdx.x;")
    assert judge(kernel=broken).status in (Status.RUNTIME_ERROR, Status.CRASHED)
    assert judge().status is Status.OK


@EXHAUSTIVE
def test_a_kernel_that_does_not_end_is_killed(judge, evaluator):
    from dataclasses import replace

    before, evaluator.limits = evaluator.limits, replace(evaluator.limits, validate_seconds=5.0)
    try:
        loop = "volatile float* flag = x; while (flag[0] != 1e30f) {}\n    float* row ="
        hangs = KERNEL.replace("float* row =", loop)
        assert judge(kernel=hangs).status is Status.TIMEOUT
    finally:
        evaluator.limits = before
    assert judge().status is Status.OK
