"""What people are shown: tables and progress (rich), and the same as JSON.

    plain      every answer as JSON values
    tables     listings
    progress   a sweep as it runs
"""
