"""Runs of proposers end to end: a scripted model's proposals are judged, kept, found again after a fault, and exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from model_server import KEY, Answer, serving
from running import Home

from kgen.agent import proposer as proposers
from kgen.devices.hardware import cpu
from kgen.errors import InputError
from kgen.problems.problem import Problem
from kgen.tuning.search import KernelSpace, Option

PROBLEM = """
import torch
from torch import nn

rows = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 - 1.0) + torch.clamp(x, -1.0, 1.0)


def get_inputs():
    return [torch.randn(rows, 256)]
"""
FILE = """import os

import torch
from torch import nn


class ModelNew(nn.Module):
    kept = None

    def forward(self, x):
        {body}
"""
RIGHT = "return torch.relu(x * 2.0 - 1.0) + torch.clamp(x, -1.0, 1.0)"
CHEATING = "self.kept = self.kept if self.kept is not None else torch.relu(x * 2.0 - 1.0) + torch.clamp(x, -1.0, 1.0); return self.kept"


def reply(body: str) -> Answer:
    return Answer(f"A proposal:\n\n```python\n{FILE.format(body=body)}```\n")


def test_scripted_model_gets_a_right_verdict_for_each_proposal_and_the_best_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_server: None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    home = Home(tmp_path)
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = str(tmp_path / "problem.py")
    script = [
        reply("return x * 2.0"), reply("os.abort()"), Answer("no more", 401), reply(CHEATING), reply(RIGHT), Answer("I give up."),
        Answer('```json\n{"plan": 1}\n```'),
    ]  # fmt: skip
    with serving(*script) as server:
        command = ("agent", problem, "--model", "m", "--url", server.url, "--rounds", "6", "--device", "cpu", "--baselines", "eager",
                   "--time", "1", "--json")  # fmt: skip
        broken = home.typed(*command)
        assert broken.code == 2 and "refuses the key" in broken.err
        ended = home.typed(*command)
        assert len(server.asked) == 7  # the first two answers were not asked for again
    events = [*broken.events, *ended.events]
    verdicts = [(e["language"], e["status"]) for e in events if e["event"] == "verdict"]
    assert [status for _, status in verdicts[:2]] == ["wrong_values", "crashed"]
    assert verdicts[2][1] not in ("ok", "refused") and verdicts[3:] == [("free", "ok"), ("free", "refused"), ("kgen", "ok")]
    finished = events[-1]
    assert finished["event"] == "finished" and finished["counts"]["ok"] == 2 and finished["best"]

    rows = home.ask("SELECT number, model, prompt, reply, prompt_tokens, reply_tokens, proposals FROM proposal ORDER BY number")
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5, 6] and all(row[1] == "m" and row[4:6] == (11, 7) for row in rows)
    assert [p["status"] for row in rows for p in json.loads(row[6])] == [status for _, status in verdicts]
    assert "crashed" in rows[3][2] and "rows = 64" in rows[3][2] and FILE.format(body=RIGHT).strip() in rows[5][2]
    assert dict(home.ask("SELECT origin, count(*) FROM candidate GROUP BY origin")) == {"file": 4, "sweep": 1}
    assert home.ask("SELECT kind, state FROM sweep") == [("agent", "finished")]

    exported = home.typed("best", problem, "--origin", "any", "--any", "-o", str(tmp_path / "fast.py"))
    assert exported.code == 0 and "class ModelNew" in (tmp_path / "fast.py").read_text(), exported.err
    assert home.typed("best", problem).code == 2  # kgen itself has swept nothing
    free = next(e["candidate"] for e in events if e["event"] == "verdict" and (e["language"], e["status"]) == ("free", "ok"))
    assert "proposed by m" in " ".join(home.typed("show", free).out.split())
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert kept == [] and KEY not in broken.out + broken.err + ended.out + ended.err


def test_folder_of_files_is_a_proposer(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("b")
    (tmp_path / "a.py").write_text("a")
    made = proposers.make("folder", proposers.Settings(folder=str(tmp_path)))
    found = []
    while one := made.propose(None).proposals:  # type: ignore[arg-type]
        found.append(one[0].text)
        made.tell([])
    assert found == ["a", "b"]


def context(*sizes: int) -> proposers.Context:
    """A context with a plan of one kernel for each size, which has so many combinations of a parameter."""
    plans = []
    for number, size in enumerate(sizes, 1):
        space = KernelSpace(f"kernel {number}", [{"block": n} for n in range(size)])
        kernel = proposers.KernelChoices(space.name, {"k0.block": tuple(range(size))})
        plans.append(proposers.PlanChoices(number, f"plan {number}", 1.0, (kernel,), Option(f"plan {number}", (space,)), ("k0.",)))
    return proposers.Context(Problem("made_up", "made_up.py", PROBLEM), cpu(), tuple(plans), {})


@pytest.mark.parametrize("name", ["enumeration", "search"])
def test_continued_search_proposes_what_an_uninterrupted_one_does(name: str) -> None:
    settings, given = proposers.Settings(strategy="exhaustive"), context(3, 2)
    whole: list[proposers.Proposal] = []
    verdicts: list[proposers.Verdict] = []
    made = proposers.make(name, settings)
    while found := made.propose(given).proposals:
        continued = proposers.make(name, settings)
        for verdict in verdicts:
            continued.tell([verdict])
        assert continued.propose(given).proposals == found
        whole += found
        verdicts.append(proposers.Verdict(found[0], "ok", ms=10.0 - len(whole)))
        made.tell(verdicts[-1:])
    assert len({(p.plan, p.params["k0.block"]) for p in whole}) == len(whole) >= 3
    assert {p.plan for p in whole} == {"plan 1", "plan 2"} and all(p.language == proposers.KGEN for p in whole)


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("folder", proposers.Settings(), "needs --folder"),
        ("folder", proposers.Settings(folder="no/such"), "no such folder"),
        ("model", proposers.Settings(), "needs --model"),
        ("search", proposers.Settings(strategy="tasks"), "no strategy 'tasks'"),
        ("nobody", proposers.Settings(), "no proposer 'nobody': there are enumeration, folder, model, search"),
    ],
)
def test_proposer_that_lacks_something_is_refused(name: str, settings: proposers.Settings, line: str) -> None:
    with pytest.raises(InputError, match=line):
        proposers.make(name, settings)
