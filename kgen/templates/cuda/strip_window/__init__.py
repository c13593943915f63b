"""The schedule ``strip_window`` for CUDA."""
