"""The command `ngcdl`: the one place where errors are shown and the exit code is set."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys

# A full disk, quota or file size limit. If a write larger than the buffer fails with one of these, nothing stays in the
# buffer: flushing stdout again would not show that the result is incomplete.
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run argv's command. Exit with 0, the container's code, 125 (ngcdl or its engine), 2 (usage) or 128+signal."""
    _keep_standard_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until raise_on_signals: a traceback of imports helps nobody
    if sys.argv[1:] == ["--version"] and sys.stdout:
        # Answered before any import: shells and scripts ask often.
        from ngcdl import __version__

        with contextlib.suppress(OSError):
            print(f"ngcdl {__version__}", flush=True)  # noqa: T201
            raise SystemExit(0)
    # Start-up creates a hundred thousand objects and hardly any garbage: collections would take a tenth of its time.
    gc.set_threshold(100_000)
    came, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)  # it gets the number of each signal that Python handles
    code = _guarded(sys.argv[1:])
    _ignore_signals()
    if gpu := sys.modules.get("ngcdl.telemetry.gpu"):
        gpu.end_begun()
    for stream in (sys.stdout, sys.stderr):
        _writable(stream)
    if code == 128 + signal.SIGINT and os.isatty(2) and signal.SIGINT in _read(came):
        # Ctrl-C: $? is 130 either way, but only if a program dies of the signal does the shell end the loop in which it
        # was typed, and put its prompt on a new line. https://www.cons.org/cracauer/sigint.html
        # A command may have ended with 130 by itself.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    # Everything is closed and flushed. Tearing down a thousand modules one by one would cost every user 40 ms.
    os._exit(code)


def _ignore_signals() -> None:
    from ngcdl.running.signals import heard

    for number in heard():
        signal.signal(number, signal.SIG_IGN)


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""


def _guarded(argv: list[str]) -> int:
    import warnings

    from ngcdl import console
    from ngcdl.errors import NgcdlError, NoMoreThreads, TooManyFiles
    from ngcdl.running.signals import Interrupted, raise_on_signals, signal_of

    raise_on_signals()
    # Modules below the console report as warnings what is no error; here these are shown as messages.
    # PYTHONWARNINGS=error must not turn ngcdl's own warnings into exceptions.
    warnings.filterwarnings("default", category=UserWarning, module=r"ngcdl\.")
    warnings.showwarning = lambda message, *_, **__: console.say(str(message))
    try:
        from ngcdl import cli

        code = cli.main(argv)
        if sys.stdout:
            sys.stdout.flush()
        return code
    except NgcdlError as error:
        console.show_error(error)
        return error.exit_code
    except (KeyboardInterrupt, Interrupted) as error:
        console.say("interrupted")
        return 128 + signal_of(error)
    except BrokenPipeError:
        # Our reader has gone (`| head`). Python would complain again when it flushes at exit.
        _drop_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None and (error.errno in _UNWRITTEN or not _writable(sys.stdout)):
            console.say(f"the result can't be written: {error.strerror}")
            _drop_stdout()
            return 125
        if error.errno != errno.EMFILE:
            return _unforeseen(error)
        console.show_error(TooManyFiles())
        return TooManyFiles.exit_code
    except RuntimeError as error:
        # Python 3.11 puts this around what is raised while a class is made, as most imports do:
        # https://github.com/python/cpython/issues/77757
        if isinstance(error.__cause__, KeyboardInterrupt | Interrupted):
            console.say("interrupted")
            return 128 + signal_of(error.__cause__)
        if str(error) != "can't start new thread":  # Python has no class of its own for that
            return _unforeseen(error)
        console.show_error(NoMoreThreads())
        return NoMoreThreads.exit_code
    except Exception as error:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> int:
    """Show a bug's traceback. Python's own exit code would be 1, which for `check` means that the image runs."""
    sys.excepthook(type(error), error, error.__traceback__)
    return 125


def _keep_standard_streams() -> None:
    """Open /dev/null for each closed standard stream. Otherwise a file that ngcdl opens would get the descriptor 0, 1
    or 2, and child processes would inherit it as their standard stream."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _drop_stdout() -> None:
    if sys.stdout:
        from ngcdl import console

        console.discard(sys.stdout.fileno())


def _writable(stream: object) -> bool:
    try:
        stream.flush()  # type: ignore[attr-defined]  # stdout is a stream
    except (OSError, ValueError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    main()
