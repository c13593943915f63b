"""The output of commands: tables and progress (rich), and the same as JSON.

plain      each answer as JSON values
tables     listings
progress   a sweep as it runs
"""
