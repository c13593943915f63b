"""State that no state dict has: buffers that are not saved, and tensors that are plain attributes of modules."""

from pathlib import Path

import pytest
import torch

from kgen.candidate import Candidate, Trust
from kgen.evaluator.correctness.reference import Reference
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import Problem, load, read_problem
from kgen.protocol import Evaluation, Status

TEXT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(nn.Linear(8, 8))
        self.register_buffer("cache", torch.zeros(8), persistent=False)
        self.register_buffer("table", torch.arange(8.0), persistent=False)
        self.seen = [torch.zeros(8)]
        self.count = torch.tensor(0)

    def forward(self, x):
        y = self.linear(x) * self.table + self.cache + self.seen[0]
        self.cache = self.cache * 0.5 + x.mean(0)
        self.seen[0].copy_(x.amax(0))
        self.count.add_(1)
        return torch.tanh(y)

def get_inputs():
    return [torch.randn(48, 8)]
"""
LABEL = "state of its own: judged by outputs"
STATE = ["cache", "seen[0]", "count"]
NEW = TEXT.replace("class Model(", "class ModelNew(")
#: Name: (text before, text after, status, what the reason says).
WRONG = {
    "ignores a cache": ("+ self.cache", "", Status.WRONG_VALUES, "output"),
    "ignores an attribute": ("+ self.seen[0]", "", Status.WRONG_VALUES, "output"),
    "leaves a cache": ("self.cache = self.cache * 0.5 + x.mean(0)", "", Status.WRONG_STATE, "cache"),
    "leaves an attribute": ("self.seen[0].copy_(x.amax(0))", "", Status.WRONG_STATE, "seen[0]"),
    "counts twice": ("self.count.add_(1)", "self.count.add_(2)", Status.WRONG_STATE, "count"),
}


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory, evaluator_of) -> Evaluator:
    path = tmp_path_factory.mktemp("state") / "problem.py"
    path.write_text(TEXT)
    with evaluator_of(read_problem(str(path)), timed=True) as running:
        yield running


def judged(evaluator: Evaluator, source: str, timed: bool = False) -> Evaluation:
    candidate = Candidate(source, "by hand", {}, "cpu", origin=Trust.FOREIGN)
    return evaluator.evaluate(candidate, evaluator.builder().build(source), timed=timed)


def test_module_with_state_of_its_own_is_right_in_every_run(evaluator: Evaluator) -> None:
    evaluation = judged(evaluator, NEW, timed=True)
    assert (evaluation.status, LABEL in evaluation.labels) == (Status.OK, False), evaluation.reason
    assert {f"state ['{name}']" for name in STATE} <= {row.output for row in evaluation.errors}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_state_in_no_state_dict_is_found(evaluator: Evaluator, name: str) -> None:
    before, after, status, words = WRONG[name]
    evaluation = judged(evaluator, NEW.replace(before, after))
    assert (evaluation.status, words in evaluation.reason) == (status, True), evaluation.reason


def test_file_without_state_that_no_output_needs_is_judged_by_outputs(tmp_path: Path, evaluator_of) -> None:
    (tmp_path / "problem.py").write_text(TEXT.replace("+ self.cache + self.seen[0]", ""))
    source = NEW.replace("+ self.cache + self.seen[0]", "").replace("self.count.add_(1)", "").replace("self.count =", "count =")
    with evaluator_of(read_problem(str(tmp_path / "problem.py"))) as running:
        evaluation = judged(running, source)
    assert (evaluation.status, LABEL in evaluation.labels) == (Status.OK, True), evaluation.reason


def test_state_is_what_forward_writes_and_will_not_make_anew() -> None:
    reference = Reference(load(Problem("p", "p.py", TEXT)), "cpu", 0)
    state = reference.single.state_dict()
    assert reference.find_unsaved([torch.randn(48, 8)], state, ["eval"]) == STATE, "neither a table nor a normed weight"


def test_state_is_as_constructed_before_each_run_and_as_drawn_where_it_is_drawn() -> None:
    reference = Reference(load(Problem("p", "p.py", TEXT)), "cpu", 0)
    state, x = dict(reference.single.state_dict()), torch.randn(48, 8)
    reference.find_unsaved([x], state, ["eval"])
    first, second = (reference.eager([x], state, "eval", 0)[0] for _ in range(2))
    drawn, after = reference.eager([x], state | {"cache": torch.ones(8)}, "eval", 0)
    assert torch.equal(first, second) and not torch.equal(first, drawn)
    assert after["cache"].tolist() == (0.5 + x.mean(0)).tolist()


def test_float64_has_the_state_in_float64() -> None:
    reference = Reference(load(Problem("p", "p.py", TEXT)), "cpu", 0)
    state, x = dict(reference.single.state_dict()), torch.randn(48, 8)
    names = reference.find_unsaved([x], state, ["eval"])
    after = reference.exact([x], state | {name: reference.unsaved[name] for name in names}, "eval", 0)[1]
    assert [after[name].dtype for name in STATE] == [torch.float64, torch.float64, torch.int64]


def test_replaced_attribute_is_state_where_forward_reads_it_first() -> None:
    text = TEXT.replace("self.count.add_(1)", "self.last = x.mean() + self.last\n        self.shown = y.detach()").replace(
        "self.count = torch.tensor(0)", "self.last = torch.tensor(0.5)\n        self.shown = torch.zeros(48, 8)")
    reference = Reference(load(Problem("p", "p.py", text)), "cpu", 0)
    x, state = torch.randn(48, 8), dict(reference.single.state_dict())
    assert set(reference.find_unsaved([x], state, ["eval"])) == {"cache", "seen[0]", "last"}, "shown is made anew"
    after = reference.eager([x], state | {"last": torch.tensor(2.0)}, "eval", 0)[1]
    assert after["last"].item() == (x.mean() + 2.0).item()
