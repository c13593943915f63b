"""The schedule ``window`` for the CPU."""
