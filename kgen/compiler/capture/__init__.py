"""Capture: a problem's forward as a graph, by way of torch.export."""
