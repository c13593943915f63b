"""The schedule ``strip_window`` for the CPU."""
