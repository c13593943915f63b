"""Rendering: plans with their parameters filled in, as the source of a ``ModelNew`` that stands alone."""

from __future__ import annotations

import hashlib
import itertools
import re
import textwrap
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from kgen import __version__, syntax
from kgen.candidate import Candidate, Params
from kgen.compiler import plan_name
from kgen.compiler.fusion import FusionPlan, Kernel
from kgen.compiler.graph import OpGraph, Tensor
from kgen.errors import RenderError
from kgen.hardware import Hardware
from kgen.problem import Problem
from kgen.templates import FOLDER, Argument, Rendering, Task, template_for
from kgen.templates.forward import Forward, python_name, tuple_source, weight_source
from kgen.templates.module_source import ModuleSource, module_source
from kgen.templates.spelling import helpers
from kgen.templates.target import target

if TYPE_CHECKING:
    import jinja2


_FEW_STEPS = 8  # of a forward; in a longer one, tensors are freed as soon as nothing uses them


@dataclass(frozen=True)
class Way:
    """How one mode is computed: a plan and its parameters (``k0.block`` is the first kernel's)."""

    mode: str
    plan: FusionPlan
    params: Params

    def kernel_params(self, number: int) -> Params:
        prefix = f"k{number}."
        return {k.removeprefix(prefix): v for k, v in self.params.items() if k.startswith(prefix)}


def render(problem: Problem, ways: Sequence[Way], hardware: Hardware, *, both_modes: bool) -> Candidate:
    """The candidate of these ways: one for each mode, or a single one.

    ``both_modes`` says that a single way is right in train and in eval mode. Raises :class:`RenderError` where a
    template is wrong, and :class:`CaptureError` where ``Model`` is written in a way that cannot be taken over.
    """
    return _File(problem, tuple(ways), hardware, both_modes).candidate()


def kernel_text(task: Task, params: Params) -> tuple[str, Rendering]:
    """The text of one kernel with its launcher, without the helpers that it calls."""
    import jinja2

    template = template_for(task)
    rendering = template.render(task, params)
    try:
        text = _environment().get_template(template.file).render(**rendering.context)
    except jinja2.TemplateError as error:
        raise RenderError(f"template {template.file}: {error}") from error
    return text.strip(), rendering


def translation_unit(texts: Sequence[str], device_type: str) -> str:
    """Kernels as one file for the device, with the helpers that they call in front."""
    body = "\n\n".join(texts)
    parts = [*target(device_type).headers(helpers(body, device_type), body), body]
    return "\n\n".join(p.strip() for p in parts if p.strip())


def compiler_flags(hardware: Hardware, params: Sequence[Params], specific: bool = False) -> list[str]:
    """Flags of the kernels' compiler; ``specific`` allows features that the architecture alone has."""
    return target(hardware.device_type).flags(hardware, params, specific)


@lru_cache(maxsize=1)
def _environment() -> "jinja2.Environment":
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )


