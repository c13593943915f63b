"""A user's template: its space, its candidates, what is refused, and one tuned end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from running import Home

from kgen.devices.hardware import cpu
from kgen.devices.kinds import KINDS
from kgen.errors import InputError
from kgen.evaluator.candidates.build import read_extension
from kgen.problems.problem import read_problem
from kgen.tuning import own_template

PROBLEM = """
import torch
from torch import nn

rows = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 - 1.0) + torch.clamp(x, -1.0, 1.0)


def get_inputs():
    return [torch.randn(rows, 1024)]
"""
TEXT = """#include <algorithm>

extern "C" void squash(const float* x, float* y, long long n) {
    #pragma omp parallel for schedule(static)
    for (long long begin = 0; begin < n; begin += {{ block }}) {
        const long long end = std::min(begin + {{ block }}LL, n);
{% if simd %}
        #pragma omp simd
{% endif %}
        for (long long i = begin; i < end; ++i) {
            y[i] = std::max(x[i] * 2.0f - 1.0f, 0.0f) + std::min(std::max(x[i], -1.0f), 1.0f);
        }
    }
}
"""
HOST = """
import torch
from torch import nn

SPACE = {"block": (1024, 65536), "simd": (True, False)}
CONSTRAINTS = {"small blocks need vectors": lambda block, simd: simd or block > 1024}

library.squash.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong]
library.squash.restype = None


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.squash(x.data_ptr(), y.data_ptr(), x.numel())
        return y
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "squash.cpp.j2").write_text(TEXT)
    (tmp_path / "squash.py").write_text(HOST)
    return tmp_path / "squash.cpp.j2"


def test_template_is_tuned_judged_as_foreign_and_kept_apart(
    template: Path, tmp_path: Path, one_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=1.0))
    home = Home(tmp_path)
    problem = str(tmp_path / "problem.py")
    asked = ("tune", str(template), "--problem", problem, "--device", "cpu", "--baselines", "eager", "--budget", "3", "--time", "60")
    ended = home.typed(*asked, "--json")
    tried = [event for event in ended.events if event["event"] == "evaluated"]
    assert {event["plan"] for event in tried} >= {"squash.cpp.j2"} and ended.events[-1]["counts"] == {"ok": 3}, ended.err
    assert [event["combinations"] for event in ended.events if event["event"] == "started"] == [4]  # three and the control
    assert home.ask("SELECT DISTINCT origin FROM candidate") == [("file",)]
    assert home.ask("SELECT kind, state FROM sweep") == [("tune", "finished")]
    assert home.typed("best", problem).code == 2  # kgen itself has swept nothing
    best = home.typed("best", problem, "--origin", "any", "--json").json
    assert best["candidate"] == ended.events[-1]["best"] and best["params"].keys() == {"block", "simd"}
    assert [row["kind"] for row in home.typed("history", "--json").json] == ["tune"]
    assert home.typed("report", problem, "--origin", "any", "-o", str(tmp_path / "page.html")).code == 0


def test_candidate_holds_the_rendered_text_and_the_parameters(template: Path) -> None:
    found = own_template.read(template)
    [*combinations] = found.space.allowed()
    assert combinations == [{"block": 1024, "simd": True}, {"block": 65536, "simd": True}, {"block": 65536, "simd": False}]
    problem = read_problem(str(template.parent / "problem.py"))
    source = found.source(problem, cpu(), combinations[0])
    extension = read_extension(source)
    assert extension is not None and "#pragma omp simd" in extension.cpp_source and "{%" not in extension.cpp_source
    assert "PARAMS = {'block': 1024, 'simd': True}" in source


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("squash.py", "SPACE = ", "SPOCK = ", "has no SPACE"),
        ("squash.py", "class ModelNew", "class Model", "has no class ModelNew"),
        ("squash.py", "lambda block, simd", "lambda bloc, simd", "asks for bloc"),
        ("squash.py", "(1024, 65536)", "[]", "block needs a list"),
        ("squash.py", "import torch\n", "from __future__ import annotations\n", "__future__"),
        ("squash.py", "SPACE = {", "SPACE = {{", "syntax error"),
        ("squash.py", "SPACE = {", "SPACE = {1 / 0: ()}, {", "ZeroDivisionError"),
        ("squash.cpp.j2", "{{ block }}", "{{ blok }}", "'blok' is undefined"),
        ("squash.cpp.j2", "{% endif %}", "", "cannot be rendered"),
    ],
)
def test_mistakes_of_a_template_are_one_line(template: Path, name: str, old: str, new: str, line: str) -> None:
    file = template.with_name(name)
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        found = own_template.read(template)
        found.source(read_problem(str(template.parent / "problem.py")), cpu(), next(found.space.allowed()))
    assert line in str(raised.value) and str(file) in str(raised.value) and "\n" not in str(raised.value)


def test_template_of_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a template's name ends with"):
        own_template.read(tmp_path / "kernel.txt")
