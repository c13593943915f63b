"""``kgen`` with finals of one second, for tests that do not look at what finals say: ``python brief.py COMMAND ...``.

Processes that it starts run this file, too, so that their finals are as short.
"""

from kgen.tuning import sweep

sweep.FINAL_SECONDS["cpu"] = 1.0

if __name__ == "__main__":
    from kgen.cli import main

    main()
