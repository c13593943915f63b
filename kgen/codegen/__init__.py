"""Code generation: kernels and the module around them as the text of a ``ModelNew``."""
