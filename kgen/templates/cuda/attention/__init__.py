"""Attention in CUDA."""
