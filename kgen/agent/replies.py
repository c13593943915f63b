"""Replies of language models, read: the proposals in their blocks of code, or what is wrong with them."""

from __future__ import annotations

import ast
import itertools
import json
import re
from typing import Any

from kgen.agent.proposer import FREE, KGEN, TEMPLATE, Proposal
from kgen.compiler.fusion.chosen import Cut
from kgen.problems import syntax

MOST_PROPOSALS = 8  #: typed ones of one reply, and combinations of a template
_OF_PLANS, _OF_CUTS = (
    {"language", "plan", "params", "why"},
    {"language", "kernels", "schedules", "rewrites", "expressions", "params", "why"},
)  #: fields
_BLOCK = re.compile(r"^[ \t]*```[ \t]*([\w+.-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPEN = re.compile(r"^[ \t]*```", re.MULTILINE)
_TAIL, _PERIOD = 4_000, 400  #: characters; a reply whose end repeats so few for so long goes on for ever


def read(reply: str, *, cut: bool = False) -> tuple[Proposal, ...]:
    """The proposals of a reply: typed choices, and the last file with a class ModelNew; one with its fault where there
    is none.

    ``cut`` says that the server ended the reply at its limit of tokens.
    """
    reply = re.sub(r"<think>.*?(</think>|\Z)", "", reply, flags=re.DOTALL)
    blocks = [(language.lower(), text) for language, text in _BLOCK.findall(reply)]
    objects = [text for language, text in blocks if language == "json" or text.lstrip()[:2] in ('{"', "[{")]
    files = [text for _, text in blocks if text not in objects and _classes(text)]
    spaces = [space for text in objects if (space := _space(text)) is not None]
    typed = [p for text in objects if _space(text) is None for p in _typed(text)]
    if files and spaces:
        written = _template(files[-1], spaces[-1])
    else:
        written = (
            [_free(files[-1])]
            if files
            else [Proposal(TEMPLATE, fault="a space of parameters needs a template with a class ModelNew")]
            if spaces
            else []
        )
    found = [*typed[:MOST_PROPOSALS], *written]
    if found:
        return tuple(found)
    is_open = len(_OPEN.findall(reply)) % 2 == 1
    if cut or is_open:
        return (Proposal(FREE, fault="the reply was cut off before its code ended: answer with less text around it"),)
    if _classes(reply) and not blocks:
        return (_free(reply),)
    if blocks:
        return (Proposal(FREE, fault="no block of code has a class ModelNew, and none is a typed proposal"),)
    return (Proposal(FREE, fault="the reply has no block of code"),)


def loops(text: str) -> bool:
    """Whether a reply does nothing but repeat itself at its end."""
    tail = text[-_TAIL:]
    return len(tail) == _TAIL and any(tail[n:] == tail[:-n] for n in range(1, _PERIOD + 1))


def _typed(text: str) -> list[Proposal]:
    try:
        value = json.loads(text)
    except ValueError as error:
        return [Proposal(KGEN, fault=f"a typed proposal is no JSON: {error}")]
    return [_one(item) for item in (value if isinstance(value, list) else [value])]


def _one(value: Any) -> Proposal:
    if not isinstance(value, dict) or ("plan" in value) == ("kernels" in value):
        return Proposal(
            KGEN,
            fault="a typed proposal is an object with plan and params, or with kernels, schedules, rewrites and params",
        )
    if unknown := sorted(value.keys() - (_OF_PLANS if "plan" in value else _OF_CUTS)):
        return Proposal(
            KGEN,
            fault=(
                f"{unknown[0][:60]!r} is no field of a typed proposal; there are: plan, or kernels, schedules, "
                "rewrites, expressions; params, why"
            ),
        )
    plan, params = value.get("plan", ""), value.get("params", {})
    if "kernels" in value and not all(
        map(_are_names, (*_listed(value["kernels"]), value.get("schedules", []), value.get("rewrites", [])))
    ):
        return Proposal(
            KGEN,
            fault=(
                "kernels is a list with a list of operators for each kernel; schedules and rewrites are lists of names"
            ),
        )
    forms = value.get("expressions", {})
    if not isinstance(forms, dict) or not all(isinstance(text, str) for text in forms.values()):
        return Proposal(KGEN, fault="expressions is an object with an expression for each operator")
    if isinstance(plan, bool) or not isinstance(plan, (int, str)):
        return Proposal(KGEN, fault="plan is the name of a plan, or its number")
    if not isinstance(params, dict) or not all(isinstance(x, (bool, int, float, str)) for x in params.values()):
        return Proposal(KGEN, fault="params is an object of numbers, texts and truth values")
    if "plan" in value:
        return Proposal(KGEN, plan=plan, params=params)
    cut = Cut(
        tuple(map(tuple, value["kernels"])),
        tuple(value.get("schedules", ())),
        tuple(value.get("rewrites", ())),
        tuple(forms.items()),
    )
    return Proposal(KGEN, params=params, cut=cut)


def _listed(value: Any) -> list[Any]:
    """The lists of a list, and what is none of names where it is no such list."""
    return value if isinstance(value, list) and value and all(value) else [None]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _space(text: str) -> Any:
    """The value of ``space`` in a JSON object; ``None`` where it has none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value.get("space") if isinstance(value, dict) and "plan" not in value and "kernels" not in value else None


def _template(text: str, space: Any) -> list[Proposal]:
    """The proposals of a template: the first combinations of its space."""
    if (
        not isinstance(space, dict)
        or not space
        or not all(
            name.isidentifier()
            and isinstance(values, list)
            and values
            and all(isinstance(x, (bool, int, float, str)) for x in values)
            for name, values in space.items()
        )
    ):
        return [
            Proposal(
                TEMPLATE,
                text,
                fault="space is an object with a list of numbers, texts or truth values for each parameter",
            )
        ]
    combinations = itertools.islice(itertools.product(*space.values()), MOST_PROPOSALS)
    return [Proposal(TEMPLATE, text, params=dict(zip(space, values))) for values in combinations]


def _free(text: str) -> Proposal:
    if _classes(text) > 1:
        return Proposal(FREE, text, fault=f"the file has {_classes(text)} classes ModelNew: give one")
    return Proposal(FREE, text)


def _classes(text: str) -> int:
    """How many classes ModelNew a text defines; text that Python cannot parse counts by its lines."""
    try:
        return sum(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in syntax.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return len(re.findall(r"^class ModelNew\b", text, re.MULTILINE))
