"""Definitions of FlashInfer-Trace and SOL-ExecBench as problems: named axes, inputs and outputs, and a reference in
Python.

    definition.json, workload.jsonl beside it ── read ──> class Model around the reference's run(), axes as constants

The axes have the sizes of the first workload, and ``-D AXIS=N`` gives others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

from kgen.errors import ProblemError
from kgen.problems import syntax

SUFFIX = ".json"  #: of a definition
_DTYPES = frozenset("float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split())

_TEXT = '''"""{name}: {description}"""

import torch
import torch.nn as nn

{axes}


{reference}


class Model(nn.Module):
    def forward(self, {inputs}):
        return run({inputs})


def get_inputs():
    return [
{arguments}
    ]
'''


def read(path: Path) -> str:
    """The text of a definition as a problem. Nothing is executed. Raises :class:`ProblemError`, one line."""
    definition = _json(path, path.read_text(encoding="utf-8") if path.is_file() else "")
    try:
        return _text(path, definition, _workload(path, str(definition["name"])))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProblemError(
            f"{path}: is no definition with name, axes, inputs and reference ({reason[:160]})"
        ) from error


def name_of(path: Path) -> str:
    """The name that a definition gives itself. Raises :class:`ProblemError` where the file is gone or names none."""
    try:
        return str(_json(path, path.read_text(encoding="utf-8"))["name"])
    except (OSError, UnicodeDecodeError, KeyError) as error:
        raise ProblemError(
            f"{path}: is no definition with a name, or cannot be read: a solution needs its name"
        ) from error


def outputs_of(path: Path) -> list[str]:
    """The names of a definition's outputs, in order. Raises :class:`ProblemError` where it names none."""
    try:
        names = [str(name) for name in _json(path, path.read_text(encoding="utf-8"))["outputs"]]
    except (OSError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ProblemError(
            f"{path}: names no outputs, or cannot be read: a solution that writes into them needs their names"
        ) from error
    if not names or not all(name.isidentifier() for name in names):
        raise ProblemError(f"{path}: its outputs have no names that Python takes: {names}")
    return names


def _text(path: Path, definition: Mapping[str, Any], workload: Mapping[str, Any]) -> str:
    sizes = {name: _size(path, name, axis, workload) for name, axis in definition["axes"].items()}
    reference = str(definition["reference"]).strip()
    tree = syntax.parse(reference)
    if not any(getattr(node, "name", "") == "run" for node in tree.body):
        raise ProblemError(f"{path}: its reference defines no function run()")
    given = workload.get("inputs", {})
    arguments = [
        f"        {_argument(path, name, one, given.get(name, {}))}," for name, one in definition["inputs"].items()
    ]
    description = " ".join(str(definition.get("description") or "a definition").split()).replace('"""', "'''")
    return _TEXT.format(
        name=definition["name"],
        description=description,
        axes="\n".join(f"{name} = {size}" for name, size in sizes.items()),
        reference=reference,
        inputs=", ".join(definition["inputs"]),
        arguments="\n".join(arguments),
    )


def _size(path: Path, name: str, axis: Mapping[str, Any], workload: Mapping[str, Any]) -> int:
    """The size of an axis: its constant, or that of the workload."""
    value = axis.get("value") if axis["type"] == "const" else workload.get("axes", {}).get(name)
    if not isinstance(value, int) or not name.isidentifier():
        raise ProblemError(f"{path}: the axis {name} has no size: put workload.jsonl beside the file")
    return value


def _argument(path: Path, name: str, one: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Python source of an input: random numbers of its shape and dtype, or the workload's number."""
    if given.get("type") == "safetensors":
        raise ProblemError(f"{path}: the input {name} is a file of tensors: kgen draws inputs, and takes numbers")
    if one.get("shape") is None:
        value = given.get("value", 1)
        if not isinstance(value, (bool, int, float)):
            raise ProblemError(f"{path}: the input {name} is {value!r:.60}, which is no number")
        return repr(value)
    dtype = str(one["dtype"])
    if dtype not in _DTYPES:
        raise ProblemError(f"{path}: the input {name} has the dtype {dtype}: kgen takes {', '.join(sorted(_DTYPES))}")
    shape = ", ".join(map(str, one["shape"]))
    if dtype.startswith(("float", "bfloat")):
        return f"torch.randn({shape})" + (f".to(torch.{dtype})" if dtype != "float32" else "")
    shape = f"({shape}{',' if len(one['shape']) == 1 else ''})"
    return f"torch.randint(0, 2, {shape}, dtype=torch.{dtype})" if dtype != "bool" else f"torch.rand{shape} < 0.5"


def _workload(path: Path, name: str) -> Mapping[str, Any]:
    """The first workload of the definition in the file beside it; empty where there is none."""
    for file in (path.with_name("workload.jsonl"), path.with_suffix(".jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            found = _json(file, line)
            if found.get("definition", name) == name:
                inner = found.get("workload", found)
                return inner if isinstance(inner, dict) else {}
    return {}


def _json(path: Path, text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ProblemError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ProblemError(f"{path}: is no JSON object")
    return found
