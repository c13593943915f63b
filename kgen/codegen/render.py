"""Rendering: plans with their parameters filled in, as the source of a ``ModelNew`` that stands alone."""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence

from kgen.candidate import CALL, GRAPH, LAUNCHING, Candidate, Params, Plan
from kgen.codegen.body import Body
from kgen.codegen.entry import Entry, entry
from kgen.codegen.environment import HERE, environment
from kgen.codegen.forward import Forward, targets
from kgen.codegen.functions import Functions
from kgen.codegen.linker import helpers
from kgen.codegen.memory import Run
from kgen.codegen.module_source import ModuleSource, module_source
from kgen.codegen.parts import in_parts
from kgen.codegen.registry import template_for
from kgen.codegen.symbols import linked
from kgen.codegen.target import target
from kgen.codegen.template import FOLDER, Rendering, Schedule, Task
from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.graph.graph import OpGraph
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import KINDS, torch_device
from kgen.errors import RenderError
from kgen.problems import syntax
from kgen.problems.problem import Problem
from kgen.protocol import __version__


@dataclass(frozen=True)
class Way:
    """How one mode is computed: a plan, and the task and the parameters of each of its kernels."""

    mode: str
    plan: FusionPlan
    kernels: tuple[tuple[Task, Params], ...]

    @property
    def params(self) -> Params:
        """The parameters of all kernels (``k0.block`` is the first one's)."""
        return {
            f"k{number}.{name}": value
            for number, (_, params) in enumerate(self.kernels)
            for name, value in params.items()
        }


def render(
    problem: Problem, ways: Sequence[Way], hardware: Hardware, *, both_modes: bool, launching: str = ""
) -> Candidate:
    """The candidate of these ways: one for each mode, or a single one. The names of their kernels differ.

    ``both_modes`` says that a single way is right in train and in eval mode. ``launching`` is :data:`CALL` where one
    call of C does all of forward, and :data:`GRAPH` where a CUDA graph is replayed. Raises :class:`RenderError` where a
    template is wrong, and :class:`CaptureError` where ``Model`` is written in a way that cannot be taken over.
    """
    return _File(problem, tuple(ways), hardware, both_modes, launching).candidate()


def has_entry(problem: Problem, ways: Sequence[Way], hardware: Hardware, *, both_modes: bool) -> bool:
    """Whether one call of C can do all of forward: it is one run of kernels, on a kind of device that has such
    files."""
    return _File(problem, tuple(ways), hardware, both_modes, CALL).has_entry()


def decided(task: Task, params: Params) -> Schedule:
    """The schedule that the parameters decide. Raises :class:`RenderError` where its template has other parameters."""
    template = template_for(task)
    try:
        return template.schedule(task, **params)
    except TypeError as error:
        raise RenderError(f"template {template.name} has other parameters: {error}") from error


def kernel_text(task: Task, params: Params) -> tuple[str, Rendering]:
    """The text of one kernel with its launcher, without the helpers that it calls, and its rendering, which names
    these.

    Raises :class:`RenderError` where the template is wrong, or its schedules have other parameters.
    """
    import jinja2

    template, rendering = template_for(task), template_for(task).render(decided(task, params))
    try:
        text, symbols = _in_c(template.file, rendering.context, template.folder)
    except jinja2.TemplateError as error:
        raise RenderError(f"template {template.file}: {error}") from error
    elements = (DTYPES[dtype].memory for dtype in task.program().tensor_dtypes.values())
    return text, replace(rendering, symbols=(*symbols, *elements))


def translation_unit(texts: Sequence[str], symbols: Iterable[str], device_type: str) -> str:
    """Kernels as one file for the device, with the helpers among their symbols in front."""
    parts = [*target(device_type).headers(helpers(symbols, device_type)), *texts]
    return "\n\n".join(p.strip() for p in parts if p.strip())


def compiler_flags(hardware: Hardware, own: Iterable[str], specific: bool = False) -> list[str]:
    """Flags of the kernels' compiler; ``specific`` allows features that the architecture alone has."""
    return target(hardware.device_type).flags(hardware, list(dict.fromkeys(own)), specific)


def constant_names(graphs: Iterable[OpGraph]) -> dict[str, str]:
    """The names of a file's constants, by the source that makes them."""
    texts = dict.fromkeys(c.text for graph in graphs for c in graph.constants)
    return {text: f"CONSTANT_{at + 1}" if len(texts) > 1 else "CONSTANT" for at, text in enumerate(texts)}


def _in_c(file: str, context: Mapping[str, Any], folder: Path = HERE) -> tuple[str, tuple[str, ...]]:
    """A template's text in C, and its symbols."""
    return linked(environment(folder, in_c=True).get_template(file).render(**context).strip())


