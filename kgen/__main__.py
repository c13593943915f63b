"""The start of the program: ``kgen`` and ``python -m kgen``. Ctrl-C ends it in one line while modules load, too."""

import signal

from kgen.interrupted import leave


def run() -> None:
    """Load the command line, and run one command."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # in the background, a shell ignores it
    if heard:
        signal.signal(signal.SIGINT, leave)
    from kgen.cli import main

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="kgen")


if __name__ == "__main__":
    run()
