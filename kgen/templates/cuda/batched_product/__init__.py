"""The schedule ``transpose`` for CUDA."""
