"""Processes, shared memory, locks, the sandbox: what a judgement runs on."""
