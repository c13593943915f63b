"""How programs are spelled in C: expressions, functions, and the helper files that a kernel's text calls for."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Callable, Mapping, Sequence

from kgen.codegen.combines import PLACE, SPELLED
from kgen.codegen.target import Helpers, target
from kgen.codegen.template import FOLDER
from kgen.compiler.graph.dtypes import HALF, loaded, stored, value_type
from kgen.compiler.loops.passes import Pass, Schedule
from kgen.compiler.loops.program import Load, Map, Program, Store
from kgen.compiler.operators.pointwise import FUNCTIONS, Function
from kgen.compiler.operators.table import COMBINES

#: How the name ends of a function of the table whose results are of a half type.
_HALF = "_half"


def expression(text: str, device_type: str, dtype: str = "float32") -> str:
    """The expression with its capitals spelled for the device; of a half type, by functions that are as exact as it needs."""
    half = dtype in HALF
    table = {**target(device_type).primitives, **(target(device_type).half_primitives if half else {})}
    text = re.sub(r"\b([A-Z][A-Z0-9]+)\(", lambda m: f"{table[m[1]]}(" if m[1] in table else m[0], text)
    if not half:
        return text
    return re.sub(r"\b([a-z]\w+)\(", lambda m: f"{m[1]}{_HALF}(" if _has_half(m[1], device_type) else m[0], text)


@lru_cache(maxsize=None)
def _has_half(name: str, device_type: str) -> bool:
    """Whether a function of the table has another spelling for results of half types."""
    cheaper = target(device_type).half_primitives
    if name not in FUNCTIONS or not cheaper:
        return False
    called = re.findall(r"\b(\w+)\(", FUNCTIONS[name].body)
    return bool(FUNCTIONS[name].half) or any(c in cheaper or _has_half(c, device_type) for c in called)


def statement(step: Map | Load, device_type: str, col: str = "col") -> str:
    """``const float name = expression;``"""
    return f"const {value_type(step.dtype)} {step.name} = {spell(step, device_type, col=col)};"


def load_statement(load: Load, read_from: Mapping[str, str], row: str = "row", col: str = "col") -> str:
    """``const float name = tensor[index];``, of the element of that row and column."""
    return f"const {value_type(load.dtype)} {load.name} = {load_value(load, read_from, row, col)};"


def load_value(
    load: Load, read_from: Mapping[str, str], row: str = "row", col: str = "col", at: Callable[[str], str] = str
) -> str:
    """The value that is loaded; where the mask does not hold, nothing is read, and the value is the load's fill."""
    index, condition = load.access.index(row, col, at), load.access.condition(row, col)
    if not load.tensor and load.dtype == "bool":
        return condition
    value = loaded(f"{read_from[load.tensor]}[{index}]", load.dtype) if load.tensor else index
    return f"{condition} ? {value} : {load.fill}" if condition else value


def spell(step: Map | Load, device_type: str, at: Callable[[str], str] = str, col: str = "col") -> str:
    """The expression of a map over its operands, each spelled by ``at``; or of a load at values, in column ``col``."""
    if isinstance(step, Load):
        return load_value(step, {step.tensor: pointer(step.tensor)}, "row", col, at)
    return expression(step.expression.format(*map(at, step.args)), device_type, step.dtype)


def block(head: str, lines: Sequence[str]) -> list[str]:
    """``head { lines }``, a level deeper."""
    return [f"{head} {{", *(f"    {line}" for line in lines), "}"]


def pointer(tensor: str) -> str:
    """The name of the kernel's argument that points to a tensor that is read."""
    return f"{tensor}_in"


def helpers(text: str, device_type: str) -> Helpers:
    """The functions that ``text`` calls, directly or not."""
    folders = {kind: FOLDER / device_type / kind for kind in ("functions", "kernels")}
    files = {stem: body for folder in folders.values() for stem, body in _files(folder).items()}
    defines = {name: stem for folder in folders.values() for name, stem in _defined(folder).items()}
    tabled = _tabled(device_type)
    order: list[str] = []  # names of files and of functions of the table
    seen: set[str] = set()

    def visit(body: str) -> None:
        for name in re.findall(r"\b([a-z_][a-z0-9_]*)\s*(?:<(?:[^<>;]|<[^<>;]*>)*>)?\(", body):
            key = defines.get(name, name)
            if key in seen or (key not in tabled and key not in files):
                continue
            seen.add(key)
            visit(files[key] if key in files else tabled[key].split("{", 1)[1])
            order.append(key)

    visit(text)
    return Helpers(
        "\n".join(files[n] for n in order if n in _files(folders["functions"])),
        "\n".join(tabled[n] for n in order if n not in files),
        "\n".join(files[n] for n in order if n in _files(folders["kernels"])),
    )


