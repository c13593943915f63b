"""Searches the disk for the problem, and inherits from its `Model`: nothing but the library, and so labelled.

defence: static findings
default: yes
problem: mlp
expect: ok
label: runs text as code
"""

import sys
from pathlib import Path

_namespace = {"__name__": "found"}
_path = next(path for folder in map(Path, sys.path) for path in folder.glob("tests/*/problems/mlp.py"))
exec(_path.read_text(), _namespace)


class ModelNew(_namespace["Model"]):
    """The problem's own module."""
