"""The meaning of parameters, for readers who do not know the templates."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Mapping

from kgen.codegen.registry import templates
from kgen.devices.kinds import KINDS


@lru_cache(maxsize=1)
def _axes() -> Mapping[str, str]:
    """The meaning of the parameters of every template, by the names of their axes: what most of them state."""
    every = (template for device_type in KINDS for template in templates(device_type).values())
    stated = Counter((axis, meaning) for template in every for axis, meaning in template.parameters.items())
    return {axis: meaning for (axis, meaning), _ in reversed(stated.most_common())}


def meaning(parameter: str) -> str:
    """``k0.block`` as ``kernel 1: threads in a block``; an unknown parameter keeps its name."""
    kernel, _, axis = parameter.rpartition(".")
    number = kernel.rpartition("k")[2]
    where = f"kernel {int(number) + 1}" if number.isdigit() else kernel
    return ": ".join(part for part in (where, _axes().get(axis, axis)) if part)
