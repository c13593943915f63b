"""kgen: fuse a PyTorch module, render the kernels, prove them right, measure them, keep everything."""

__version__ = "0.1.0"
