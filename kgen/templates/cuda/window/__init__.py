"""The schedule ``window`` for CUDA."""
