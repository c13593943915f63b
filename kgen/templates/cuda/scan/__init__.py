"""The schedule ``scan`` for CUDA."""
