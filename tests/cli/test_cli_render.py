"""``kgen render``, as it is typed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from models import source

from kgen.cli import main

pytestmark = pytest.mark.usefixtures("one_server_of_plans")


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    forward = "return F.max_pool2d(x.relu(), 3, padding=1).flatten(1).cumsum(1) + torch.softmax(self.linear(x.mean((2, 3))), 1).sum()"
    (tmp_path / "made_up.py").write_text(source(forward, "torch.randn(6, 8, 9, 9)", "self.linear = nn.Linear(8, 20)"))
    return "made_up.py"


def kgen(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", *arguments])


@pytest.mark.parametrize(("arch", "word"), [("cpu", "CPP_SOURCE"), ("sm_90", "CUDA_SOURCE")])
def test_text_is_a_candidate_for_the_architecture(problem: str, arch: str, word: str) -> None:
    answer = kgen(problem, "--arch", arch)
    assigned = {ast.unparse(node.targets[0]) for node in ast.parse(answer.stdout).body if isinstance(node, ast.Assign)}
    assert (answer.exit_code, word in assigned) == (0, True)
    assert kgen(problem, "--arch", arch).stdout == answer.stdout


def test_plan_and_parameters_are_those_asked_for(problem: str) -> None:
    listed = kgen(problem, "--arch", "cpu", "--plans").stdout.splitlines()
    number = next(line.split()[0] for line in listed if "window[" in line)
    plainest, other = (kgen(problem, "--arch", "cpu", "--plan", number, *more).stdout for more in ((), ("--params", "k0.unroll=2")))
    assert "window[" in plainest and plainest != other


def test_program_has_a_line_for_each_load_value_and_store(problem: str) -> None:
    text = kgen(problem, "--arch", "sm_90", "--program").stdout
    for part in ("rows  ", "x[", "over a window of 3 x 3", "running sum along cols", "sum over 8 of", "softmax"):
        assert part in text, part
    assert "{0}" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plan", "99"], "--plan 99: there are "),
        (["--plan", "0"], "counted from 1"),
        (["--params", "k0.nothing=3"], "has no combination with k0.nothing=3"),
        (["--params", "k99.block=3"], "--params k99.block: the plan has no such kernel"),
        (["--params", "block"], "'block' is not NAME=VALUE"),
        (["--arch", "sm_1"], "sm_1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(problem: str, arguments: list[str], said: str) -> None:
    answer = kgen(problem, *([] if "--arch" in arguments else ["--arch", "cpu"]), *arguments)
    assert answer.exit_code == 2 and said in answer.output and "Traceback" not in answer.output


def test_expressions_are_those_of_the_table_of_operators(problem: str) -> None:
    answer = kgen(problem, "--arch", "cpu", "--expr")
    assert (answer.exit_code, "relu = positive(x)" in answer.stdout.replace("  ", "")) == (0, True), answer.stdout
