"""Own candidates: judged plainly, and never lost to a busy machine."""

import time
from dataclasses import replace

import pytest
from candidates import KERNEL, plain, render

from kgen.candidate import Candidate, Trust
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import TimeIsUp
from kgen.evaluator.timing.measure import LEAST_BLOCKS
from kgen.protocol import Accuracy, Limits, Status

TERM = "row[c] = expf(row[c] - largest);"
BEHIND = Status.MUTATED_INPUT, "memory behind an output or a workspace"


def writes_behind(tensor, size, after="return y"):
    """A file that makes a ``tensor`` of its own, and writes one byte behind its ``size`` bytes."""
    return plain(f"import ctypes\nown = {tensor}\nctypes.memset(own.data_ptr() + {size}, 0, 1)\n{after}")


#: Name: (source, status, words in the reason).
WRONG = {
    "raises": (plain("raise ValueError('no')"), Status.RUNTIME_ERROR, "ValueError: no"),
    "null pointer": (render(before="_kernel(None, 1, 1)"), Status.CRASHED, "SIGSEGV"),
    "no memory": (plain("torch.empty(1 << 44)"), Status.OUT_OF_MEMORY, "memory"),
    "wrong shape": (plain("return y[:, :-1]"), Status.WRONG_SHAPE, "shape"),
    "other strides": (plain("return y.t().contiguous().t()"), Status.WRONG_SHAPE, "as given: output has strides [1, 160], not [96, 1]"),
    "half precision": (plain("return y.half().float()"), Status.WRONG_VALUES, "as given"),
    "one wrong row": (plain("y[-1] *= 1.01\nreturn y"), Status.WRONG_VALUES, "as given"),
    "batch baked in": (plain("return y if x.shape[0] in (160, 64) else y * 2"), Status.WRONG_VALUES, "batch"),
    "unwritten element of a kernel": (
        render(kernel=KERNEL.replace(TERM, "if (c != 5 || r != 3) " + TERM)), Status.WRONG_VALUES, ""),
    "mutated input": (plain("x[0, 0] += 1\nreturn y"), Status.MUTATED_INPUT, "input 0"),
    "mutated parameter": (plain("b = self.linear.bias.data\nif self.kept != b._version:\n"
                                "    b[0] = torch.nextafter(b[0], torch.tensor(1.0))\n    self.kept = b._version\n"
                                "return y"), Status.MUTATED_INPUT, "linear.bias"),
    "reads beyond its input": (plain("return y + x.as_strided((1,), (1,), x.numel() + x.storage_offset())"),
                               Status.WRONG_VALUES, ""),
    "writes beyond its input": (plain("x.as_strided((1,), (1,), x.numel() + x.storage_offset()).fill_(1)\nreturn y"),
                                Status.MUTATED_INPUT, "memory beside an input"),
    "writes beyond its output": (writes_behind("x.new_empty(y.shape)", "4 * y.numel()", "return own.copy_(y)"), *BEHIND),
    "writes beyond an output like another": (
        writes_behind("torch.empty_like(y.t())", "4 * y.numel()", "return own.t().copy_(y)"), *BEHIND),
    "writes beyond a workspace that is gone": (
        writes_behind("torch.zeros(3, dtype=torch.int64)", 24, "del own\nreturn y"), *BEHIND),
    "writes beyond a workspace that it keeps": (
        writes_behind("self.kept if self.kept is not None else x.new_empty(65)", "260 + 260 * (self.kept is None)",
                      "self.kept = own\nreturn y"), *BEHIND),
    "writes beyond a part of its memory": (
        plain("own = torch.empty(1000, dtype=torch.uint8)\nlaunch(own.data_ptr(), own.data_ptr() + 512, 256)\nreturn y")
        + "\n\ndef launch(first, second, size):\n    import ctypes\n    ctypes.memset(first, 1, size + 1)\n", *BEHIND),
    "same output twice": (plain("if self.kept is None or self.kept.shape != y.shape:\n    self.kept = y.clone()\n"
                                "self.kept.copy_(y)\nreturn self.kept"), Status.ALIASED_OUTPUT, "earlier"),
    "stale fold": (plain("if self.kept is None:\n    self.kept = self.linear.weight.detach().clone()\n"
                         "return torch.softmax(F.gelu(F.linear(x, self.kept, self.linear.bias)), dim=1)"),
                   Status.WRONG_VALUES, "other weights"),
    "results remembered when timed": (
        plain("seen = self.__dict__.setdefault('seen', {})\n"
              "return seen.setdefault((x.data_ptr(), tuple(x.shape), x.shape[0] == 160 and len(seen) > 40), y).clone()"),
        Status.WRONG_VALUES, ""),
}


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory, problem):
    limits = Limits(load_seconds=20, validate_seconds=20, time_seconds=20, host_bytes=4 << 30)
    with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path_factory.mktemp("own"), limits=limits,
                   baselines=("eager",), cache="warm", trust=Trust.OWN) as running:
        yield running


