"""The schedule ``strip_reduction`` for the CPU."""
