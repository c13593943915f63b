"""The forward of a ModelNew: its parameters, what it checks of them, and the tensors that it hands to the plan's
method.

    def forward(self, A, B, scale=2.0):            the problem's own parameters
        expect("scale", scale, 2.0)                arguments that are no tensors
        check("A", A, (None, 64), torch.float32)   tensors
        return run(A, B)                           the plan's method, on the tensors
"""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Sequence

from kgen.codegen.module_source import ModuleSource
from kgen.compiler.graph.graph import Input, OpGraph, Weight
from kgen.compiler.graph.library_call import BatchSize, number_source
from kgen.problems import syntax

#: Names that the text of a ModelNew's methods uses for itself.
_OWN_NAMES = frozenset(
    "self torch nn F check expect alone run ForwardOnly len device batch_size ValueError RuntimeError launch dense "
    "fill typed next "
    "on_device Kept kept stream memory at asking workspace type".split()
)


def python_name(name: str) -> str:
    """The name of a value in a method of the module."""
    return f"{name}_value" if keyword.iskeyword(name) or name in _OWN_NAMES else name


def weight_source(weight: Weight) -> str:
    """Python source of a weight: ``self.linear.weight``, ``getattr(self.layers, "0").weight``."""
    source = "self"
    for part in re.findall(r"[^.\[]+(?:\[[^\]]*\])*", weight.path):
        name = re.match(r"[^\[]*", part)[0]
        plain = name.isidentifier() and not keyword.iskeyword(name)
        source = f"{source}.{part}" if plain else f"getattr({source}, {_quoted(name)}){part[len(name) :]}"
    return source


