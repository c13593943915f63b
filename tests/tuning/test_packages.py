"""Winners in the layouts of other tools: installed from the folder, and called, as those tools do."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from running import PROBLEM, Ended, Home
from samples import environment, evaluation
from torch import nn

from kgen.candidate import Candidate
from kgen.errors import DiskError, InputError
from kgen.problems.problem import load, read_problem
from kgen.tuning import packages
from kgen.tuning.export import Verified

SCALE = """
import torch
import torch.nn as nn

BIAS = 1.0


class Model(nn.Module):
    def __init__(self, size, factor):
        super().__init__()
        self.factor = factor
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x, bias=BIAS):
        return x * self.weight * self.factor + bias


def get_inputs():
    return [torch.randn(2, 4)]


def get_init_inputs():
    return [4, 2.0]
"""
DEFINITION = {
    "name": "scaled_add", "axes": {"n": {"type": "var"}}, "reference": "def run(x, y):\n    return x * 2 + y\n",
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}, "y": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"z": {"shape": ["n"], "dtype": "float32"}},
}  # fmt: skip


def verified(path: Path, source: str) -> Verified:
    """A winner that was verified, whose text is ``source``."""
    of = Candidate(source, "pointwise[mul]", {}, "cpu", 1)
    figures = {"kgen": "1", "plan": of.plan, "mode": "train", "accuracy": "fp32", "median_ms": 1.0, "speedup": 2.0,
               "speedup_low": 1.5, "speedup_high": 2.5}  # fmt: skip
    return Verified(read_problem(str(path), mode="train"), of, environment(), evaluation(of), figures)


def installed(folder: Path) -> Any:
    """The package of a folder as ``kernels`` imports it: one build variant, named by the id of its metadata."""
    [variant] = (folder / "build").iterdir()
    metadata = json.loads((variant / "metadata.json").read_text())
    assert {"name", "id", "version", "license", "python-depends", "backend"} <= metadata.keys()
    assert variant.name == f"torch-{metadata['backend']['type']}"
    spec = importlib.util.spec_from_file_location(metadata["id"], variant / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[metadata["id"]] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernelized(model: nn.Module, layer: type[nn.Module]) -> nn.Module:
    """The model with the forward of a layer that holds no state, as ``kernels`` replaces it."""
    assert layer.__init__ is nn.Module.__init__
    assert {*dir(layer)} - {*dir(nn.Module)} <= {"can_torch_compile", "has_backward"}
    kinds = [[p.kind for p in inspect.signature(c.forward).parameters.values()] for c in (layer, type(model))]
    assert kinds[0] == kinds[1]
    model.forward = layer.forward.__get__(model)  # type: ignore[method-assign]
    return model


@pytest.fixture
def scale(tmp_path: Path) -> Any:
    """A package of a winner whose text is the problem's own, installed from its folder, and the problem."""
    (tmp_path / "scale.py").write_text(SCALE)
    found = verified(tmp_path / "scale.py", SCALE.replace("class Model", "class ModelNew"))
    packages.write({tmp_path / "hub" / path: text for path, text in packages.hub(found).items()})
    return installed(tmp_path / "hub"), load(found.problem)


def test_swept_winner_is_installed_from_the_folder_of_a_hub_package(swept: tuple[Home, Ended], tmp_path: Path) -> None:
    ended = swept[0].typed("best", PROBLEM, "--to", "hub", str(tmp_path / "hub"), "--any")
    assert ended.code == 0 and "verified again and written" in ended.out
    problem = load(read_problem(PROBLEM))
    model, [x] = problem.model(), problem.inputs()
    with torch.no_grad():
        expected = model(x)
        fast = kernelized(model, installed(tmp_path / "hub").layers.LongTail)
        torch.testing.assert_close(fast(x), expected)
        fast.scale.add_(1.0)
        torch.testing.assert_close(fast(x), type(model).forward(model, x))  # new weights are seen


def test_layer_keeps_the_signature_with_defaults_of_the_file(scale: Any) -> None:
    package, problem = scale
    model = kernelized(problem.model(), package.layers.Scale)
    assert torch.equal(model(torch.ones(2, 4)), torch.full((2, 4), 3.0))
    assert torch.equal(model(torch.ones(2, 4), bias=5.0), torch.full((2, 4), 7.0))


