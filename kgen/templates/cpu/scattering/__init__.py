"""The schedule ``scattering`` for the CPU."""
