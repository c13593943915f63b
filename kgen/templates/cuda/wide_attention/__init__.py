"""The schedule ``wide_attention`` for CUDA."""
