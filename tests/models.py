"""Problems written as text, and the ways from there to graphs, plans, candidates and modules, for tests."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import textwrap
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kgen.candidate import Candidate, Params
from kgen.codegen.render import Way, render
from kgen.codegen.template import tasks
from kgen.compiler.capture.capture import Capture, capture
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import is_convolution
from kgen.compiler.rewrites.recurrence import CALLS
from kgen.devices.hardware import Hardware, cpu
from kgen.problems.problem import LoadedProblem, Problem, load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.search import Point

PROBLEMS = Path(__file__).parent.parent / "problems"
NAMES = (
    "linear_gelu_softmax",
    "linear_batchnorm_scale_softmax",
    "linear_scale_residual_clamp_logsumexp_mish",
    "linear_scale_batchnorm",
)
#: Sizes at which everything is fast; the columns are no multiple of most vector widths.
SMALL = {"batch_size": "6", "in_features": "12", "out_features": "20"}


def source(forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x") -> str:
    """A problem's text: the body of ``forward``, what ``get_inputs`` returns, and the rest of ``__init__``."""
    return "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
            "",
            "",
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *([textwrap.indent(textwrap.dedent(init).strip(), "        ")] if init else []),
            "",
            f"    def forward(self, {arguments}):",
            textwrap.indent(textwrap.dedent(forward).strip(), "        "),
            "",
            "",
            "def get_inputs():",
            f"    return [{inputs}]",
            "",
        ]
    )


def made(text: str, mode: str = "eval", name: str = "made_up") -> LoadedProblem:
    return load(Problem(name, f"{name}.py", text, (), mode, mode))


def reference(name: str, mode: str, **sizes: str) -> LoadedProblem:
    """One of the problems that come with kgen, small."""
    return load(read_problem(str(PROBLEMS / f"{name}.py"), SMALL | sizes, mode))


_CAPTURES: dict[Problem, Capture] = {}


def captured(loaded: LoadedProblem) -> Capture:
    """The problem's capture, made once in this process."""
    if loaded.problem not in _CAPTURES:
        _CAPTURES[loaded.problem] = capture(loaded)
    return _CAPTURES[loaded.problem]


def graph(loaded: LoadedProblem) -> OpGraph:
    """The graph of a problem in its one mode."""
    ((_, found),) = captured(loaded).graphs
    return found


def in_tf32(found: Capture) -> Capture:
    """A capture as if cuDNN multiplied every convolution and every recurrent layer in TF32."""

    def marked(node: Node) -> Node:
        return replace(node, tf32=True, products=1) if is_convolution(node) or node.op in CALLS else node

    graphs = ((mode, replace(graph, nodes=tuple(map(marked, graph.nodes)))) for mode, graph in found.graphs)
    return replace(found, graphs=tuple(graphs))


def design(
    loaded: LoadedProblem, hardware: Hardware | None = None, accuracy: Accuracy = Accuracy.FP32
) -> Design:
    """All candidates of a problem, whose convolutions PyTorch multiplies in TF32 where its class lets it."""
    return Design(loaded.problem, in_tf32(captured(loaded)), hardware or cpu(), accuracy)


def plainest(of: Design, most: int | None = None) -> list[Candidate]:
    """One candidate of each plan, or of the first plans, each kernel with its plainest parameters."""
    return [of.candidate(Point(n, (0,) * len(option.kernels))) for n, option in enumerate(of.options[:most])]


def candidate(
    loaded: LoadedProblem, captured: Capture, plans: Sequence[FusionPlan], params: Sequence[Params] | None = None
) -> Candidate:
    """The candidate of one plan for each captured graph."""
    ways = [
        way(mode, plan, chosen, f"{mode}_" if len(plans) > 1 else "")
        for (mode, _), plan, chosen in zip(captured.graphs, plans, params or [{}] * len(plans), strict=True)
    ]
    return render(loaded.problem, ways, cpu(), both_modes=captured.same)


def way(mode: str, plan: FusionPlan, params: Params, prefix: str = "") -> Way:
    """A plan with its parameters (``k0.block``) on a CPU. ``prefix`` stands before the names of its kernels."""
    own = ({k.removeprefix(f"k{n}."): v for k, v in params.items() if k.startswith(f"k{n}.")} for n in range(len(plan.kernels)))
    return Way(mode, plan, tuple(zip(tasks(plan, cpu(), prefix=prefix), own)))


def unwrapped(text: str) -> str:
    """A text in C on one line, without the spaces that its line breaks leave beside brackets."""
    return re.sub(r"(?<=[(\[{]) | (?=[)\]}])", "", " ".join(text.split()))


def module(of: Candidate) -> types.ModuleType:
    """The candidate's file, executed as KernelBench does: text without a ``__file__``."""
    namespace = types.ModuleType("candidate")
    exec(compile(of.source, "<candidate>", "exec"), namespace.__dict__)
    return namespace


def quick_load_inline(folder: Path, optimised: bool = False) -> Callable[..., str]:
    """Stands for ``load_inline``: one compiler call, once for each name, with the headers compiled once in ``folder``.

    At a low level of optimisation, or with the candidate's own flags where it is ``optimised``.
    """

    def load_inline(name: str, cpp_sources: str, extra_cflags: Sequence[str], **more: Any) -> str:
        flags = (*(extra_cflags if optimised else _QUICK_FLAGS), "-fPIC")
        library = folder / f"{name}{'.optimised' * optimised}.so"
        if not library.exists():
            header = _compiled_header(folder, flags)
            with tempfile.TemporaryDirectory(dir=folder) as own:
                text, made = Path(own, "kernel.cpp"), Path(own, "kernel.so")
                text.write_text(cpp_sources)
                # Python has libm loaded: to look through the compiler's libraries takes most of the linker's time.
                subprocess.run(["g++", *flags, "-shared", "-nostdlib", "-include", header, text, "-lgomp", "-o", made], check=True)
                os.replace(made, library)
        return str(library)

    return load_inline


_QUICK_FLAGS = ("-O1", "-march=native", "-fopenmp")
_ONE_AT_A_TIME = threading.Lock()


def _compiled_header(folder: Path, flags: Sequence[str]) -> Path:
    """A header of those that each kernel for the CPU includes: parsing them takes half of a small kernel's build."""
    header = folder / f"{''.join(flags)}.h"
    with _ONE_AT_A_TIME:
        if not header.exists():
            header.write_text("#include <cfloat>\n#include <cmath>\n#include <cstdint>\n")
            subprocess.run(["g++", *flags, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    return header


def pair(loaded: LoadedProblem, of: Candidate, mode: str = "eval", seed: int = 0) -> tuple[Any, Any]:
    """The problem's model and the candidate's, constructed from the same seed."""
    torch.manual_seed(seed)
    model = loaded.model().train(mode == "train")
    torch.manual_seed(seed)
    new = module(of).ModelNew(*loaded.init_inputs()).train(mode == "train")
    return model, new
