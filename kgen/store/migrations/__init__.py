"""Schema changes in order, as Alembic revisions. :mod:`kgen.store.schema` runs them; only it imports Alembic."""
