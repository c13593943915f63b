"""The schedule ``implicit_gemm`` for CUDA."""
