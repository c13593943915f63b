"""The schedule ``tiled_attention`` for the CPU."""
