"""The schedule ``row_scattering`` for CUDA."""
