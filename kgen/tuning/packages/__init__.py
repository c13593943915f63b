"""Packages: a verified winner in the layouts that other tools install.

Verified ── hub ──> build/torch-cuda/ with a stateless layer     Hugging Face's kernels
         ── solution ──> one JSON object with run()              FlashInfer-Trace, SOL-ExecBench
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from pathlib import Path
from typing import Any, Mapping

from kgen import paths
from kgen.devices.kinds import kind_of
from kgen.errors import DiskError, InputError
from kgen.problems import trace_file
from kgen.problems.definitions import Definitions, names_in
from kgen.problems.problem import Problem, load, without_values
from kgen.tuning.export import Verified
from kgen.tuning.packages.destinations import run_into


def check_hub(problem: Problem, folder: Path) -> None:
    """Check before long work that a package of the problem can be written. Raises :class:`InputError`."""
    _init_inputs(problem)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DiskError(f"{folder}: exists and is not empty: name a new folder")


def check_solution(problem: Problem, file: Path, destinations: bool = False) -> None:
    """Check before long work that a solution of the problem can be written. Raises :class:`InputError`."""
    if Path(problem.path).suffix != trace_file.SUFFIX:
        raise InputError(
            f"{problem.path}: a solution answers a definition (.json): use -o FILE for the winner of another problem"
        )
    trace_file.name_of(Path(problem.path))
    if destinations:
        trace_file.outputs_of(Path(problem.path))
    paths.check_writable(file)


def write(files: Mapping[Path, str]) -> None:
    """Write files, with their folders. Raises :class:`DiskError`."""
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"{file.parent}: the folder cannot be made: {error.strerror or error}") from error
        paths.write_whole(file, text)


def hub(found: Verified) -> dict[Path, str]:
    """The files of a package for Hugging Face's ``kernels``, by their paths in its folder.

    The layer has ``forward`` alone. It runs on the tensors of the module whose forward it takes the place of.
    """
    name = kernel_name(found.problem.name)
    backend = found.candidate.device_type  # the layout names backends as torch names devices
    module = name.replace("-", "_")
    layer = "".join(part.capitalize() for part in name.split("-"))
    forward = _Forward(found.candidate.source)
    names = {"name": name, "layer": layer, "backend": backend, "problem": found.problem, "figures": found.figures}
    metadata: dict[str, Any] = {
        "name": name,
        "id": f"_{module}_{backend}_{found.candidate.id[:7]}",
        "version": 1,
        "license": "unknown",
        "python-depends": [],
        "backend": {
            "type": backend,
            **({"archs": [_capability(found.environment.arch)]} if kind_of(backend).accelerator else {}),
        },
    }
    build = Path("build") / f"torch-{backend}"
    return {
        Path("README.md"): _rendered("card.md.j2", **names, device=found.environment.device),
        build / "metadata.json": json.dumps(metadata, indent=2) + "\n",
        build / "__init__.py": _rendered("init.py.j2", **names),
        build / "layers.py": _rendered(
            "layers.py.j2", **names, forward=forward, init_inputs=_init_inputs(found.problem)
        ),
        build / "model_new.py": found.candidate.source,
        build / "figures.json": json.dumps(found.figures, indent=2) + "\n",
    }


def solution(found: Verified, destinations: bool = False) -> str:
    """A solution as JSON. Its ``run`` returns the outputs, or writes them into ``destinations``, which it takes behind
    the inputs."""
    definition = trace_file.name_of(Path(found.problem.path))
    run = _rendered("run.py.j2", mode=found.problem.mode, **_calling(found, destinations))
    device, median = found.environment.device, found.figures["median_ms"]
    imports = "import threading\n\n" if destinations else ""
    value = {
        "name": f"kgen_{definition}_{found.candidate.id[:12]}",
        "definition": definition,
        "author": "kgen",
        "description": f"{found.candidate.plan}. Swept on {device}" + (f", {median:.4g} ms" if median else ""),
        "spec": {
            "language": "python",
            "languages": ["pytorch"],  # the same in SOL-ExecBench's terms
            "target_hardware": ["LOCAL"],
            "entry_point": "main.py::run",
            "destination_passing_style": destinations,
            "dependencies": ["torch", "ninja"],
        },
        "sources": [{"path": "main.py", "content": f"{found.candidate.source.rstrip()}\n\n\n{imports}{run}"}],
    }
    return json.dumps(value, indent=2) + "\n"


def _calling(found: Verified, destinations: bool) -> dict[str, Any]:
    """The names of the template of ``run``. Kernels write a single output where the caller wants it; several are
    copied, since a dict of outputs may have them in another order."""
    source, forward = found.candidate.source, _Forward(found.candidate.source)
    if not destinations:
        return {"forward": forward, "outputs": None}
    names = trace_file.outputs_of(Path(found.problem.path))
    taken = {*re.findall(r"\w+", forward.arguments), "outputs", "found"}
    outputs = [f"{name}_out" if name in taken else name for name in names]
    into = run_into(source) if len(names) == 1 else None
    return {
        "forward": forward,
        "outputs": outputs,
        "names": tuple(names),
        "run_into": into,
        "entry": "\n_entry = " in source,
    }


def kernel_name(problem: str) -> str:
    """A name that ``kernels`` takes: small letters, digits and single dashes, a letter first."""
    name = re.sub(r"[^a-z0-9]+", "-", problem.lower()).strip("-")
    return name if re.match(r"[a-z].", name) else f"kernel-{name}".strip("-")


def _capability(arch: str) -> str:
    """``9.0`` of ``sm_90``, ``9.0a`` of ``sm_90a``."""
    digits = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", arch)
    return f"{digits[1]}.{digits[2]}{digits[3]}" if digits else arch


def _rendered(template: str, **names: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(loader=PackageLoader("kgen.tuning", "packages"), undefined=StrictUndefined, trim_blocks=True,
                        lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    return texts.get_template(template).render(**names)


class _Forward:
    """The forward of a file's ``ModelNew`` as source: its ``parameters`` without ``self``, and the ``arguments`` that
    hand them on."""

    def __init__(self, source: str) -> None:
        model = Definitions(source).class_named("ModelNew")
        forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
        a = forward.args
        given = [x.arg for x in (*a.posonlyargs, *a.args)][1:] + ([f"*{a.vararg.arg}"] if a.vararg else [])
        given += [f"{x.arg}={x.arg}" for x in a.kwonlyargs] + ([f"**{a.kwarg.arg}"] if a.kwarg else [])
        defaults = [d for d in (*a.defaults, *a.kw_defaults) if d is not None]
        #: Names of the file that defaults read.
        self.names = sorted(set().union(*map(names_in, defaults)) - set(vars(builtins)))
        self.arguments = ", ".join(given)
        self.signature = ast.unparse(a)
        self.parameters = self.signature.removeprefix("self").removeprefix(", ")


def _init_inputs(problem: Problem) -> str:
    """The arguments of ``Model`` as source. Raises :class:`InputError` where they are no literals."""
    values = without_values(load(problem).init_inputs)
    text = repr(tuple(values))
    try:
        same = ast.literal_eval(text) == tuple(values)
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise InputError(
            f"{problem.path}: get_init_inputs() gives more than numbers and texts, which a layer cannot repeat: use -o "
            "FILE"
        )
    return text
