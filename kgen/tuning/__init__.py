"""Tuning: the candidates of a problem, their search, and what becomes of the best."""
