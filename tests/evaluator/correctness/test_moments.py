"""Random operators whose numbers are a candidate's own: which pass, and which do not."""

import hashlib

import pytest
import torch

from kgen.candidate import Candidate
from kgen.evaluator.correctness import moments
from kgen.evaluator.correctness.validate import OWN_NUMBERS
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Status

P = 0.2
RUNS = 16  #: of the candidate

# ---- without processes -----------------------------------------------------------------------------------------


def _masked(x, generator, p=P, shape=None):
    mask = torch.rand(shape or x.shape, generator=generator) >= p
    return x * mask / (1 - p)


def _reference(head, tail, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return tail(_masked(head, generator).to(dtype), dtype)


def _problem(name):
    """What is dropped, and what comes behind it."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 48, generator=generator)
    w = torch.randn(48, 40, generator=generator)
    heads = {"dropout": x, "softmax": x.softmax(1), "chain": x}
    tail = (lambda y, dtype: y @ w.to(dtype)) if name == "chain" else (lambda y, dtype: y)
    return heads[name].double(), tail


@pytest.fixture(scope="module", params=["dropout", "softmax", "chain"])
def made(request):
    """What is dropped, what comes behind it, and the reference's spread."""
    head, tail = _problem(request.param)
    return head, tail, _spread(head, tail)


def _spread(head, tail):
    exact = [_reference(head, tail, seed, torch.float64) for seed in range(moments.EXACT)]
    eager = [_reference(head, tail, seed, torch.float32) for seed in range(100, 100 + moments.MANY)]
    return moments.Spread.of(exact, eager)


def _verdict(made, drop, seed=1000):
    head, tail, spread = made
    generator = torch.Generator().manual_seed(seed)
    return spread.judge([tail(drop(head, generator).float(), torch.float32) for _ in range(RUNS)], Accuracy.FP32)


@pytest.mark.parametrize("seed", range(5))
def test_other_random_numbers_of_the_same_kind_pass(made, seed):
    row = _verdict(made, _masked, 2000 + seed)
    assert row["ok"], row["note"]


KEPT = torch.rand(64, 48, generator=torch.Generator().manual_seed(3)) >= P

WRONG = {
    "half the probability": lambda x, g: _masked(x, g, P / 2),
    "a tenth more": lambda x, g: _masked(x, g, P + 0.1),
    "no scale": lambda x, g: _masked(x, g) * (1 - P),
    "the same mask for every row": lambda x, g: _masked(x, g, shape=(1, 48)),
    "the same mask for every column": lambda x, g: _masked(x, g, shape=(64, 1)),
    "the same mask for every call": lambda x, g: x * KEPT / (1 - P),
    "no dropout": lambda x, g: x,
    "half of the rows": lambda x, g: torch.cat([_masked(x[:32], g), x[32:]]),
    "another row's values": lambda x, g: _masked(x.roll(1, 0), g),
    "a mean that is off": lambda x, g: _masked(x, g) * 1.1,
    "an element that is not finite": lambda x, g: _masked(x, g).index_fill(0, torch.tensor([5]), float("inf")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_dropout_fails(made, name):
    row = _verdict(made, WRONG[name])
    assert not row["ok"], row["note"]


def test_values_that_are_kept_are_held_to_the_accuracy_class():
    head, tail = _problem("softmax")
    generator = torch.Generator().manual_seed(5)
    runs = [_masked(head, generator).bfloat16().float() for _ in range(RUNS)]
    row = _spread(head, tail).judge(runs, Accuracy.FP32)
    assert not row["ok"] and "kept" in row["note"]


def test_pytorchs_own_numbers_are_recognised(made):
    head, tail, spread = made
    known = _reference(head, tail, 7, torch.float64)
    assert spread.same_numbers(_reference(head, tail, 7, torch.float32) * 1.01, known)
    assert not spread.same_numbers(_reference(head, tail, 8, torch.float32), known)


def test_one_run_of_other_numbers_passes_and_another_rows_values_fail(made):
    head, tail, spread = made
    generator = torch.Generator().manual_seed(11)
    right, wrong = (tail(_masked(x, generator).float(), torch.float32) for x in (head, head.roll(1, 0)))
    assert spread.judge([right], Accuracy.FP32)["ok"]
    assert not spread.judge([wrong], Accuracy.FP32)["ok"]


def test_what_is_not_random_has_no_spread():
    x = torch.randn(32, 16, dtype=torch.float64)
    assert moments.Spread.of([x] * 4, [x.float()] * 12) is None


def test_the_bound_grows_with_the_number_of_statistics():
    assert 5.3 < moments.bound(1) < moments.bound(1000) < 6.5


def test_a_large_tensor_is_sampled_by_whole_rows():
    x = torch.empty(moments.MOST_ELEMENTS // 64, 128).copy_(torch.arange(moments.MOST_ELEMENTS // 64)[:, None])
    found = moments.sampled(x)
    assert found.shape == (moments.MOST_ELEMENTS // 128, 128)
    assert found[-1, 0] == x[-2, 0]


# ---- real candidates -------------------------------------------------------------------------------------------

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 48)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.rand(96, 32)]
"""
FORWARDS = {
    "dropout": "self.drop(x)",
    "softmax": "self.drop(torch.softmax(self.first(x), dim=1))",
    "chain": "self.second(self.drop(self.first(x)))",
}

#: Each element's number is a hash of its index and of a seed from PyTorch's generator.
KERNEL = r"""
#include <stdint.h>

extern "C" void own_dropout(const float* x, float* y, long n, long columns, long seed, double p) {
    float scale = (float)(1.0 / SCALE);
    for (long i = 0; i < n; ++i) {
        uint64_t z = (uint64_t)seed + 0x9e3779b97f4a7c15ull * (uint64_t)(INDEX + 1);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        y[i] = (double)(z >> 11) * 0x1p-53 >= p ? x[i] * scale : 0.0f;
    }
}
"""
OWN = '''
import ctypes
from torch.utils.cpp_extension import load_inline

NAME = "{name}"
CPP_SOURCE = r"""{kernel}"""
CFLAGS = ["-O2"]

_kernel = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                  no_implicit_headers=True)).own_dropout
_kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 3 + [ctypes.c_double]
_kernel.restype = None


class OwnDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p
        self.calls = 0

    def forward(self, x):
        if not self.training:
            return x
        x = x.contiguous()
        y = torch.empty_like(x)
        self.calls += 1
        seed = {seed}
        _kernel(x.data_ptr(), y.data_ptr(), x.numel(), x.shape[1], seed, self.p)
        return y

'''
DRAWN = "int(torch.randint(1 << 40, (1,)))"


def own(text, kernel=KERNEL, scale="(1.0 - p)", index="i", seed=DRAWN):
    """The problem with a dropout of its own in it."""
    kernel = kernel.replace("SCALE", scale).replace("INDEX", index)
    name = "own_" + hashlib.sha256(kernel.encode()).hexdigest()[:16]
    head = OWN.format(name=name, kernel=kernel, seed=seed)
    return text.replace("class Model(", f"{head}\nclass ModelNew(").replace("nn.Dropout(", "OwnDropout(")


@pytest.fixture(scope="module", params=[
    "softmax", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in FORWARDS if name != "softmax")])
def random_problem(request, evaluator_of, tmp_path_factory):
    """A problem in train mode, as text, and what evaluates candidates for it."""
    text = PROBLEM.format(forward=FORWARDS[request.param])
    path = tmp_path_factory.mktemp("random") / f"{request.param}.py"
    path.write_text(text)
    with evaluator_of(read_problem(str(path), mode="train"), timed=True) as evaluator:
        yield text, lambda source, timed=False: evaluator.evaluate(
            Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source), timed=timed)


@pytest.mark.parametrize("seed", [DRAWN, "torch.initial_seed() + self.calls * 7919"], ids=["drawn", "counted"])
def test_a_dropout_kernel_of_its_own_is_right_and_labelled(random_problem, seed):
    text, judge = random_problem
    evaluation = judge(own(text, seed=seed), timed=seed == DRAWN)
    assert evaluation.status is Status.OK, evaluation.reason
    assert OWN_NUMBERS in evaluation.labels
    assert all(row.ok for row in evaluation.errors)


def test_the_same_library_call_is_not_labelled(random_problem):
    text, judge = random_problem
    evaluation = judge(text.replace("class Model(", "class ModelNew("))
    assert evaluation.status is Status.OK, evaluation.reason
    assert OWN_NUMBERS not in evaluation.labels


@pytest.mark.parametrize("change", [
    {"seed": "7"}, {"seed": "torch.initial_seed()"}, {"scale": "1.0"}, {"index": "(i % columns)"},
    {"index": "(i / columns)"}, {"kernel": KERNEL.replace(">= p", ">= 0.5 * p")},
], ids=["a seed of its own", "no new numbers in the next call", "no scale", "a mask for all rows",
        "a mask for all columns", "another probability"])
def test_a_wrong_dropout_kernel_has_wrong_values(random_problem, change):
    text, judge = random_problem
    evaluation = judge(own(text, **change))
    assert evaluation.status is Status.WRONG_VALUES
    assert OWN_NUMBERS in evaluation.reason and "output" in evaluation.reason


def test_pytorchs_numbers_with_other_values_are_judged_by_value(random_problem):
    text, judge = random_problem
    source = text.replace("class Model(", "class ModelNew(").replace(
        FORWARDS["chain"], f"{FORWARDS['chain']} * 1.001").replace("return self.drop(", "return 1.001 * self.drop(")
    evaluation = judge(source)
    assert evaluation.status is Status.WRONG_VALUES
    assert OWN_NUMBERS not in evaluation.reason


@pytest.fixture(scope="module")
def in_both_modes(evaluator_of, tmp_path_factory):
    text = PROBLEM.format(forward=FORWARDS["chain"])
    path = tmp_path_factory.mktemp("both") / "both.py"
    path.write_text(text)
    with evaluator_of(read_problem(str(path), mode="both")) as evaluator:
        yield text, lambda source: evaluator.evaluate(
            Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source), timed=False)


def test_the_label_names_the_mode_where_there_are_two(in_both_modes):
    text, judge = in_both_modes
    evaluation = judge(own(text))
    assert evaluation.status is Status.OK, evaluation.reason
    assert f"{OWN_NUMBERS} (train)" in evaluation.labels


def test_eval_mode_is_judged_by_value_beside_a_random_train_mode(in_both_modes):
    text, judge = in_both_modes
    evaluation = judge(own(text).replace("            return x\n", "            return x * 1.0001\n"))
    assert evaluation.status is Status.WRONG_VALUES
    assert "(eval)" in evaluation.reason


@pytest.mark.parametrize("body, where", [
    ("self.__dict__.setdefault('kept', self.second.weight.detach().clone())", "moments of 16 calls"),
    ("self.second.weight * (1.0 if x.shape[0] in (96, 64) else 2.0)", "batch"),
], ids=["a stale copy of the weights", "a size baked in"])
def test_what_is_not_random_in_it_is_still_found_wrong(in_both_modes, body, where):
    text, judge = in_both_modes
    source = own(text).replace(FORWARDS["chain"], f"F.linear(self.drop(self.first(x)), {body}, self.second.bias)")
    evaluation = judge(source)
    assert evaluation.status is Status.WRONG_VALUES
    assert where in evaluation.reason


def test_running_statistics_of_random_numbers_are_judged_by_moments_too(evaluator_of, tmp_path):
    text = PROBLEM.format(forward="self.norm(self.drop(self.first(x)))").replace(
        "self.second = nn.Linear(64, 48)", "self.norm = nn.BatchNorm1d(64)")
    path = tmp_path / "norm.py"
    path.write_text(text)
    with evaluator_of(read_problem(str(path), mode="train")) as evaluator:
        found = [evaluator.evaluate(Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source), timed=False)
                 for source in (own(text), own(text).replace("return self.norm(", "self.norm.momentum = 0.2\n        "
                                                             "return self.norm("))]
    assert found[0].status is Status.OK, found[0].reason
    assert any(row.output.startswith("state") and "moments" in row.note for row in found[0].errors)
    assert found[1].status in (Status.WRONG_VALUES, Status.WRONG_STATE)
    assert "state" in found[1].reason
