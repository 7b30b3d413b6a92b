"""Shows a run while it goes on: progress as bars on a terminal, as plain lines elsewhere, and the run's own output."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TextIO

from ngcdl import console, figures
from ngcdl.command_lines import typable
from ngcdl.engines.values import WAITING, Chunk, PullEvent
from ngcdl.terminal_text import plain

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 5.0
STEP_SECONDS = 0.1  # least interval between two step lines on a terminal; log.txt has all of them
# These patterns find control strings (title, clipboard, device), which are not passed on to a terminal; colours and
# cursor movements are. A terminal executes control bytes between ESC and the byte after it, and any ESC ends a control
# string. To many terminals, C1 controls such as U+0090 (C2 90 in UTF-8) mean ESC and a letter (ECMA-48, 5.3). A byte
# C2 alone is no character.
_SILENT = b"\x00\x05\x0e\x0f"
_STRAY = re.compile(rb"\xc2+(?=[\x1b\xc2])")
_EIGHT_BIT = re.compile(rb"\xc2([\x90\x98\x9c-\x9f])")
_APART = re.compile(rb"\x1b[\x00-\x1f\x7f]+")
_UNWANTED = re.compile(rb"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|(?=\x1b[^\\]))")
_UNFINISHED = re.compile(rb"(?=[\x1b\xc2])(?:\x1b(?:[\]PX^_][^\x07\x1b]*\x1b?)?)?\xc2?\Z")
_CURSOR_AT_END = re.compile(rb"(?:\x1b\[[\d;?]*[A-Za-z])+\Z")  # colours and cursor movements
_LONGEST = 4096  # bytes of an unfinished control string, or of a training's line, to hold back; more count as text
# What TensorFlow prints before a training at any log level. It stays in log.txt.
CHATTER = re.compile(rb"WARNING: All log messages before absl::InitializeLog|I0000 |\d{4}-\d\d-\d\d [\d:.]+: I ")
# As containers/trainer/loop.py writes it: 2018-02-16 18:21:30.123456: step 230, loss = 3.72 (592.6 examples/sec; ...
STEP = re.compile(rb"(?P<when>\d{4}-\d\d-\d\d [\d:.]+: )step \d+(?:, loss = \S+)? \(\S+ examples/sec; ")
_DONE = ("Pull complete", "Already exists")
# The least columns of a terminal on which a row of a pull has a bar, a speed, and says what goes on: a figure that is
# cut is another one.
_WITH_BAR, _WITH_SPEED, _WITH_STATUS = 75, 60, 50


class Screen:
    """A Show. `output_to_stderr`: the run's stdout is shown on stderr, because stdout is for a JSON document.
    `is_training`: chatter on stderr is left out, and on a terminal also step lines that come too fast to read."""

    def __init__(
        self,
        output_to_stderr: bool = False,
        is_training: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_lost = False
        self._moving = console.on_terminal(sys.stderr)
        self._output_to_stderr = output_to_stderr
        self._is_training = is_training
        self._clock = clock
        self._started_line = b""
        self._started_output = b""
        self._unfinished: dict[bool, bytes] = {}  # by whether it is stderr: what may begin a control string
        self._passed_over = b""  # the last step's line, if it was not drawn
        self._last_step = -STEP_SECONDS
        self._unread: list[TextIO] = []  # the reader of these streams has gone
        self._is_within_line = False  # on a terminal: the run's last line has no end, as a progress bar's has none
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._layers: dict[str, tuple[int, int | None]] = {}
        self._whole: set[str] = set()
        self._last_line, self._told = 0.0, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        was_fetching = self._progress is not None or bool(self._layers)
        self.quiet()
        if kind is KeyboardInterrupt:  # typer silently exits with 130
            kept = "; what was fetched is kept, and the same command goes on"
            self.say("interrupted" + (kept if was_fetching else ""))

    def say(self, text: str) -> None:
        if "ngcdl run ..." in text:  # a remedy
            from ngcdl.cli.changed import written_out

            text = written_out(text, sys.argv[1:])
        if self._progress:
            told = console.wrapped(f"ngcdl: {typable(plain(text))}", sys.stderr)
            self._progress.console.print(told, markup=False, highlight=False, soft_wrap=True)
            return
        self._end_line()
        console.say(text)

    def quiet(self) -> None:
        self._write(sys.stderr, self._started_line)
        self._write(self._stdout(), self._passed_over + self._started_output)
        self._started_line = self._started_output = self._passed_over = b""
        for is_stderr in list(self._unfinished):
            self._write(sys.stderr if is_stderr else sys.stdout, b"", is_last=True)
        if self._progress:
            self._progress.stop()
            self._progress = None
            self._tasks = {}
        self._end_line()  # more may be said, or the shell's prompt follow

    def _end_line(self) -> None:
        if self._is_within_line and console.columns(sys.stderr):
            console.end_line()
        self._is_within_line = False

    # -- pulls and downloads ----------------------------------------------------------------------------------------

    def pull(self, event: PullEvent) -> None:
        if event.layer is None:
            self.say(event.status)
            return
        if event.status.startswith("Pulling from"):
            return  # its "layer" is the tag, and the image was already named
        if event.layer in self._whole and event.status not in _DONE:
            return  # another pull has brought it to the engine meanwhile: what is still on its way here is not needed
        self._count(event)
        if event.status == WAITING:
            return  # more such layers follow, and nothing has moved: a total would not be that of all
        done = sum(here for here, _ in self._layers.values())
        sizes = [size for _, size in self._layers.values()]
        known = [size for size in sizes if size is not None]
        total = sum(known) if len(known) == len(sizes) else None
        whole = f"{len(self._whole)} of {len(self._layers)}"
        if self._moving:
            if event.status == "Already exists" and "layers" in self._tasks:  # what was here is no part of the speed
                self._bars().reset(self._tasks["layers"], completed=done, total=total)
            self._bar("layers", whole, done, total)
            self._row(event)
        elif event.status in _DONE:
            self.say(f"{event.layer}: {event.status}")
        elif done and self._clock() - self._last_line > LINE_SECONDS:
            self._last_line = self._clock()
            count = len(self._layers)
            of = f" of {figures.size(total)} in {count} layer{'' if count == 1 else 's'}"
            of = f" so far; {whole} layers complete" if total is None else of
            told = f"{figures.size(done)}{f' are here; unpacked: {whole} layers' if done == total else of}"
            if told != self._told:
                self.say(told)
            self._told = told

    def _count(self, event: PullEvent) -> None:
        """Track each layer, as (bytes here, bytes in total or None), and which are unpacked. An engine that pulls by
        itself tells a layer's size only once it fetches that layer."""
        assert event.layer is not None  # the caller checked
        _, size = self._layers.setdefault(event.layer, (0, None))
        if event.status in ("Downloading", WAITING) and event.total_bytes:
            self._layers[event.layer] = (event.current_bytes or 0, event.total_bytes)
        elif event.status in (*_DONE, "Download complete"):
            self._layers[event.layer] = (size or 0, size or 0)
        if event.status in _DONE:
            self._whole.add(event.layer)

    def _row(self, event: PullEvent) -> None:
        """Show a layer only while it is moving: NVIDIA's images have more layers than a screen has rows."""
        assert event.layer is not None  # the caller checked
        if event.status in ("Downloading", "Extracting") and event.total_bytes:
            self._bar(event.layer, event.status, event.current_bytes, event.total_bytes)
        elif event.layer in self._tasks:
            self._bars().remove_task(self._tasks.pop(event.layer))

    def download(self, done_bytes: int, total_bytes: int | None, bytes_per_second: float | None) -> None:
        if self._moving:
            self._bar("CIFAR-10", "Downloading", done_bytes, total_bytes)
        elif self._clock() - self._last_line > LINE_SECONDS:
            self._last_line = self._clock()
            left = ""
            if total_bytes and bytes_per_second:
                left = f", {(total_bytes - done_bytes) / bytes_per_second / 60:.0f} min left"
            rate = f" at {figures.size(bytes_per_second)}/s" if bytes_per_second else ""
            self.say(f"CIFAR-10: {figures.size(done_bytes)} of {figures.size(total_bytes)}{rate}{left}")

    def _bar(self, name: str, status: str, current: int | None, total: int | None) -> None:
        progress = self._bars()
        if name not in self._tasks:
            self._tasks[name] = progress.add_task(name, total=total, status=status)
        progress.update(self._tasks[name], completed=current or 0, total=total, status=status)

    def _bars(self) -> Progress:
        if self._progress is None:
            from rich import progress as bars
            from rich.table import Column

            def narrow() -> Column:
                return Column(no_wrap=True)

            class Rate(bars.ProgressColumn):  # in the units of all other sizes; rich's own counts in MB
                def render(self, task: bars.Task) -> str:
                    rate = task.finished_speed or task.speed
                    return f"{figures.size(rate)}/s" if rate else ""

            width = console.columns(sys.stderr) or 0
            self._progress = bars.Progress(
                bars.TextColumn("{task.description:<12}", table_column=narrow()),
                *(
                    [bars.TextColumn("{task.fields[status]:<11}", table_column=narrow())]
                    if width >= _WITH_STATUS
                    else []
                ),
                *([bars.BarColumn(bar_width=14, table_column=narrow())] if width >= _WITH_BAR else []),
                bars.DownloadColumn(binary_units=True, table_column=narrow()),
                *([Rate(table_column=narrow())] if width >= _WITH_SPEED else []),
                bars.TimeRemainingColumn(table_column=narrow()),
                console=console.err(),
            )
            self._progress.start()
        return self._progress

    # -- the run's own output ---------------------------------------------------------------------------------------

    def chunk(self, chunk: Chunk) -> None:
        """Pass on what the run wrote. Raise BrokenPipeError if nobody reads that stream any more.

        If a stream can't be written to for another reason, such as a full disk, `is_lost` is True afterwards."""
        stream, told = sys.stderr, chunk.data
        if chunk.stream != "stderr":
            stream = self._stdout()
            told = self._without_haste(told) if self._is_training and stream and stream.isatty() else told
        elif self._is_training:
            told = self._without_chatter(told)
        self._write(stream, told)
        if stream and stream.isatty() and (text := _CURSOR_AT_END.sub(b"", told)):
            self._is_within_line = not text.endswith(b"\n")
        if stream in self._unread:
            raise BrokenPipeError

    def _stdout(self) -> TextIO:
        return sys.stderr if self._output_to_stderr else sys.stdout

    def _without_haste(self, data: bytes) -> bytes:
        """Leave out step lines that come within STEP_SECONDS of the last one shown, but keep the last step line before
        any other line."""
        lines, self._started_output = _whole(self._started_output + data)
        drawn = []
        for line in lines:
            is_step = STEP.match(line)
            if is_step and self._clock() - self._last_step < STEP_SECONDS:
                self._passed_over = line
                continue
            drawn.append(line if is_step else self._passed_over + line)
            self._passed_over = b""
            self._last_step = self._clock() if is_step else self._last_step
        return b"".join(drawn)

    def _without_chatter(self, data: bytes) -> bytes:
        lines, self._started_line = _whole(self._started_line + data)
        return b"".join(line for line in lines if not CHATTER.match(line))

    def _tamed(self, data: bytes, is_stderr: bool, is_last: bool) -> bytes:
        """Remove control strings. Hold back what may be the beginning of a control string until the rest arrives."""
        data = (self._unfinished.pop(is_stderr, b"") + data).translate(None, _SILENT)
        data = _EIGHT_BIT.sub(lambda one: bytes([0x1B, one[1][0] - 0x40]), _STRAY.sub(b"", data))
        data = _UNWANTED.sub(b"", _APART.sub(lambda one: one[0].replace(b"\x1b", b"") + b"\x1b", data))
        begun = _UNFINISHED.search(data)
        if begun is None:
            return data
        if is_last or len(begun[0]) > _LONGEST:
            return data[: begun.start()] + self._tamed(data[begun.start() + 1 :], is_stderr, is_last)
        self._unfinished[is_stderr] = begun[0]
        return data[: begun.start()]

    def _write(self, stream: TextIO | None, data: bytes, is_last: bool = False) -> None:
        if stream is None or not (data or is_last):  # None: closed by the caller, `>&-`
            return
        data = self._tamed(data, stream is sys.stderr, is_last) if stream.isatty() else data
        try:
            stream.buffer.write(data)
            stream.flush()
        except ValueError:
            return
        except OSError as error:
            self._lose(stream, error)

    def _lose(self, stream: TextIO, error: OSError) -> None:
        """Discard all further output on `stream`, which can't be written to. Say so, unless its reader has gone."""
        console.discard(stream.fileno())
        if isinstance(error, BrokenPipeError):
            self._unread.append(stream)
            return
        self.is_lost = True
        name = "stdout" if stream is sys.stdout else "stderr"
        self.say(f"{name} can't be written to any more ({error.strerror}); log.txt has all of it.")


def _whole(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines in `data`, and the beginning of the next one. A long beginning counts as a line: a program
    may write gigabytes without a newline."""
    *lines, begun = data.split(b"\n")
    lines = [line + b"\n" for line in lines]
    return (lines, begun) if len(begun) <= _LONGEST else ([*lines, begun], b"")
