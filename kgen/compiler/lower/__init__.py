"""Lowering: the nodes of a kernel as a loop program."""
