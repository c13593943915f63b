"""The functions of a file's kernels: kernels that differ in names alone, as the layers of a network, are one function.

    linear_gelu(x, linear_weight, ...)     the launcher of layer 1, of layer 2 on its own tensors, ...

A network of a dozen equal layers then has a dozen functions and not a hundred, and compiles in a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kgen.candidate import Params
from kgen.codegen.arguments import signature
from kgen.codegen.template import Argument, Rendering, Task
from kgen.compiler.loops.canonical import digest


@dataclass
class Functions:
    """The texts of kernels with their symbols, each function once, in the order in which they were added.

    ``launchers`` are their names in C with the pointers that they take.
    """

    texts: list[str] = field(default_factory=list)
    launchers: list[tuple[str, str]] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    _known: dict[tuple[object, ...], tuple[str, Rendering]] = field(default_factory=dict)

    def add(self, task: Task, params: Params, text: str, rendering: Rendering) -> tuple[str, Rendering]:
        """Add a kernel. Returns the name of its launcher, and how that is called: with the kernel's own tensors."""
        key = (
            task.kernel.schedule,
            digest(task.program()),
            tuple(params.items()),
            nameless(text, _names(task), [a.name for a in rendering.arguments]),
        )
        if rendering.before or key not in self._known:
            self.texts.append(text)
            self.symbols += rendering.symbols
            before = [(rendering.before.launcher, rendering.before.arguments)] if rendering.before else []
            for launcher, arguments in (*before, (task.kernel.name, rendering.arguments)):
                self.launchers.append((launcher, signature(arguments)["launcher_parameters"]))
            self._known.setdefault(key, (task.kernel.name, rendering))
            return task.kernel.name, rendering
        name, first = self._known[key]
        pairs = zip(rendering.arguments, first.arguments, strict=True)
        return name, replace(rendering, arguments=tuple(_filled_alike(own, other) for own, other in pairs))


def nameless(text: str, names: Iterable[str], arguments: Sequence[str]) -> str:
    """The text without its names: arguments of the launcher are their numbers. Names may be the begin of longer ones.

    Texts that are equal so, of programs that are equal, are one function of the same arguments. A kernel may have the
    name of a value.
    """
    instead = {**dict.fromkeys(names, "@"), **{name: f"@{number}" for number, name in enumerate(arguments)}}
    longest_first = sorted(instead, key=lambda name: (-len(name), name))
    pattern = rf"\b(?:{'|'.join(map(re.escape, longest_first))})(?![a-zA-Z0-9])"
    return re.sub(pattern, lambda found: instead[found[0]], text)


def _names(task: Task) -> set[str]:
    """The names that a kernel's text has from its place in the graph."""
    return {task.kernel.name, *task.kernel.nodes, *task.kernel.outputs, *task.program().operands}


def _filled_alike(own: Argument, other: Argument) -> Argument:
    """The argument, whose prepared memory is filled by the function of another kernel's."""
    if own.filled is None or other.filled is None:
        return own
    return replace(own, filled=replace(own.filled, launcher=other.filled.launcher))