class _File:
    """One ``ModelNew`` file in the making."""

    def __init__(self, problem: Problem, ways: tuple[Way, ...], hardware: Hardware, both_modes: bool) -> None:
        self.problem, self.ways, self.hardware, self.both_modes = problem, ways, hardware, both_modes
        self.device_type, self.target = hardware.device_type, target(hardware.device_type)
        self.kernels: list[tuple[str, Rendering]] = []  # name of the launcher, how it is called
        self.graph = ways[0].plan.graph
        self.model = module_source(problem.source, problem.path)

    def candidate(self) -> Candidate:
        texts, way_lines, all_params, prepared = [], [], [], []
        for way in self.ways:
            renderings: dict[str, Rendering] = {}
            for number, kernel in enumerate(way.plan.kernels):
                named = self._renamed(way, kernel)
                params = way.kernel_params(number)
                text, rendering = kernel_text(Task(way.plan, named, self.hardware), params)
                texts.append(text)
                all_params.append(params)
                self.kernels.append((named.name, rendering))
                renderings[kernel.name] = rendering
            way_lines.append({"method": self._method(way), "lines": self._body(way, renderings)})
            prepared += [p for p in [self._prepared(way, renderings)] if p["names"]]
        source = self._source(texts, all_params, way_lines, prepared)
        params = {k: v for way in self.ways for k, v in self._prefixed(way).items()}
        plan = plan_name.of_modes([(w.mode, w.plan.name) for w in self.ways])
        return Candidate(
            source=source,
            plan=plan,
            params=params,
            device_type=self.device_type,
            kernels=len(self.kernels),
            control=all(w.plan.control for w in self.ways),
            rewrites=tuple(dict.fromkeys(r for w in self.ways for r in w.plan.rewrites)),
        )

    def _prefixed(self, way: Way) -> Params:
        return way.params if len(self.ways) == 1 else {f"{way.mode}.{k}": v for k, v in way.params.items()}

    def _renamed(self, way: Way, kernel: Kernel) -> Kernel:
        """The kernel under a name of its own where both modes have kernels."""
        from dataclasses import replace

        return kernel if len(self.ways) == 1 else replace(kernel, name=f"{way.mode}_{kernel.name}")

    def _method(self, way: Way) -> str:
        return "_run" if len(self.ways) == 1 else f"_{way.mode}"

    # The module

    def _source(
        self, texts: list[str], params: list[Params], ways: list[dict[str, Any]], prepared: list[dict[str, Any]]
    ) -> str:
        kernel_source = translation_unit(texts, self.device_type) if texts else ""
        flags = compiler_flags(self.hardware, params, any(r.specific for _, r in self.kernels))
        digest = hashlib.sha256("\0".join([kernel_source, *flags]).encode()).hexdigest()[:16]
        stem = re.sub(r"\W", "_", self.problem.name)[:40]
        model = self.model
        graph = self.graph
        forward = Forward(graph, model)
        packed, packed_names = forward.packed
        checks = forward.checks()
        context = {
            "title": self.problem.title,
            "chain": " -> ".join(_chain(graph)),
            "plan_lines": [f"Plan: {self._plan(w)}" for w in self.ways],
            "param_lines": _wrapped("Parameters: ", [f"{k}={v}" for w in self.ways for k, v in self._prefixed(w).items()]),
            "version": __version__,
            "problem": f"{self.problem.name}.py",
            "dtype": self.problem.dtype,
            "modes": "train and eval mode" if self.both_modes or len(self.ways) > 1 else f"{self.ways[0].mode} mode",
            "device_name": self.hardware.name,
            "imports": _imports(model, bool(texts), self._uses_functional(ways), bool(self.constants)),
            "kernel_source": kernel_source,
            "source_constant": self.target.source_constant,
            "flags_constant": self.target.flags_constant,
            "flags": _list(flags),
            "extension": f"kgen_{stem}_{digest}",
            "device_type": self.device_type,
            "mixed": any(a.dtype != "float32" for _, r in self.kernels for a in r.arguments),
            "functions": self._functions(),
            "alignment": self.target.alignment,
            "kernels": self._launchers(),
            "definitions": model.definitions,
            "bases": model.bases,
            "class_body": model.class_body,
            "forward": forward,
            "checks": checks,
            "expects": any(line.startswith("expect(") for line in checks),
            "one_mode": None if self.both_modes or len(self.ways) > 1 else self.ways[0].mode,
            "constants": [_wrapped_literal(f"{name} = {text}") for text, name in self.constants.items()],
            "ways": ways,
            "packed": packed,
            "packed_names": _targets(packed_names),
            "prepared": prepared,
        }
        text = _environment().get_template("model_new.py.j2").render(**context)
        text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
        _require_python(text, self.problem)
        return text

    def _launchers(self) -> list[dict[str, Any]]:
        """Every launcher with the dtypes that its pointers point to: those that fill prepared memory, then the kernels' own."""
        found: dict[str, list[str]] = {}
        for name, rendering in self.kernels:
            found |= {a.filled.launcher: [a.dtype] * 2 for a in rendering.all_arguments if a.filled}
            if rendering.before:
                found[rendering.before.launcher] = [a.dtype for a in rendering.before.arguments]
            found[name] = [a.dtype for a in rendering.arguments]
        return [{"name": name, "dtypes": dtypes} for name, dtypes in found.items()]

    def _functions(self) -> list[str]:
        """Functions that the kernels' library calls need, each once."""
        files = dict.fromkeys(r.before.function for _, r in self.kernels if r.before)
        return [_environment().get_template(file).render().strip() for file in files]

    def _plan(self, way: Way) -> str:
        return way.plan.name if len(self.ways) == 1 else f"{way.mode}: {way.plan.name}"

    def _uses_functional(self, ways: list[dict[str, Any]]) -> bool:
        return any("F." in line for way in ways for line in way["lines"])

    @cached_property
    def constants(self) -> dict[str, str]:
        """The names of the constants of every way in the file, by the source that makes them."""
        texts = dict.fromkeys(c.text for w in self.ways for c in w.plan.graph.constants)
        return {text: f"CONSTANT_{at + 1}" if len(texts) > 1 else "CONSTANT" for at, text in enumerate(texts)}

    # Folded weights, and memory that is prepared from weights

    def _prefixed_name(self, way: Way, name: str) -> str:
        """A name of the module that each mode has one of, where there are two."""
        return f"_{name}" if len(self.ways) == 1 else f"_{way.mode}_{name}"

    def _prepared(self, way: Way, renderings: Mapping[str, Rendering]) -> dict[str, Any]:
        """The context of the method that prepares a way's weights."""
        graph = way.plan.graph
        made = [d.name for d in graph.folded]
        filled = self._filled(way, renderings)
        spelled = {w.name: weight_source(w) for w in graph.weights} | {d: d for d in made}
        used = [s for d in graph.folded for s in d.sources] + [a.tensor for a in filled.values()]
        lines = [f"{d.name} = {d.expression.format(*(spelled[s] for s in d.sources))}" for d in graph.folded]
        for name, a in filled.items():
            source = a.filled.form.format(spelled[a.tensor])
            lines.append(f"{name} = {spelled[a.tensor]}.new_empty({a.size})")
            lines.append(f"launch(_{a.filled.launcher}, {a.filled.rows}, dense({source}), {name})")
        return {
            "method": self._prefixed_name(way, "weights"),
            "slot": self._prefixed_name(way, "prepared"),
            "sources": [spelled[s] for s in dict.fromkeys(used) if s not in made],
            "lines": lines,
            "names": [*self._used_folded(way), *filled],
        }

    @staticmethod
    def _filled(way: Way, renderings: Mapping[str, Rendering]) -> dict[str, Argument]:
        """The memory that the way's kernels have prepared from weights, by its name in the module, each once."""
        found: dict[str, Argument] = {}
        for rendering in renderings.values():
            for a in rendering.all_arguments:
                if a.filled:
                    found.setdefault(way.plan.graph.fresh(a.name), a)
        return found

    @staticmethod
    def _used_folded(way: Way) -> list[str]:
        """Folded weights that the forward itself uses."""
        used = {v for n in way.plan.graph.nodes for v in n.values}
        return [d.name for d in way.plan.graph.folded if d.name in used]

    # The forward of one way

    def _body(self, way: Way, renderings: Mapping[str, Rendering]) -> list[str]:
        graph, begin = way.plan.graph, []
        forward = Forward(graph, self.model)
        if graph.batch_input is not None:
            source = next(i for i in graph.inputs if i.name == graph.batch_input)
            begin.append(forward.batch_size(python_name(source.name), source))
        folded = self._used_folded(way)
        kept = [*folded, *self._filled(way, renderings)]
        if kept:
            begin.append(f"{_targets(kept)} = self.{self._prefixed_name(way, 'weights')}()")
        spelled = {w.name: weight_source(w) for w in graph.weights}
        spelled |= {i.name: python_name(i.name) for i in graph.inputs} | {d: d for d in folded}
        device = f"{python_name(graph.inputs[0].name)}.device"
        for constant in graph.constants:
            spelled[constant.name] = constant.name
            begin.append(f"{constant.name} = on_device({self.constants[constant.text]}, {device})")
        steps: list[list[str]] = []
        for step in way.plan.steps:
            lines: list[str] = []
            if isinstance(step, Kernel):
                lines += self._launch(way, step, renderings[step.name], spelled)
            else:
                node = graph.node(step.node)
                call = node.call.format(*(spelled[v] for v in node.values), device=device)
                local = python_name(node.name)
                spelled[node.name] = local
                used = graph.users(node.name) or node.name in graph.returns
                lines.append(f"{local} = {call}" if used else call)
                if node.op == "batch_norm" and node.effect:
                    states = [v for r, v in zip(node["roles"], node.inputs) if r.startswith("running_")]
                    lines += self._moved_on([spelled[v] for v in states])
            steps.append(lines)
        names = [spelled[r] for r in graph.returns]
        single = graph.output == f"{{{graph.returns[0]}}}"
        lines = [*begin, *(_freed(steps, names) if len(steps) > _FEW_STEPS else itertools.chain(*steps))]
        lines.append(f"return {names[0]}" if single else f"return {tuple_source(names)}")
        if not any("batch_size" in line for line in lines[1:]):
            lines = [line for line in lines if not line.startswith("batch_size =")]
        return lines

    def _launch(self, way: Way, kernel: Kernel, rendering: Rendering, spelled: dict[str, str]) -> list[str]:
        graph, lines = way.plan.graph, []
        given: dict[Argument, str] = {}
        first = python_name(graph.inputs[0].name)

        def own_dtype(dtype: str) -> str:
            return "" if dtype == graph.inputs[0].type.dtype else f", dtype=torch.{dtype}"

        program = way.plan.program(kernel)
        rows = str(program.size)
        if program.moments_of is not None or any(graph.node(n).op == "unbiased_variance" for n in kernel.nodes):
            lines.append(f"if {rows if program.moments_of else program.col_size} < 2:")
            lines.append('    raise ValueError("batch norm in train mode needs more than one value per channel")')
        overwritten: str | None = None
        for a in rendering.all_arguments:
            if a.role in ("in", "state"):
                given[a] = self._operand(way, a, spelled)
            elif a.role == "inout":
                overwritten = python_name(next(s.tensor for s in program.stores if s.level == "element"))
                lines.append(f"{overwritten} = {self._operand(way, a, spelled)}  # written over")
                given[a] = overwritten
            elif a.role == "out":
                local = python_name(a.tensor)
                lines.append(f"{local} = {first}.new_empty({_sizes(graph.type(a.tensor))}{own_dtype(a.dtype)})")
                spelled[a.tensor] = given[a] = local
            elif a.role == "prepared":
                given[a] = graph.fresh(a.name)
            else:
                lines.append(f"{a.name} = {first}.new_empty({a.size.replace('rows', rows)}{own_dtype(a.dtype)})")
                given[a] = a.name

        def launch(launcher: str, arguments: Sequence[Argument]) -> str:
            return f"launch(_{launcher}, {rows}, {', '.join(given[a] for a in arguments)})"

        if rendering.before:
            lines.append(launch(rendering.before.launcher, rendering.before.arguments))
            lines.append(rendering.before.call.format(rows=rows))
        lines.append(launch(self._renamed(way, kernel).name, rendering.arguments))
        for store in program.stores:
            if store.tensor not in spelled and not store.into:
                spelled[store.tensor] = overwritten
        return lines + self._moved_on([spelled[a.tensor] for a in rendering.arguments if a.role == "state"])

    def _moved_on(self, states: Sequence[str]) -> list[str]:
        """Count running statistics as changed where weights are prepared from them; neither kernels nor batch norm do."""
        if not states or not any(w.plan.graph.folded for w in self.ways):
            return []
        return [f"torch.autograd.graph.increment_version([{', '.join(states)}])"]

    def _operand(self, way: Way, a: Argument, spelled: Mapping[str, str]) -> str:
        """A tensor as a kernel takes it: what comes from outside or from the library may need a dense copy."""
        producer = way.plan.graph.producer(a.tensor)
        made = any(a.tensor in k.outputs for k in way.plan.kernels) or (producer is not None and producer.op == "linear")
        if a.role == "state" or (made and a.form == "{}"):
            return spelled[a.tensor]
        return f"dense({a.form.format(spelled[a.tensor])})"


