"""Convolutions as implicit matrix products on tensor cores."""
