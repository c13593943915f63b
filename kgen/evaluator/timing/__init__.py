"""Timing: the calls of a session, and the conditions that they were made under."""
