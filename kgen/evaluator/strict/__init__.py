"""Strict checks, for files that kgen did not render."""