class _File:
    """One ``ModelNew`` file in the making."""

    def __init__(
        self, problem: Problem, ways: tuple[Way, ...], hardware: Hardware, both_modes: bool, launching: str
    ) -> None:
        self.problem, self.ways, self.hardware, self.both_modes, self.launching = (
            problem,
            ways,
            hardware,
            both_modes,
            launching,
        )
        self.device_type, self.target = hardware.device_type, target(hardware.device_type)
        self.kernels: list[tuple[str, Rendering]] = []  # name of the launcher, how it is called
        self.bodies: list[tuple[Way, Body]] = []
        self.graph = ways[0].plan.graph
        self.model = module_source(problem.source, problem.path)

    def _functions_of_kernels(self) -> Functions:
        """The texts of the kernels; the bodies of forward are made from how they are called."""
        functions = Functions()
        for way in self.ways:
            renderings: dict[str, Rendering] = {}
            launchers: dict[Kernel, str] = {}
            for kernel, (task, params) in zip(way.plan.kernels, way.kernels, strict=True):
                launchers[kernel], renderings[kernel.name] = functions.add(task, params, *kernel_text(task, params))
                self.kernels.append((launchers[kernel], renderings[kernel.name]))
            self.bodies.append((way, self._body(way, renderings, launchers)))
        return functions

    def candidate(self) -> Candidate:
        source = self._source(self._functions_of_kernels())
        params = self._params
        plan = Plan.of_modes([(w.mode, w.plan.data) for w in self.ways])
        return Candidate(
            source=source,
            plan=plan.name,
            params=params,
            device_type=self.device_type,
            kernels=len(self.kernels),
            control=all(w.plan.control for w in self.ways),
            rewrites=tuple(dict.fromkeys(r for w in self.ways for r in w.plan.rewrites)),
            plan_data=plan,
            functions=tuple(name for name, _ in self.kernels),
        )

    @property
    def _params(self) -> Params:
        """The parameters of the file: those of its kernels, and the way of launching where it is not the plain one."""
        own = {k: v for way in self.ways for k, v in self._prefixed(way).items()}
        return own | ({LAUNCHING: self.launching} if self.launching else {})

    def _prefixed(self, way: Way) -> Params:
        return way.params if len(self.ways) == 1 else {f"{way.mode}.{k}": v for k, v in way.params.items()}

    def _method(self, way: Way) -> str:
        return "_run" if len(self.ways) == 1 else f"_{way.mode}"

    # The module

    def _source(self, kernels: Functions) -> str:
        runs = [run for _, body in self.bodies for run in body.runs]
        of_entry = self._entry()
        texts, symbols = zip(*self._launches(runs, of_entry))
        needed = [*kernels.symbols, *(name for of in symbols for name in of)]
        parts = in_parts(kernels.texts) if KINDS[self.device_type].accelerator else []
        if len(parts) > 1:
            of_parts = {"parts": parts, "launchers": kernels.launchers, "launches": "\n\n".join(texts)}
            whole = [environment().get_template("parts.j2").render(of_parts)]
        else:
            whole = [*kernels.texts, *texts]
        kernel_source = translation_unit(whole, needed, self.device_type) if kernels.texts else ""
        flags = compiler_flags(
            self.hardware, (f for _, r in self.kernels for f in r.flags), any(r.specific for _, r in self.kernels)
        )
        digest = hashlib.sha256("\0".join([kernel_source, *flags]).encode()).hexdigest()[:16]
        stem = re.sub(r"\W", "_", self.problem.name)[:40]
        model = self.model
        graph = self.graph
        forward = Forward(graph, model)
        packed, packed_names = forward.packed
        checks, expectations = forward.checks(), forward.expectations()
        ways = [self._way(way, body) for way, body in self.bodies]
        context = {
            "title": self.problem.title,
            "chain": " -> ".join(_chain(graph)),
            "plan_lines": [f"Plan: {self._plan(w)}" for w in self.ways],
            "param_lines": _wrapped("Parameters: ", [f"{k}={v}" for k, v in self._params.items()]),
            "version": __version__,
            "problem": self.problem.file_name,
            "dtype": self.problem.dtype,
            "modes": "train and eval mode" if self.both_modes or len(self.ways) > 1 else f"{self.ways[0].mode} mode",
            "device_name": self.hardware.name,
            "imports": _imports(
                model,
                bool(kernel_source),
                any(way["kept"] for way in ways),
                self._uses_functional(ways),
                self.launching == GRAPH,
            ),
            "kernel_source": kernel_source,
            "parts": 1 + len(parts) if len(parts) > 1 else 1,
            "source_constant": self.target.source_constant,
            "flags_constant": self.target.flags_constant,
            "flags": _list(flags),
            "extension": f"kgen_{stem}_{digest}",
            "device_type": torch_device(self.device_type),
            "functions": self._functions(),
            "alignment": self.target.alignment,
            "runs": runs,
            "fillers": list(
                dict.fromkeys(a.filled.launcher for _, body in self.bodies for a in body.weights.filled.values())
            ),
            "typed": any("typed(" in way["kept"]["pointed"] for way in ways if way["kept"]),
            "definitions": model.definitions,
            "bases": model.bases,
            "class_body": model.class_body,
            "forward": forward,
            "checks": checks,
            "expectations": expectations,
            "packing": forward.packing(),
            "one_mode": None if self.both_modes or len(self.ways) > 1 else self.ways[0].mode,
            "constants": [_wrapped_literal(f"{name} = {text}") for text, name in self.constants.items()],
            "ways": ways,
            "packed": packed,
            "packed_names": targets(packed_names),
            "prepared_mb": sum(body.weights.prepared_bytes for _, body in self.bodies if body.weights.keeps) / 1e6,
            "graphs": self.launching == GRAPH,
            "entry": of_entry,
            "keeping": [way for way in ways if way["kept"]],
            "derives": any(way["prepares"] for way in ways),
            "lists": any(way["listed"] for way in ways),
        }
        text = environment().get_template("model_new.py.j2").render(**context)
        text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
        _require_python(text, self.problem)
        return text

    def has_entry(self) -> bool:
        self._functions_of_kernels()
        return self._entry() is not None

    def _launches(self, runs: Sequence[Run], of_entry: Entry | None) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The functions of C that launch the kernels, and the one that does all of forward, each with its symbols."""
        yield _in_c("launches.j2", {"runs": runs, "device_type": torch_device(self.device_type)})
        if of_entry:
            yield _in_c("entry.j2", {"alignment": self.target.alignment, **of_entry.context})

    def _entry(self) -> Entry | None:
        """The function that does all of forward, where the file is to have one; ``None`` where there is none."""
        if self.launching != CALL or len(self.bodies) > 1 or not KINDS[self.device_type].accelerator:
            return None
        ((way, body),) = self.bodies
        return entry(body, Forward(way.plan.graph, self.model))

    def _functions(self) -> list[str]:
        """Functions that the kernels' library calls need, each once."""
        files = dict.fromkeys(r.before.function for _, r in self.kernels if r.before)
        return [environment(FOLDER).get_template(file).render().strip() for file in files]

    def _plan(self, way: Way) -> str:
        return way.plan.name if len(self.ways) == 1 else f"{way.mode}: {way.plan.name}"

    def _uses_functional(self, ways: list[dict[str, Any]]) -> bool:
        return any("F." in line for way in ways for line in way["lines"])

    @cached_property
    def constants(self) -> dict[str, str]:
        """The names of the constants of every way in the file, by the source that makes them."""
        return constant_names(w.plan.graph for w in self.ways)

    # The ways

    def _prefix(self, way: Way) -> str:
        """The prefix of names of which each mode has one, where there are two modes."""
        return "" if len(self.ways) == 1 else f"{way.mode}_"

    def _body(self, way: Way, renderings: Mapping[str, Rendering], launchers: Mapping[Kernel, str]) -> Body:
        return Body(
            way.plan, renderings, Forward(way.plan.graph, self.model), launchers.__getitem__,
            prefix=self._prefix(way), constants=self.constants, has_streams=KINDS[self.device_type].accelerator,
            counts_changes=any(w.plan.graph.folded for w in self.ways),
        )  # fmt: skip

    def _way(self, way: Way, body: Body) -> dict[str, Any]:
        """The context of a way's methods; ``kept`` is ``None`` where it keeps no weights."""
        prefix, weights = self._prefix(way), body.weights
        return {
            "mode": way.mode,
            "method": self._method(way),
            "lines": body.lines,
            "kept": weights.arguments if weights.keeps else None,
            "paths": [*weights.paths.values()],
            "listed": [*weights.listed.values()],
            "targets": targets([*weights.paths, *weights.listed]),
            "prepares": weights.prepares if weights.keeps else [],
            "constant": f"{prefix.upper()}WEIGHTS",
            "weights": f"_{prefix}weights",
            "prepare": f"_prepare_{prefix}weights",
            "slot": f"_{prefix}prepared",
        }


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


