"""The store: everything that was ever measured, in one database.

Database    opens and writes (database.py)
queries     reads, plain dataclasses out (queries.py)
"""

from kgen.store.database import Database
from kgen.store.rows import StoredEvaluation

__all__ = ["Database", "StoredEvaluation"]
