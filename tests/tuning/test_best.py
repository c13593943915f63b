"""The winner of a real sweep: shown, and exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from running import PROBLEM, Ended, Home

#: What somebody does who has the exported file and torch, but not kgen.
STAND_ALONE = """
import importlib.util, sys, warnings
warnings.filterwarnings("ignore", "Failed to initialize NumPy")
sys.modules["kgen"] = None  # importing it raises
import torch

def load(path):
    spec = importlib.util.spec_from_file_location("loaded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

problem, fast = load(sys.argv[1]), load(sys.argv[2])
torch.manual_seed(7)
model = problem.Model(*problem.get_init_inputs())
torch.manual_seed(7)
new = fast.ModelNew(*problem.get_init_inputs())
[x] = problem.get_inputs()
with torch.no_grad():
    expected, eager, found = model.double()(x.double()), model.float()(x), new(x)
error, allowed = (found - expected).abs().max(), (eager - expected).abs().max()
assert found.dtype == torch.float32 and error <= 4 * allowed, (error, allowed)
new.load_state_dict(model.state_dict())
print("right")
"""

FIELDS = {
    "problem", "mode", "overrides", "candidate", "plan", "steps", "params", "rewrites", "kernels", "status", "accuracy",
    "median_ms", "speedup", "speedup_low", "speedup_high", "baseline", "baselines", "error_ratio", "environment", "file",
}  # fmt: skip


@pytest.fixture(scope="module")
def exported(swept: tuple[Home, Ended], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """The winner as a file."""
    file = tmp_path_factory.mktemp("exported") / "fast.py"
    return file, swept[0].typed("best", PROBLEM, "-o", str(file))


def test_best_as_json_has_every_field(swept: tuple[Home, Ended]) -> None:
    best = swept[0].typed("best", PROBLEM, "--json").json
    assert best.keys() >= FIELDS and None not in best.values()
    assert best["candidate"] == swept[1].events[-1]["best"]
    assert (best["status"], best["accuracy"], best["baseline"]) == ("ok", "fp32", "eager")
    assert 1 < best["speedup_low"] <= best["speedup"] <= best["speedup_high"]


def test_best_tells_the_stored_samples(swept: tuple[Home, Ended]) -> None:
    best = swept[0].typed("best", PROBLEM, "--json").json
    rows = swept[0].ask("SELECT subject, bursts FROM timing WHERE depth = 'final' AND session = (SELECT session FROM timing "
                        f"WHERE depth = 'final' AND subject = '{best['candidate']}')")
    of = {subject: [median(block) for block in json.loads(blocks)] for subject, blocks in rows}
    eager, own = of["eager"], of[best["candidate"]]
    # Round by round: on a machine whose speed changes, this may be far from the ratio of the two medians.
    assert best["speedup"] == median(above / below for above, below in zip(eager, own, strict=True))
    assert best["baselines"]["eager"] == median(eager)
    assert best["median_ms"] == pytest.approx(median(eager) / best["speedup"])  # from the same samples


def test_best_without_a_problem_lists_it(swept: tuple[Home, Ended]) -> None:
    ended = swept[0].typed("best")
    assert ended.code == 0 and swept[1].events[-1]["best"][:12] in ended.out


def test_exported_file_is_what_was_measured_byte_for_byte(
    swept: tuple[Home, Ended], exported: tuple[Path, Ended]
) -> None:
    file, ended = exported
    assert ended.code == 0 and "verified again and written" in ended.out
    assert file.read_text() == swept[0].typed("show", swept[1].events[-1]["best"], "--source").out


def test_figures_lie_beside_the_exported_file(swept: tuple[Home, Ended], exported: tuple[Path, Ended]) -> None:
    figures = json.loads(Path(f"{exported[0]}.json").read_text())
    best = swept[0].typed("best", PROBLEM, "--json").json
    same = ("candidate", "plan", "steps", "params", "median_ms", "speedup", "speedup_low", "speedup_high", "baselines")
    assert [figures[name] for name in same] == [best[name] for name in same]
    assert figures["verified_in"]["torch"] and all(error["ok"] for error in figures["errors"])


def test_exported_file_is_right_without_kgen(exported: tuple[Path, Ended], tmp_path: Path) -> None:
    # torch calls ninja by name: an environment that is activated has it on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(tmp_path), "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", STAND_ALONE, PROBLEM, str(exported[0])],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_file_is_refused_where_it_cannot_be_written_before_anything_is_verified(swept: tuple[Home, Ended]) -> None:
    ended = swept[0].typed("best", PROBLEM, "-o", "no/such/folder/fast.py")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "no such folder" in ended.err
