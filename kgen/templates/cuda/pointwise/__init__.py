"""The schedule ``pointwise`` for CUDA."""
