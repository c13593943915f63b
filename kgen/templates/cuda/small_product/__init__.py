"""The schedule ``small_product`` for CUDA."""
