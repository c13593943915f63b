"""Tuning: the candidates of a problem, the search over them, and the export of the best."""
