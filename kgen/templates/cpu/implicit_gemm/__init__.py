"""The schedule ``implicit_gemm`` for the CPU."""
