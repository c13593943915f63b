"""Definitions of FlashInfer-Trace as problems: axes are constants, and the reference is the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kgen.errors import ProblemError
from kgen.problems.problem import load, read_problem

DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h64",
    "description": "Root mean square norm",
    "axes": {"batch_size": {"type": "var"}, "hidden": {"type": "const", "value": 64}},
    "inputs": {
        "x": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "ids": {"shape": ["batch_size"], "dtype": "int64"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch_size", "hidden"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(x, weight, ids, eps):\n"
    "    y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)\n    return {'y': y * weight}\n",
}
WORKLOADS = [
    {"definition": "another", "workload": {"axes": {"batch_size": 3}}},
    {"definition": "rmsnorm_h64", "workload": {"axes": {"batch_size": 7}, "inputs": {"eps": {"type": "scalar", "value": 1e-6}}}},
]


def written(folder: Path, changes: dict[str, Any] | None = None, workloads: Any = WORKLOADS) -> str:
    file = folder / "definition.json"
    file.write_text(json.dumps({**DEFINITION, **(changes or {})}))
    if workloads is not None:
        (folder / "workload.jsonl").write_text("".join(json.dumps(line) + "\n" for line in workloads))
    return str(file)


def test_a_definition_is_a_problem_of_its_first_workload(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path))
    loaded = load(problem)
    x, weight, ids, eps = loaded.inputs()
    assert (x.shape, x.dtype, weight.shape, ids.dtype, eps) == ((7, 64), torch.bfloat16, (64,), torch.int64, 1e-6)
    assert loaded.model()(x, weight, ids, eps)["y"].shape == (7, 64)
    assert problem.file_name == "definition.json"


def test_an_axis_has_another_size_on_request(tmp_path: Path) -> None:
    assert load(read_problem(written(tmp_path), {"batch_size": "33"})).inputs()[0].shape == (33, 64)


@pytest.mark.parametrize(
    ("changes", "workloads", "reason"),
    [
        ({}, None, "the axis batch_size has no size"),
        ({"reference": "x = 1"}, WORKLOADS, "no function run"),
        ({"inputs": {"x": {"shape": ["hidden"], "dtype": "float8_e4m3fn"}}}, WORKLOADS, "has the dtype float8_e4m3fn"),
        ({"axes": 3}, WORKLOADS, "is no definition"),
        ({}, [{"workload": {"axes": {"batch_size": 7}, "inputs": {"x": {"type": "safetensors"}}}}], "a file of tensors"),
    ],
)
def test_other_files_are_refused_in_one_line(changes: dict[str, Any], workloads: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=reason) as error:
        read_problem(written(tmp_path, changes, workloads))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ProblemError, match="is no JSON"):
        read_problem(str(tmp_path / "x.json"))
