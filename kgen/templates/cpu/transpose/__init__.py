"""The schedule ``transpose`` for the CPU."""
