"""The command `ngcdl`: the one place where errors are shown and the exit code is given."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys

# What a write of more than a buffer fails with: nothing is left of it then that a flush would fail with once more.
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run what argv says, and exit: 0, the container's code, 125 for ngcdl or its engine, 2 for usage, 128+signal."""
    _keep_standard_streams()
    if sys.argv[1:] == ["--version"] and sys.stdout:
        # Answered before anything is imported: shells and scripts ask this often.
        from ngcdl import __version__

        with contextlib.suppress(OSError):
            print(f"ngcdl {__version__}", flush=True)  # noqa: T201
            raise SystemExit(0)
    # A start makes a hundred thousand objects and hardly any garbage: looking for it would cost a tenth of the start.
    gc.set_threshold(100_000)
    code = _guarded(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        _writable(stream)
    # All is closed and flushed. Taking down a thousand modules one by one would cost 40 ms that everybody waits for.
    os._exit(code)


def _guarded(argv: list[str]) -> int:
    from ngcdl import console
    from ngcdl.errors import NgcdlError
    from ngcdl.interrupt import Interrupted, raise_on_signals

    raise_on_signals()
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
        number = error.number if isinstance(error, Interrupted) else signal.SIGINT
        console.say("interrupted")
        return 128 + number
    except BrokenPipeError:
        # Whoever read us has gone (`| head`). Python would complain once more when it flushes at exit.
        _drop_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None and (error.errno in _UNWRITTEN or not _writable(sys.stdout)):
            console.say(f"the result can't be written: {error.strerror}")
            _drop_stdout()
            return 125
        raise


def _keep_standard_streams() -> None:
    """Put /dev/null where a standard stream was closed: no file of ours may get its number, and no child inherit it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _drop_stdout() -> None:
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _writable(stream: object) -> bool:
    try:
        stream.flush()  # type: ignore[attr-defined]  # a stream is what stdout is
    except (OSError, ValueError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    main()
