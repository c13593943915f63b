"""The schedule ``inner_reduction`` for the CPU."""
