"""The schedule ``recurrence`` for CUDA."""
