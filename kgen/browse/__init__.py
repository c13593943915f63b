"""Browsing: the database served on loopback through Datasette, read-only, with queries to begin with.

    SQLite       the file itself, opened with ``mode=ro``: what a running sweep commits is seen, and nothing is blocked
    PostgreSQL   a snapshot of one moment, as a temporary SQLite file

``queries.yaml`` has the queries and the descriptions of the tables, in the format of Datasette's metadata.
"""
