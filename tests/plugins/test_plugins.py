"""Plug-ins: entries from outside of the package take part in a real sweep, and what is wrong with one is one line."""

from __future__ import annotations

import re
from pathlib import Path

from models import source
from running import ROOT, Home, wait

HERE = Path(__file__).parent


def test_an_operator_a_rewrite_a_schedule_a_dtype_and_a_device_from_outside_are_swept(tmp_path: Path) -> None:
    problem = tmp_path / "turned.py"
    problem.write_text(source("return -torch.deg2rad(-(-x)) * y.float()", "torch.randn(64, 300), torch.randint(0, 9, (64, 300)).to(torch.uint16)", arguments="x, y"))
    path = f"{HERE}:{ROOT}"
    home = Home(tmp_path)
    options = ("--device", "toy", "--baselines", "eager", "--budget", "2", "-q")
    swept = wait(home.start_brief("sweep", str(problem), *options, KGEN_PLUGINS="toy_plugin:toy_device", PYTHONPATH=path))
    assert swept.code in (0, 1), swept.err
    plans = dict(home.ask("select plan, count(*) from candidate join evaluation on candidate_id = candidate.id where status = 'ok' group by plan"))
    named = [plan for plan in plans if plan.startswith("toy_loop[degrees, ") and "drop_negations" in plan]
    assert named, plans
    text = home.typed("show", named_id(home, named[0]), "--source").out
    assert "const unsigned short* __restrict__ y_in" in text  # the dtype is the kernel's own, and no copy is made
    assert home.ask("select distinct device_type from candidate union select device_type from environment") == [("toy",)]
    # A kgen without the plug-in shows what was measured.
    history = home.typed("history")
    assert (history.code, "toy_loop" in home.typed("show", named_id(home, named[0])).out) == (0, True), history.err


def named_id(home: Home, plan: str) -> str:
    ((found, *_), *_) = home.ask(f"select id from candidate where plan = '{plan}'")
    return found


def test_the_page_shows_the_code_of_these_plugins() -> None:
    page = (ROOT / "docs" / "adding.md").read_text()
    shown = re.findall(r"```(?:python|jinja)\n(.*?)```", page, re.DOTALL)
    texts = [(HERE / name).read_text() for name in ("toy_plugin.py", "toy_loop.cpp.j2", "toy_device.py")]
    assert len(shown) == 6 and [code for code in shown if not any(code in text for text in texts)] == []


def test_a_plugin_that_is_missing_is_one_line(tmp_path: Path) -> None:
    problem = tmp_path / "plain.py"
    problem.write_text(source("return x * 2"))
    found = Home(tmp_path).typed("plan", str(problem), KGEN_PLUGINS="no_such_module")
    assert (found.code, found.err.count("\n")) == (2, 1), found.err
    assert "the plug-in no_such_module cannot be imported" in found.err
