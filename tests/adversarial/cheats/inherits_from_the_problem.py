"""Imports the problem's `Model` by its name, as if both lay in one namespace.

attacks: inheriting or patching `Model`
problem: mlp
expect: load_error
"""

from __main__ import Model


class ModelNew(Model):
    """The reference itself."""
