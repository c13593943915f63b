"""The table of operators, one entry for each, and how each entry is lowered."""
