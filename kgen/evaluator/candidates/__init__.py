"""The judging of one candidate: its build, its process, and the checks that its origin asks for."""