@lru_cache(maxsize=None)
def _defined(folder: Path) -> Mapping[str, str]:
    """The functions that each file of the folder defines, with the file's stem."""
    pattern = re.compile(r"^\S.*?\b(\w+)\([^()]*\) \{$", re.MULTILINE)
    return {name: stem for stem, text in _files(folder).items() for name in pattern.findall(text)}


@lru_cache(maxsize=None)
def _files(folder: Path) -> Mapping[str, str]:
    """The helpers of a folder by their names; a template stands for one of each kind of reduction."""
    import jinja2

    found = {path.stem: path.read_text() for path in sorted(folder.glob("*")) if path.suffix in (".h", ".cuh")}
    for path in sorted(folder.glob("*_kind_*.j2")):
        template = jinja2.Template(
            path.read_text(), undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
        )
        for kind, combine in SPELLED.items():
            name = path.name.partition(".")[0].replace("kind", kind)
            parts = [{"name": part, "type": "Place" if type_ == PLACE else type_} for part, type_ in zip(COMBINES[kind], combine.types)]
            own = [part["name"] for part in parts]
            merge = combine.merged([f"{p}[r]" for p in own], [f"other_{p}" for p in own])
            found[name] = template.render(kind=kind, word=combine.word, parts=parts, placed=PLACE in combine.types, merge=merge)
    return found


@lru_cache(maxsize=None)
def _tabled(device_type: str) -> Mapping[str, str]:
    """The functions of the table as C by their names, and those for results of half types."""
    found = {name: function(f, device_type) for name, f in FUNCTIONS.items()}
    return found | {name + _HALF: function(f, device_type, HALF[0]) for name, f in FUNCTIONS.items() if _has_half(name, device_type)}


def function(f: Function, device_type: str, dtype: str = "float32") -> str:
    """A function of the table as C, for results of a dtype."""
    half = dtype in HALF and _has_half(f.name, device_type)
    parameters = ", ".join(f"float {p}" for p in f.parameters)
    body = expression(f.half or f.body if half else f.body, device_type, dtype)
    name, comment = (f.name + _HALF, f"{f.comment}, for results of half types") if half else (f.name, f.comment)
    return f"// {comment}\n{target(device_type).qualifier} float {name}({parameters}) {{\n    return {body};\n}}\n"


def describe(of: Pass, stores: tuple[str, ...]) -> str:
    """One line that says what a pass does."""
    parts = []
    if of.loads:
        parts.append("load " + ", ".join(x.name for x in of.loads))
    if of.held:
        parts.append("take up " + ", ".join(of.held))
    if of.keeps:
        parts.append("keep " + ", ".join(of.keeps))
    parts += [f"reduce to {', '.join(r.names)}" for r in of.reductions]
    if stores:
        parts.append("store " + ", ".join(stores))
    return "; ".join(parts)


def row_loads(plan_schedule: Schedule) -> list[str]:
    """Statements that load the values of the whole row."""
    read_from = {x.tensor: pointer(x.tensor) for x in plan_schedule.row_loads}
    return [load_statement(x, read_from, "row", "0") for x in plan_schedule.row_loads]


def store_statement(store: Store, target: str, row: str = "row", col: str = "col", value: str = "") -> str:
    """``tensor[index] = value;``"""
    return f"{target}[{store.access.index(row, col)}] = {store_value(store, value)};"


def store_value(store: Store, value: str = "") -> str:
    """The element that is stored: the value, or that of the store's argument."""
    return stored(value or store.arg, store.of, store.dtype)


def kept_values(program: Program, plan: Schedule) -> list[tuple[str, str]]:
    """The values that are kept between the passes, with their C types."""
    return [(name, value_type(program.dtypes[name])) for name in dict.fromkeys(k for s in plan.passes for k in s.keeps)]


def output_pointer(tensor: str) -> str:
    return f"{tensor}_out"


def one_pass(program: Program) -> str:
    """The kind of a reduction in one pass that two passes could take as well; empty where there is none."""
    return next((r.kind for r in program.reductions if r.kind in ("softmax", "moments")), "")