@dataclass(frozen=True)
class Forward:
    """The text of one module's forward."""

    graph: OpGraph
    model: ModuleSource

    @cached_property
    def signature(self) -> str:
        """Parameters as the problem has them, ``self`` first."""
        return self.model.signature or self.graph.signature

    @cached_property
    def parameters(self) -> ast.arguments:
        return syntax.parse(f"def forward({self.signature}): ...").body[0].args

    @property
    def names(self) -> list[str]:
        """Names of all parameters but ``self``, in order."""
        p = self.parameters
        rest = [a for a in (p.vararg, p.kwarg) if a is not None]
        return [a.arg for a in (*p.posonlyargs, *p.args, *p.kwonlyargs, *rest)][1:]

    @property
    def hidden(self) -> bool:
        """Whether a parameter hides a name that the text needs: the text then stands in a method with other names."""
        return any(python_name(n) != n for n in self.names)

    @property
    def safe_names(self) -> list[str]:
        return [python_name(n) for n in self.names]

    @property
    def inputs(self) -> list[str]:
        """Names of the tensors in the plan's method."""
        return [python_name(i.name) for i in self.graph.inputs]

    @property
    def arguments(self) -> list[str]:
        """Python source of the tensors in forward."""
        return [_respelled(i.source) for i in self.graph.inputs]

    @property
    def packed(self) -> tuple[str | None, list[str]]:
        """The value that forward returns as Python source, and the names of its tensors; ``None`` for one tensor."""
        graph = self.graph
        if graph.output == f"{{{graph.returns[0]}}}":
            return None, []
        names = [
            name if name not in graph.returns[:at] else f"{name}_{at + 1}"
            for at, name in enumerate(python_name(r) for r in graph.returns)
        ]
        rest, known = iter(names), {}
        written = []
        for text, field, _, _ in Formatter().parse(graph.output):
            if field is not None and (field not in known or graph.returns.count(field) > 1):
                known[field] = next(rest)
            written.append(text + known.get(field, ""))
        return "".join(written), names

    def expectations(self) -> list[str]:
        """Statements that refuse other values of arguments that are no tensors."""
        lines = [f"expect({_quoted(s)}, {_respelled(s)}, {number_source(v)})" for s, v in self.graph.guards]
        return lines + [f'expect("{name}", {python_name(name)}, {default})' for name, default in self._left_out()]

    def checks(self) -> list[str]:
        """Statements that refuse tensors that the file was not made for."""
        device = self._device()
        lines = [f"device = {device}.device"] if device else []
        for at, value in enumerate(self.graph.inputs):
            lines += self._checked(value, "device" if device else f"{self.inputs[0]}.device" if at else None)
        return lines

    def batch_size(self, source: str, value: Input) -> str:
        """The statement that makes ``batch_size`` from the input whose first dimension follows it."""
        multiple = value.type.multiples[0]
        return f"batch_size = {source}.shape[0]" + (f" // {multiple}" if multiple != 1 else "")

    def _checked(self, value: Input, device: str | None) -> list[str]:
        source = python_name(value.name)
        sizes = list(map(str, value.type.sizes()))
        leads = value.name == self.graph.batch_input
        if leads:
            sizes[0] = "None"
        parts = [
            _quoted(value.source),
            source,
            tuple_source(sizes),
            f"torch.{value.type.dtype}",
            *([device] if device else []),
        ]
        lines = [f"check({', '.join(parts)})"]
        if leads and self._needs_batch():
            multiple = value.type.multiples[0]
            if multiple != 1:
                lines.append(f"if {source}.shape[0] % {multiple}:")
                lines.append(
                    "    raise "
                    f"ValueError({_quoted(f'{value.source} has a first size that is no multiple of {multiple}')})"
                )
            lines += [self.batch_size(source, value)] if self._follows_batch() else []
        return lines

    def _needs_batch(self) -> bool:
        """Whether another input's size, or a multiple of the batch, is checked by it."""
        lead = next(i for i in self.graph.inputs if i.name == self.graph.batch_input)
        return self._follows_batch() or lead.type.multiples[0] != 1

    def _follows_batch(self) -> bool:
        """Whether another input's size follows the batch."""
        graph = self.graph
        sizes = [s for i in graph.inputs for d, s in enumerate(i.type.sizes()) if (i.name, d) != (graph.batch_input, 0)]
        return any(isinstance(s, BatchSize) for s in sizes)

    def packing(self) -> list[str]:
        """The statement that makes the batch size, where what forward returns has it."""
        lead = next((i for i in self.graph.inputs if i.name == self.graph.batch_input), None)
        return [self.batch_size(python_name(lead.name), lead)] if lead and "batch_size" in self.graph.output else []

    def _device(self) -> str | None:
        """A weight whose device the inputs' must be."""
        weights = [w for w in self.graph.weights if not w.buffer] or list(self.graph.weights)
        return weight_source(weights[0]) if weights else None

    def _left_out(self) -> list[tuple[str, str]]:
        """Parameters that ``get_inputs()`` leaves out, with their defaults as source."""
        p = self.parameters
        positional = [*p.posonlyargs, *p.args]
        pairs = [*zip(reversed(positional), reversed(p.defaults)), *zip(p.kwonlyargs, p.kw_defaults)]
        given = {_root(s) for s in (*(i.source for i in self.graph.inputs), *(s for s, _ in self.graph.guards))}
        return [(a.arg, ast.unparse(d)) for a, d in pairs if d is not None and a.arg not in given]


def targets(names: Sequence[str]) -> str:
    """Python source of names that a tuple is taken apart into."""
    return ", ".join(names) + ("," if len(names) == 1 else "")


def tuple_source(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _root(source: str) -> str:
    """The parameter that a source reads: ``xs`` of ``len(xs[0])``."""
    return re.match(r"(?:len\()?(\w+)", source)[1]


def _respelled(source: str) -> str:
    """The source with its parameter under a name that hides nothing."""
    return re.sub(r"^((?:len\()?)(\w+)", lambda m: m[1] + python_name(m[2]), source)


def _quoted(text: str) -> str:
    """The text as a string in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
