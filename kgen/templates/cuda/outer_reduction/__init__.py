"""The schedule ``outer_reduction`` for CUDA."""
