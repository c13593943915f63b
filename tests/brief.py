"""``kgen`` with short finals: ``python brief.py COMMAND ...``.

``FINAL_SECONDS`` in the environment is their duration, one second without it: tests that look at what finals say ask for more.
Processes that it starts run this file, too, so that their finals are as short.
"""

import os
from dataclasses import replace

from kgen.devices.kinds import KINDS

KINDS["cpu"] = replace(KINDS["cpu"], final_seconds=float(os.environ.get("FINAL_SECONDS", 1.0)))

if __name__ == "__main__":
    from kgen.cli import main

    main()
