"""The graph: the forward pass as operators with shapes and dtypes."""