@pytest.mark.parametrize(("made", "reason"), [((4, 3.0), "factor is 3.0"), ((8, 2.0), r"weight has the shape \(8,\)")])
def test_layer_refuses_a_module_that_it_was_not_made_for(scale: Any, made: tuple[int, float], reason: str) -> None:
    package, problem = scale
    with pytest.raises(ValueError, match=reason):
        kernelized(problem.model_class(*made), package.layers.Scale)(torch.ones(2, made[0]))


def test_hub_folder_that_holds_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(SCALE)
    with pytest.raises(DiskError, match="not empty"):
        packages.check_hub(read_problem(str(tmp_path / "scale.py")), tmp_path)


def test_arguments_that_are_no_literals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(SCALE.replace("[4, 2.0]", "[4, torch.ones(4)]"))
    with pytest.raises(InputError, match="cannot repeat"):
        packages.check_hub(read_problem(str(tmp_path / "scale.py")), tmp_path / "hub")


def test_solution_has_the_formats_fields_and_its_entry_point_runs(tmp_path: Path) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(DEFINITION))
    (tmp_path / "workload.jsonl").write_text(json.dumps({"axes": {"n": 8}, "inputs": {}}))
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return x * 2 + y\n"
    found = json.loads(packages.solution(verified(file, text)))
    assert found["definition"] == "scaled_add" and found["author"] and found["name"]
    assert found["spec"]["target_hardware"] and found["spec"]["destination_passing_style"] is False
    path, function = found["spec"]["entry_point"].split("::")
    [source] = [one["content"] for one in found["sources"] if one["path"] == path]
    names: dict[str, Any] = {}
    exec(source, names)
    assert source.startswith(text)
    assert [*inspect.signature(names[function]).parameters] == [*DEFINITION["inputs"]]
    assert torch.equal(names[function](torch.ones(8), torch.ones(8)), torch.full((8,), 3.0))


#: A winner whose kernel writes into memory that the method allocates, as kgen renders it.
LAUNCHING = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return ModelNew._run(self, x, y)

    def _run(self, x, y):
        size = x.shape[0]
        doubled = x.new_empty(size)
        z = x.new_empty(size)  # add
        torch.mul(x, 2, out=doubled)
        torch.add(doubled, y, out=z)
        ModelNew.written = z
        return z
"""


@pytest.mark.parametrize("text", [LAUNCHING, LAUNCHING.replace("return z", "return z * 1"), LAUNCHING.replace("_run", "_other")])
def test_solution_writes_into_the_tensors_that_it_is_given(text: str, tmp_path: Path) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(DEFINITION))
    (tmp_path / "workload.jsonl").write_text(json.dumps({"axes": {"n": 8}, "inputs": {}}))
    found = json.loads(packages.solution(verified(file, text), destinations=True))
    assert found["spec"]["destination_passing_style"] is True
    names: dict[str, Any] = {}
    exec(found["sources"][0]["content"], names)
    assert [*inspect.signature(names["run"]).parameters] == ["x", "y", "z"]
    x, y, wide, half = torch.arange(8.0), torch.ones(8), torch.zeros(16), torch.zeros(8, dtype=torch.float16)
    for out in (torch.zeros(8), wide[::2], half):
        assert names["run"](x, y, out) is None
        assert torch.equal(out.float(), x * 2 + 1)
        assert (names["ModelNew"].written is out) == (text == LAUNCHING and out.dtype == x.dtype and out.is_contiguous())
    names["run"](x, y, x)  # an input's memory: earlier elements must not be seen by later ones
    assert torch.equal(x, torch.arange(8.0) * 2 + 1) and names["ModelNew"].written is not x
    assert not wide[1::2].any()


def test_solution_of_a_problem_without_definition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(SCALE)
    with pytest.raises(InputError, match="answers a definition"):
        packages.check_solution(read_problem(str(tmp_path / "scale.py")), tmp_path / "solution.json")


@pytest.mark.parametrize(("problem", "name"), [("Linear_GELU", "linear-gelu"), ("36_RMSNorm_", "kernel-36-rmsnorm"), ("x", "kernel-x")])
def test_names_of_packages_are_those_that_kernels_takes(problem: str, name: str) -> None:
    assert packages.kernel_name(problem) == name