def _imports(model: ModuleSource, kernels: bool, keeps: bool, functional: bool, graphs: bool) -> list[str]:
    """Import lines: the standard library's, then torch's, those of the problem among them."""
    lines = ["import torch", "import torch.nn as nn"]
    lines += ["import torch.nn.functional as F"] if functional else []
    lines += ["from torch.utils.cpp_extension import load_inline"] if kernels else []
    used = {"ctypes": kernels or keeps, "functools": True, "operator": keeps, "struct": kernels, "threading": graphs}
    standard = [f"import {name}" for name, is_used in used.items() if is_used]
    for line in model.imports:
        module = line.split()[1]
        (lines if module.split(".")[0] == "torch" else standard).append(line)
    standard, lines = list(dict.fromkeys(standard)), list(dict.fromkeys(lines))
    ordered = [line for line in lines if line.startswith("import")] + [
        line for line in lines if line.startswith("from")
    ]
    return [*sorted(standard), *([""] if standard else []), *ordered]


def _chain(graph: OpGraph) -> list[str]:
    return [n.op.split(".")[1] if "." in n.op else n.op for n in graph.nodes if not n.op.startswith("aten.add_")]


def _list(items: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{i}"' for i in items) + "]"


def _wrapped_literal(text: str) -> str:
    """A literal over as many lines as it needs; it may be broken wherever a blank stands in its brackets."""
    return "\n".join(textwrap.wrap(text, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def _wrapped(head: str, parts: Sequence[str]) -> list[str]:
    if not parts:
        return []
    return textwrap.wrap(head + ", ".join(parts), width=110, subsequent_indent=" " * len(head), break_on_hyphens=False)
