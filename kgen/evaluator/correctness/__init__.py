"""Correctness: expected values, input distributions, tolerances."""
