"""Browsing: the database on loopback through Datasette, read-only, with prepared queries.

    SQLite       the file itself, opened with ``mode=ro``: shows commits of a running sweep, and blocks nothing
    PostgreSQL   a snapshot of one moment, as a temporary SQLite file

``queries.yaml`` has the queries and the descriptions of the tables, in the format of Datasette's metadata.
"""
