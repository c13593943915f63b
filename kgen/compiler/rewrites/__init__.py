"""Rewrites: algebraic changes of a graph that keep its value."""
