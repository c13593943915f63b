"""The compiler: a problem's forward as a graph, rewrites of it, and the ways to cut it into kernels."""
