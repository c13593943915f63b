"""``kgen plan``, as it is typed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from models import source

from kgen.cli import main, on_paper

pytestmark = pytest.mark.usefixtures("one_server_of_plans")

FORWARD = "return torch.logcumsumexp(torch.softmax(self.linear(x).relu(), 1), 1)"


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    text = source(FORWARD, "torch.randn(rows, 512)", "self.linear = nn.Linear(512, 512)")
    (tmp_path / "made_up.py").write_text(f"rows = 1024\n{text}")
    return "made_up.py"


def kgen(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def test_json_has_what_the_best_plan_leaves_to_the_library(problem: str) -> None:
    answer = kgen(problem, "--arch", "sm_90", "--json")
    found = json.loads(answer.stdout)
    assert (answer.exit_code, found["arch"], found["library_calls"]) == (0, "sm_90", ["aten.logcumsumexp.default"])
    (mode,) = found["modes"]
    assert [operator["operator"] for operator in mode["operators"]] == [
        "aten.linear.default", "aten.relu.default", "aten.softmax.int", "aten.logcumsumexp.default",
    ]  # fmt: skip
    assert found["flops"] == 2 * 1024 * 512 * 512
    assert found["bytes"] == 4 * (2 * 1024 * 512 + 512 * 512 + 512)
    steps = mode["plans"][0]["steps"]
    assert [step["why"] for step in steps if step["kind"] == "library"] == ["no kernel of ours computes aten.logcumsumexp"]
    assert found["best_ms"] == pytest.approx(sum(step["ms"] for step in steps), abs=1e-6)
    assert found["limit_ms"] < found["best_ms"] <= found["library_ms"]


def test_page_has_operators_plans_and_reasons(problem: str) -> None:
    answer = kgen(problem, "--arch", "sm_90")
    assert answer.exit_code == 0
    for text in ("aten.softmax.int", "no kernel of ours computes aten.logcumsumexp", "plan 1:", "MB", "MFLOP", "verdict"):
        assert text in answer.stdout


def test_architecture_is_sm_90_where_there_is_no_gpu(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.tuning.plan.gpu_arch", lambda: None)
    assert json.loads(kgen(problem, "--json").stdout)["arch"] == "sm_90"


def test_sizes_can_be_replaced(problem: str) -> None:
    assert json.loads(kgen(problem, "-D", "rows=64", "--json").stdout)["flops"] == 2 * 64 * 512 * 512


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.py",), "no problem 'nothing.py'"),
        (("made_up.py", "--arch", "sm_12"), "no limits are known for 'sm_12'"),
        (("made_up.py", "-D", "columns=3"), "no such module-level constant"),
        ((), "Missing argument 'PROBLEM'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(problem: str, arguments: tuple[str, ...], said: str) -> None:
    answer = kgen(*arguments)
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert said in answer.stderr


def test_long_chain_of_views_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "views.py"
    file.write_text(source("for n in range(600):\n    x = x.view(20, 6) if n % 2 else x.view(6, 20)\nreturn x * 2", "torch.randn(6, 20)"))
    answer = kgen(str(file), "--arch", "sm_90", "--json")
    assert (answer.exit_code, len(json.loads(answer.stdout)["modes"][0]["operators"])) == (0, 601)


def test_home_that_cannot_be_written_keeps_no_plan_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("")
    assert on_paper._home().parent == Path(tempfile.gettempdir())
