"""The schedule ``scattering`` for CUDA."""
