"""The schedule ``outer_reduction`` for the CPU."""