def _freed(steps: Sequence[Sequence[str]], returned: Sequence[str]) -> list[str]:
    """The lines of all steps, each with a statement behind it that frees what no later one uses, as modules within modules do."""
    last: dict[str, int] = {}  # the last step that uses each name
    for number, step in enumerate(steps):
        made = [m[1] for line in step if (m := re.match(r"(\w+) = ", line))]
        used = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", "\n".join(step)))
        last |= {name: number for name in [*made, *(used & last.keys())]}
    lines = []
    for number, step in enumerate(steps):
        over = [name for name, of in last.items() if of == number and name not in returned]
        lines += [*step, *([f"del {', '.join(over)}"] if over and number + 1 < len(steps) else [])]
    return lines


def _require_python(text: str, problem: Problem) -> None:
    """Raise :class:`RenderError` where a rendered file is no Python: rendering is wrong then, and not the candidate."""
    shared, own = syntax.parted(text)
    try:
        _compile("\n".join(own))
        _compile_once(shared)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "text", None)
        raise RenderError(
            f"{problem.path}: the rendered ModelNew does not parse: {error}" + (f": {line.strip()}" if line else "")
        ) from error


def _compile(text: str) -> None:
    compile(text, "<ModelNew>", "exec", dont_inherit=True)


_compile_once = lru_cache(maxsize=512)(_compile)


