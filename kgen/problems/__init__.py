"""Problems: what is to be made faster, read from files."""
