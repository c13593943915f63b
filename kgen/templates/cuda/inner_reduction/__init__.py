"""The schedule ``inner_reduction`` for CUDA."""
