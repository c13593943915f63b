"""The schedule ``contraction`` for CUDA."""
