"""The group of all commands. It parses, runs one command, and turns an error into one line and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from contextlib import contextmanager
from types import FrameType
from typing import Any, Iterator, Sequence

import click

from kgen.errors import INTERRUPTED, InputError, KgenError, leave
from kgen.protocol import __version__

NO_SUCCESS = 1  #: exit code: the work ran, and the answer is no
#: Ends of files in whose functions an exception may be lost, or end in an abort of C++.
_LOSING = ("<frozen importlib._bootstrap>", "torch/export/_trace.py")
_AGAIN_SECONDS = 0.1  #: delay before a lost interrupt is sent again; on a busy machine 0.01 comes before the hook ends


class Commands(click.Group):
    """The group of all commands. A command returns its exit code, or ``None`` for 0; an error becomes one line."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        sys.exit(self._exit_code(args, **extra))

    def _exit_code(self, args: Sequence[str] | None, **extra: Any) -> int:
        _open_streams()
        # torch warns at its import where NumPy is not installed; kgen does not need it.
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")
        try:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
            if signal.getsignal(signal.SIGINT) is leave:  # since the program's start
                signal.signal(signal.SIGINT, signal.default_int_handler)
            _check_names(sys.argv[1:] if args is None else args)
            with _interrupts_heard():
                code = super().main(args, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except KgenError as error:
            return say(str(error), error.exit_code)
        except click.ClickException as error:
            return say(_usage(error), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            return say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            # The reader is gone (`| head`), which is no error. Python must not complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            from kgen.paths import home

            return say(f"{error.filename or home()}: {error.strerror or error}", 2)
        except Exception:
            traceback.print_exc()
            return say("this is a bug in kgen: please report it, with the lines above", 70)


def _open_streams() -> None:
    """Give closed standard streams a file that reads and keeps nothing: no other file must get their numbers.

    Characters that the terminal's encoding lacks are printed as escapes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_names(arguments: Sequence[str]) -> None:
    """Raise :class:`InputError` for a name that is not UTF-8. The database and JSON could not hold it."""
    variables = ((f"{name} ", os.environ.get(name, "")) for name in ("KGEN_HOME", "KGEN_DB"))
    with contextlib.suppress(FileNotFoundError):  # the folder is gone
        variables = (*variables, ("the folder ", os.getcwd()))
    for what, text in (*(("", argument) for argument in arguments), *variables):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{what}{text!r}: is not UTF-8: name it in UTF-8") from None


@contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Send an interrupt again that Python ignored: it ignores every exception in a finalizer. End at once where torch
    would lose an exception, or abort."""
    before = sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _loses_exceptions(frame):
            leave(number, frame)
        raise KeyboardInterrupt

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return before(ignored)
        # Later, because Python would ignore it here again.
        again = signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
        threading.Timer(_AGAIN_SECONDS, *again).start()

    sys.unraisablehook = hook
    heard = [number for number, handler in handlers.items() if handler is signal.default_int_handler]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in heard:
            signal.signal(number, handlers[number])


def _loses_exceptions(frame: FrameType | None) -> bool:
    """Whether ``frame`` is part of an import or an export of torch. All that was judged before is in the database."""
    while frame is not None and not frame.f_code.co_filename.endswith(_LOSING):
        frame = frame.f_back
    return frame is not None


def say(line: str, code: int) -> int:
    """Print one line to stderr; returns ``code``, the exit code that goes with it."""
    tell(line)
    return code


def tell(line: str) -> None:
    """Print one line to stderr."""
    click.echo(f"kgen: {line}", err=True)


def _usage(error: click.ClickException) -> str:
    """A usage error in one line, with the command for help."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path} --help`)" if context else message


@click.group(
    cls=Commands,
    invoke_without_command=True,  # a bare `kgen` prints the help as an answer, not as an error
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kgen")
@click.pass_context
def main(context: click.Context) -> None:
    """Turn a PyTorch module into a faster one that is proven right.

    kgen fuses a module's operators, renders kernels, checks each against float64, times it beside PyTorch, and keeps
    every measurement. `kgen sweep PROBLEM` searches, `kgen best PROBLEM -o FILE` writes the winner to a file,
    `kgen eval PROBLEM FILE` judges a file that somebody else wrote.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
