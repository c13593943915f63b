"""Fusion: the ways to cut a graph into kernels and library calls."""
