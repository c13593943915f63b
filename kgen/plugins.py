"""Plug-ins: modules from outside of kgen that add operators, rewrites, schedules and devices, as kgen's own files do.

    KGEN_PLUGINS=my_kernels kgen sweep problem.py

A module is named in the variable ``KGEN_PLUGINS``, several with ``:`` between them, or is an entry point of the group
``kgen.plugins`` of an installed package. It is imported before the tables are first used, and adds its entries by
:func:`kgen.compiler.operators.table.add`, :func:`kgen.compiler.rewrites.table.add` and
:func:`kgen.codegen.registry.add`. A kind of device is added by :func:`kgen.devices.runtime.add` and
:func:`kgen.codegen.target.add`.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from importlib import metadata

from kgen.errors import PluginError

VARIABLE, GROUP = "KGEN_PLUGINS", "kgen.plugins"


@lru_cache(maxsize=1)
def load() -> None:
    """Import every plug-in, once in a process. Raises :class:`PluginError` for one that cannot be imported."""
    named = [name for name in os.environ.get(VARIABLE, "").split(":") if name]
    for name in [*named, *(entry.value for entry in metadata.entry_points(group=GROUP))]:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise PluginError(
                f"the plug-in {name} cannot be imported: {type(error).__name__}: {error}; see {VARIABLE}"
            ) from error
