"""The store: everything that was ever measured, in one database.

    Store      opens and writes (store.py)
    queries    reads, plain dataclasses out (queries.py)
"""

from kgen.store.rows import StoredEvaluation
from kgen.store.store import Store

__all__ = ["Store", "StoredEvaluation"]
