"""The schedule ``pointwise`` for the CPU."""
