"""The evaluator: builds, validates and times candidates in processes of their own."""
