"""Loop programs: what one kernel computes, as data."""
