"""Strict checks, for candidates that kgen did not render."""
