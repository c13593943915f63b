"""The start of the program: ``kgen`` and ``python -m kgen``. Ctrl-C ends it in one line while modules load, too.

The command line hears Ctrl-C in its own way from where it catches it.
"""

import signal

from kgen.errors import leave


def run() -> None:
    """Load the command line, and run one command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background, a shell ignores it
        signal.signal(signal.SIGINT, leave)
    from kgen.cli import main

    main(prog_name="kgen")


if __name__ == "__main__":
    run()