@pytest.fixture(scope="module")
def judge(evaluator):
    builder = evaluator.builder()
    return lambda source: evaluator.evaluate(Candidate(source, "by hand", {}, "cpu"), builder.build(source))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_own_candidate_gets_its_status_and_reason(judge, name):
    source, status, words = WRONG[name]
    evaluation = judge(source)
    assert (evaluation.status, words in evaluation.reason) == (status, True), evaluation.reason


def test_a_right_own_candidate_is_ok_and_timed(judge):
    evaluation = judge(render())
    assert evaluation.status is Status.OK, evaluation.reason
    assert len(evaluation.timing.blocks) == 5 and len({row.case for row in evaluation.errors}) == 12


@pytest.mark.parametrize("body", [
    "own = torch.empty(4)\nown.resize_(8).fill_(0)\nreturn y",
    "own = x.new_empty(2 * y.numel())[:y.numel()].view(y.shape)\nreturn own.copy_(y)",
    "assert torch.zeros(5).sum() == 0 and torch.empty(0, 3).numel() == 0 and torch.zeros_like(y).sum() == 0\nreturn y",
    "own = torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)\nassert own.stride() == (60, 1, 15, 3)\nreturn y",
], ids=["made larger", "a part of its memory", "zeros and nothing", "channels last"])
def test_own_memory_may_be_used_in_any_way(judge, body):
    evaluation = judge(plain(body))
    assert evaluation.status is Status.OK, evaluation.reason


def test_an_own_candidate_that_is_slow_at_random_is_still_ok(judge):
    evaluation = judge(plain("import random, time\ntime.sleep(random.choice([0, 0, 0.02]))\nreturn y"))
    assert evaluation.status is Status.OK, evaluation.reason


@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["none left", "too few"])
def test_a_candidate_that_the_end_of_a_sweep_cuts_has_no_verdict(evaluator, judge, monkeypatch, seconds):
    built = plain(f"import time\ntime.sleep({seconds})\nreturn y")
    evaluator.builder().build(built)
    monkeypatch.setattr(evaluator, "limits", replace(evaluator.limits, judge_until=time.monotonic() + seconds, first_until=time.monotonic() + seconds))
    with pytest.raises(TimeIsUp):
        judge(built)


def test_a_foreign_candidate_is_refused_by_an_evaluator_for_own_ones(evaluator):
    source = plain("return y")
    candidate = Candidate(source, "by hand", {}, "cpu", origin=Trust.FOREIGN)
    with pytest.raises(ValueError, match="foreign"):
        evaluator.evaluate(candidate, evaluator.builder().build(source))


def test_idle_threads_sleep_where_nothing_is_timed(problem, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    made = [Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path, times=times) for times in (True, False)]
    assert [one.server._environment.get("OMP_WAIT_POLICY") for one in made] == [None, "passive"]


def test_finals_of_own_candidates_go_on_in_turns(evaluator):
    source = render()
    candidate = Candidate(source, "by hand", {}, "cpu")
    timings = evaluator.finals([(candidate, evaluator.builder().build(source))], seconds=0.1)
    assert [t.subject for t in timings] == [candidate.id, "eager"]
    assert all(len(t.blocks) >= LEAST_BLOCKS for t in timings)
