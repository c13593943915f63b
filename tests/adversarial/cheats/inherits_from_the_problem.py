"""Imports the problem's `Model` by its name, as if both lay in one namespace.

defence: separate module
default: yes
problem: mlp
expect: load_error
"""

from __main__ import Model


class ModelNew(Model):
    """The reference itself."""
