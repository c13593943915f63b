"""The canonical form of loop programs: the same for kernels that differ in names alone, and for no others."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter

from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.loops.canonical import canonical, digest
from kgen.compiler.loops.program import Program
from kgen.compiler.lower.lowering import lower

LAYERS = """
for norm, up, down in zip(self.norms, self.ups, self.downs):
    x = x + down(F.gelu(up(norm(x))))
return x
"""
INIT = """
self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(3))
self.ups = nn.ModuleList(nn.Linear(24, 48) for _ in range(3))
self.downs = nn.ModuleList(nn.Linear(48, 24) for _ in range(3))
"""


def program(forward: str, inputs: str = "torch.randn(6, 20)", arguments: str = "x") -> Program:
    of = graph(made(source(forward, inputs, arguments=arguments)))
    return lower(of, [n.name for n in of.nodes], of.returns)


def first(forward: str, inputs: str, init: str) -> FusionPlan:
    return plans(graph(made(source(forward, inputs, init))), tuple(templates("cuda").values()))[0]


def test_equal_layers_of_a_model_have_equal_programs() -> None:
    plan = first(LAYERS, "torch.randn(32, 24)", INIT)
    kernels = Counter(digest(plan.program(kernel)) for kernel in plan.kernels)
    assert len(plan.kernels) > 3 and len(kernels) < len(plan.kernels)
    assert max(kernels.values()) >= 3, [kernel.nodes for kernel in plan.kernels]


def test_names_of_values_and_tensors_do_not_count() -> None:
    assert digest(program("return torch.tanh(x) * 2.0")) == digest(program("y = torch.tanh(z)\nreturn y * 2.0", arguments="z"))


def test_what_is_computed_counts() -> None:
    given = ("return torch.tanh(x) * 2.0", "return torch.tanh(x) * 3.0", "return torch.sigmoid(x) * 2.0", "return torch.tanh(x).sum(1)",
             "return torch.tanh(x).amax(1)", "return torch.tanh(x.mT) * 2.0", "return torch.tanh(x) > 2.0")  # fmt: skip
    assert len({digest(program(text)) for text in given}) == len(given)
    assert digest(program(given[0])) != digest(program(given[0], "torch.randn(6, 24)"))
    assert digest(program(given[0])) != digest(program(given[0], "torch.randn(6, 20).bfloat16()"))


def test_which_operand_is_read_twice_counts() -> None:
    inputs = "torch.randn(6, 20), torch.randn(6, 20)"
    assert digest(program("return x * y + x", inputs, "x, y")) != digest(program("return x * y + y", inputs, "x, y"))


def test_the_canonical_form_of_a_canonical_form_is_itself() -> None:
    of = program("return F.max_pool2d(x.relu(), 3, 2, 1) * 2", "torch.randn(2, 3, 8, 8)")
    assert canonical(canonical(of)) == canonical(of)


def test_the_hash_is_the_same_in_another_process() -> None:
    """With another order of sets. The process lowers the graph, too: that needs no torch, which would take four seconds."""
    of = graph(made(source("return x.softmax(1)")))
    code = """if True:
        import sys, pickle
        sys.path[:0] = sys.argv[1:]
        from kgen.compiler.loops.canonical import digest
        from kgen.compiler.lower.lowering import lower
        of = pickle.load(sys.stdin.buffer)
        print(digest(lower(of, [n.name for n in of.nodes], of.returns)), "torch" in sys.modules)
    """
    ran = subprocess.run([sys.executable, "-c", code, *sys.path], input=pickle.dumps(of), capture_output=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert ran.stdout.decode().split() == [digest(program("return x.softmax(1)")), "False"]
