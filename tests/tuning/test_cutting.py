"""Plans whose kernels somebody else has chosen: what they become, and what is said of those that are none."""

from __future__ import annotations

import pytest
from models import design, made, module, source

from kgen.candidate import Plan
from kgen.compiler.fusion.chosen import Cut, CutError
from kgen.devices.hardware import cpu
from kgen.tuning.cutting import cut
from kgen.tuning.design import Design
from kgen.tuning.search import Point

TEXT = source("return torch.softmax(self.linear(x).relu() * 2 + x[:, :1], 1)", "torch.randn(6, 20)", "self.linear = nn.Linear(20, 12)")


@pytest.fixture(scope="module")
def of() -> Design:
    return design(made(TEXT), cpu())


def test_kernels_are_those_of_the_cut_and_others_are_library_calls(of: Design) -> None:
    known = len(of.options)
    assert of.options[cut(of, Cut((("relu", "mul"), ("add", "softmax"))))].name == "linear(library) + pointwise[relu, mul] + inner_reduction[add, softmax]"
    assert len(of.options) == known  # fusion has that plan, and leaves no operator that it can take to the library
    number = cut(of, Cut((("add", "softmax"),)))
    assert of.options[number].name == "linear(library) + relu(library) + mul(library) + inner_reduction[add, softmax]"
    assert number == known == cut(of, Cut((("softmax", "add"),)))


def test_chosen_kernels_are_rendered_and_right(of: Design) -> None:
    import torch

    number = cut(of, Cut((("relu",), ("mul", "add", "softmax"))))
    loaded = made(TEXT)
    torch.manual_seed(0)
    model, new = loaded.model().eval(), module(of.candidate(Point(number, of.options[number].plainest or ()))).ModelNew().eval()
    new.load_state_dict(model.state_dict())
    x = torch.randn(6, 20)
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (Cut((("relu", "softmax"),)), "kernel 0: no schedule computes relu, softmax"),
        (Cut((("relu",), ("relu",))), "relu is in two kernels"),
        (Cut((("gelu",),)), "'gelu' is no operator of this graph: there are linear, "),
        (Cut((("softmax",),), ("pointwise",)), "the schedule pointwise does not compute softmax; inner_reduction does"),
        (Cut((("softmax",),), ("rows",)), "there is no schedule 'rows': there are "),
        (Cut((("softmax",),), (), ("fold",)), "no graph has the rewrites fold: there are: "),
    ],
)
def test_cut_that_makes_no_plan_says_why(of: Design, by: Cut, words: str) -> None:
    with pytest.raises(CutError) as refused:
        cut(of, by)
    assert words in str(refused.value) and "\n" not in str(refused.value)


BRANCHES = source(
    "a, b = self.linear(x).relu(), self.linear(x * 3).relu()\nreturn torch.softmax(a.view(-1, 4).tanh(), 1), torch.softmax(b.exp() + 1, 1)",
    "torch.randn(6, 20)", "self.linear = nn.Linear(20, 12)",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "by"),
    [
        (TEXT, Cut((("add", "softmax"),))),
        (TEXT, Cut((("relu", "mul"), ("softmax",)), ("pointwise", "inner_reduction"))),
        (BRANCHES, Cut((("relu_1", "exp"), ("softmax",)))),
        (BRANCHES, Cut((("relu", "view", "tanh"), ("mul",)))),
    ],
)
def test_plan_of_a_cut_is_found_again_from_what_is_stored(text: str, by: Cut) -> None:
    first, later = design(made(text), cpu()), design(made(text), cpu())
    number = cut(first, by)
    candidate = first.candidate(Point(number, first.options[number].plainest or ()))
    stored = Plan.from_json(candidate.plan_data.to_json())
    assert later.renders(stored, candidate.params, candidate.source)
    assert not later.renders(stored, candidate.params, candidate.source + "\n")


def test_kernels_that_wait_for_each_other_are_no_plan() -> None:
    text = source("y = x.exp()\nz = y.sum(1, keepdim=True)\nreturn (y * z).tanh() + z.sin()", "torch.randn(6, 20)")
    of = design(made(text), cpu())
    with pytest.raises(CutError, match="kernels 0, 1 wait for values of each other"):
        cut(of, Cut((("exp", "mul", "tanh", "add"), ("sum_1", "sin"))))