def _imports(model: ModuleSource, kernels: bool, functional: bool, constants: bool) -> list[str]:
    """Import lines: the standard library's, then torch's, those of the problem among them."""
    lines = ["import torch", "import torch.nn as nn"]
    lines += ["import torch.nn.functional as F"] if functional else []
    lines += ["from torch.utils.cpp_extension import load_inline"] if kernels else []
    standard = [*(["import ctypes"] if kernels else []), *(["import functools"] if constants else [])]
    for line in model.imports:
        module = line.split()[1]
        (lines if module.split(".")[0] == "torch" else standard).append(line)
    standard, lines = list(dict.fromkeys(standard)), list(dict.fromkeys(lines))
    ordered = [line for line in lines if line.startswith("import")] + [line for line in lines if line.startswith("from")]
    return [*sorted(standard), *([""] if standard else []), *ordered]


def _chain(graph: OpGraph) -> list[str]:
    return [n.op.split(".")[1] if "." in n.op else n.op for n in graph.nodes if not n.op.startswith("aten.add_")]




def _sizes(tensor: Tensor) -> str:
    return tuple_source([str(s) for s in tensor.sizes()])


def _targets(names: Sequence[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")


def _list(items: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{i}"' for i in items) + "]"


def _wrapped_literal(text: str) -> str:
    """A literal over as many lines as it needs; it may be broken wherever a blank stands in its brackets."""
    return "\n".join(textwrap.wrap(text, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def _wrapped(head: str, parts: Sequence[str]) -> list[str]:
    if not parts:
        return []
    return textwrap.wrap(head + ", ".join(parts), width=110, subsequent_indent=" " * len(head), break_on_hyphens=False)
