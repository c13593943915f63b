"""The schedule ``contraction`` for the CPU."""
