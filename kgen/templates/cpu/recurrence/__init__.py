"""The schedule ``recurrence`` for the CPU."""
