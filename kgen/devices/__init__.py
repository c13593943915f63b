"""Devices: what the hardware can do, what is on this machine, and how fast a kernel could be."""
