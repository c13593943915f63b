"""The schedule ``tiled_attention`` for CUDA."""
