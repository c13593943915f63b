"""The schedule ``scan`` for the CPU."""
