"""The templates of each kind of device, found by looking through its folders: a new schedule is a new folder."""

from __future__ import annotations

import importlib.util
import pkgutil
from functools import lru_cache
from typing import Mapping

from kgen import plugins
from kgen.candidate import Params, Plan
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.template import Task, Template
from kgen.protocol import Accuracy

_ADDED: list[Template] = []  # by plug-ins


@lru_cache(maxsize=None)
def templates(device_type: str) -> Mapping[str, Template]:
    """The templates for one kind of device by their names, found by looking through the folders of its package."""
    plugins.load()
    package = f"kgen.templates.{device_type}"
    own = importlib.util.find_spec(package)  # a kind from outside has none
    folders = (
        sorted(module.name for module in pkgutil.iter_modules(own.submodule_search_locations) if module.ispkg)
        if own
        else ()
    )
    found = (importlib.import_module(f"{package}.{folder}.template").TEMPLATE for folder in folders)
    added = (template for template in _ADDED if template.device_type == device_type)
    return {template.name: template for template in (*added, *found)}


def add(template: Template) -> None:
    """Take a further schedule among those of its kind of device; it is asked before kgen's own what it takes."""
    _ADDED.append(template)


def template_for(task: Task) -> Template:
    """The template that renders a task."""
    return templates(task.hardware.device_type)[task.kernel.schedule]


def arithmetic(device_type: str, plan: Plan, params: Params, accuracy: Accuracy) -> Arithmetic:
    """How a candidate's contractions are multiplied, by its plan and its parameters.

    That of its own kernels where one has a contraction, else the library's for the accuracy class. Of several, the one
    with the most products.
    """
    known = templates(device_type)
    kernels = [(known.get(step.schedule), step.own(params)) for step in plan.steps]
    found = [a for template, own in kernels if template for a in [template.arithmetic(own)] if a]
    return max(found, key=lambda a: a.products, default=Arithmetic.of_library(accuracy))
