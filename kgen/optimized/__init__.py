"""Optimised modules: winners of sweeps behind a user's own module, and the module itself wherever a guard does not
hold."""
