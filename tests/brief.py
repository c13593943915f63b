"""``kgen`` with short finals, and screenings on the CPU as short as on a GPU: ``python brief.py COMMAND ...``.

``FINAL_SECONDS`` in the environment is their duration, one second without it: tests that look at what finals say ask for more.
Processes that it starts run this file, too, so that their finals are as short. Where ``FORKED_SERVERS`` has what
:func:`forking.servers_forked` needs, their evaluators' fork servers are forked.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

from kgen.devices.kinds import KINDS

KINDS["cpu"] = replace(
    KINDS["cpu"], final_seconds=float(os.environ.get("FINAL_SECONDS", 1.0)), screen_calls=KINDS["cuda"].screen_calls
)

if os.environ.get("FORKED_SERVERS"):
    from forking import Forking, fork_servers

    folder, owner, environment = json.loads(os.environ["FORKED_SERVERS"])
    fork_servers(Forking(Path(folder), owner, environment))

if __name__ == "__main__":
    from kgen.cli import main

    main()
