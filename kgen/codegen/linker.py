"""The linker: the helper functions that kernels call, directly or not, by the symbols that kernels and helpers say they
need.

Kernels are not searched for calls: each call has a mark from where it is written (:mod:`kgen.codegen.symbols`).
The files of helpers are marked once in a process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Iterable, Iterator, Mapping

from kgen.codegen.c_printer import tabled
from kgen.codegen.combines import PLACE, SPELLED
from kgen.codegen.environment import environment
from kgen.codegen.symbols import linked, written
from kgen.codegen.target import Helpers, target
from kgen.codegen.template import FOLDER
from kgen.compiler.operators.reductions import COMBINES

_DEFINITION = re.compile(r"^\S.*?\b(\w+)\([^()]*\) \{$", re.MULTILINE)


@dataclass(frozen=True)
class _Helper:
    """A helper of a ``kind``, and its symbols: functions of the table, or files of the device's folder of that name."""

    kind: str
    text: str
    symbols: tuple[str, ...]


def helpers(symbols: Iterable[str], device_type: str) -> Helpers:
    """The functions among the symbols, and those that they call, directly or not."""
    known, defines = _known(device_type)
    order: dict[str, None] = {}
    seen: set[str] = set()

    def visit(names: Iterable[str]) -> None:
        for name in names:
            key = defines.get(name, name)
            if key in known and key not in seen:
                seen.add(key)
                visit(known[key].symbols)
                order[key] = None

    visit(symbols)
    math, table, kernels = (
        [known[key] for key in order if known[key].kind == kind] for kind in ("functions", "table", "kernels")
    )
    texts = ("\n".join(helper.text for helper in of) for of in (math, table, kernels))
    return Helpers(*texts, frozenset(symbols).union(*(helper.symbols for helper in kernels)))


@lru_cache(maxsize=None)
def _known(device_type: str) -> tuple[Mapping[str, _Helper], Mapping[str, str]]:
    """The helpers for a kind of device by their names, and for each function the name of the helper that defines it."""
    known = {name: _Helper("table", *linked(text)) for name, text in tabled(device_type).items()}
    files = [(kind, name, text) for kind in ("functions", "kernels") for name, text in _files(device_type, kind)]
    known |= {name: _Helper(kind, *linked(written(text))) for kind, name, text in files}
    return known, {function: name for _, name, text in files for function in _DEFINITION.findall(text)}


def _files(device_type: str, kind: str) -> Iterator[tuple[str, str]]:
    """The helpers of a folder by their names. A template stands for one helper or several."""
    of = target(device_type)
    yield from ((p.stem, p.read_text()) for p in sorted((of.folder / kind).glob("*")) if p.suffix in (".h", ".cuh"))
    for path in sorted((of.folder / kind).glob("*.j2")):
        template = environment(FOLDER).from_string(path.read_text())
        stem = path.name.partition(".")[0]
        contexts = _reductions(stem) if "_kind_" in stem else of.variants.get(stem, {stem: {}})
        yield from ((name, template.render(name=name, **context)) for name, context in contexts.items())


def _reductions(stem: str) -> dict[str, dict[str, Any]]:
    """The contexts of a template that stands for one helper of each kind of reduction, by the helpers' names."""
    contexts = {}
    for kind, combine in SPELLED.items():
        parts = [
            {"name": part, "type": "Place" if type_ == PLACE else type_, "between": "Place" if wide == PLACE else wide}
            for part, type_, wide in zip(COMBINES[kind], combine.types, combine.between or combine.types)
        ]
        own = [part["name"] for part in parts]
        others, prefix = [f"other_{p}" for p in own], "wide_" if combine.between else ""
        merge, merge_between = (combine.merged([f"{before}{p}[r]" for p in own], others) for before in ("", prefix))
        contexts[stem.replace("kind", kind)] = {
            "kind": kind,
            "word": combine.word,
            "parts": parts,
            "placed": PLACE in combine.types,
            "wide": bool(combine.between),
            "merge": merge,
            "merge_between": merge_between,
        }
    return contexts
