"""Where log lines go besides the CSV file: TensorBoard, Weights & Biases, the terminal."""

import math
import os
import resource
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ella.errors import InputError
from ella.methods.method import Method
from ella.runs.event_file import EventFile
from ella.training.log_line import LogLine


class AbstractLogSink(ABC):
    """Something that takes log lines while a run trains."""

    def start(self, frames: int) -> None:  # noqa: B027
        """Called before the first log line, with the frames each seed was trained before."""

    @abstractmethod
    def write(self, line: LogLine) -> None:
        """Take one log line."""

    @abstractmethod
    def close(self) -> None:
        """Flush and release."""


OTHER_FILES = 64
"""That a process has open besides event files, generously."""


def check_open_files(seeds: int) -> None:
    """Refuse more event files than this process may have open; the limit is raised where the
    system allows it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = seeds + OTHER_FILES
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        if most != resource.RLIM_INFINITY and needed > most:
            raise InputError(
                f"{seeds:,} seeds need as many event files at once, and this system allows "
                f"{most:,}; choose fewer seeds or --log.no-tensorboard"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


class TensorBoardLog(AbstractLogSink):
    """One event directory per seed, scalars over frames."""

    def __init__(self, directory: Path, seeds: Sequence[int]) -> None:
        folder = directory / "tensorboard"
        with _one_line(folder):
            self._files = [EventFile(folder / f"seed-{seed}") for seed in seeds]

    def write(self, line: LogLine) -> None:
        for index, file in enumerate(self._files):
            scalars = {name: float(values[index]) for name, values in line.values.items()}
            scalars["frames_per_second"] = line.frames_per_second
            measured = {name: value for name, value in scalars.items() if not math.isnan(value)}
            with _one_line(file.path):
                file.add(measured, line.frames)

    def close(self) -> None:
        for file in self._files:
            file.close()


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror}"
        raise InputError(f"{reason}; make room, then resume the run") from error


class WandbLog(AbstractLogSink):
    """One Weights & Biases run: the mean over seeds, and each seed under its own prefix."""

    def __init__(
        self, directory: Path, seeds: Sequence[int], project: str, config: dict[str, Any]
    ) -> None:
        import wandb

        self._seeds = tuple(seeds)
        name_file = directory / "wandb-run.txt"
        self._run = wandb.init(
            project=project,
            dir=str(directory),
            name=directory.name,
            config=config,
            id=name_file.read_text() if name_file.exists() else None,
            resume="allow",
        )
        # A resumed run logs to the same place.
        name_file.write_text(self._run.id)

    def write(self, line: LogLine) -> None:
        values = {"frames": line.frames, "frames_per_second": line.frames_per_second}
        for name, per_seed in line.values.items():
            values[name] = line.mean(name)
            for seed, value in zip(self._seeds, per_seed, strict=True):
                values[f"seed-{seed}/{name}"] = float(value)
        self._run.log(values, step=line.frames)

    def close(self) -> None:
        self._run.finish()


HEADLINE = (
    ("success", "success_rate", "{:.1%}"),
    ("return", "return", "{:.3f}"),
    ("bonus per episode", "bonus_per_episode", "{:.3f}"),
    ("policy loss", "policy_loss", "{:+.4f}"),
    ("value loss", "value_loss", "{:.4f}"),
    ("entropy", "entropy", "{:.3f}"),
)
"""What the terminal shows of every method that measures it: label, measurement, format."""

Shown = Sequence[tuple[str, str, str]]
"""Measurements to show: label, name, format."""


def measurements_of(method: Method) -> Shown:
    """What reports draw of a method besides success."""
    panels = [part.panels for part in method.parts if part.panels is not None]
    return [
        (column.title.replace("\n", " "), column.name, "{:.1%}" if column.is_share else "{:.2f}")
        for one in panels
        for column in one.columns
    ]


def headline(line: LogLine, measurements: Shown = HEADLINE) -> str:
    """The measurements a person watches, as one text."""
    shown = ((label, line.mean(name), form) for label, name, form in measurements)
    return "  ".join(
        f"{label} {form.format(value)}" for label, value, form in shown if not math.isnan(value)
    )


def print_progress(text: str) -> None:
    """A line on standard output. Where nobody reads it any more, as after `| head`, the run is
    asked to stop as Ctrl-C does, so that it is saved."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        signal.raise_signal(signal.SIGINT)


def silence(stream: IO[str]) -> None:
    """Let a stream whose reader has gone lead nowhere, also for what it still holds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class PlainDisplay(AbstractLogSink):
    """One text line per log line, for logs and pipes."""

    def __init__(self, total_frames: int, measurements: Shown = ()) -> None:
        self._total = total_frames
        self._measurements = measurements

    def write(self, line: LogLine) -> None:
        left = _time_left(line, self._total)
        text = (
            f"{line.frames:,}/{self._total:,} frames a seed  {line.frames_per_second:,.0f}/s  "
            f"left {left}  {headline(line)}  {headline(line, self._measurements)}"
        )
        print_progress(text.rstrip())

    def close(self) -> None:
        """Every line is flushed when written."""


class LiveDisplay(AbstractLogSink):
    """A progress bar with rate, time left, the headline and what the method measures, redrawn in
    place."""

    def __init__(self, total_frames: int, measurements: Shown = ()) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.text import Text

        self._progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            TextColumn(
                "{task.completed:,}/{task.total:,} frames a seed  {task.fields[rate]}  "
                "left {task.fields[left]}"
            ),
            expand=True,
        )
        self._task = self._progress.add_task("", total=total_frames, rate="?/s", left="?")
        self._text = Text("")
        self._total, self._measurements = total_frames, measurements
        self._live = Live(Group(self._progress, self._text), refresh_per_second=4)
        self._live.start()

    def start(self, frames: int) -> None:
        self._progress.update(self._task, completed=frames)
        self._live.refresh()

    def write(self, line: LogLine) -> None:
        self._progress.update(
            self._task,
            completed=line.frames,
            rate=f"{line.frames_per_second:,.0f}/s",
            left=_time_left(line, self._total),
        )
        texts = headline(line), headline(line, self._measurements)
        self._text.plain = "\n".join(text for text in texts if text)
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()


def display(total_frames: int, method: Method | None = None) -> AbstractLogSink:
    """A live display on a terminal, plain lines elsewhere, with what the method measures."""
    measurements = () if method is None else measurements_of(method)
    kind = LiveDisplay if sys.stdout.isatty() else PlainDisplay
    return kind(total_frames, measurements)


def _time_left(line: LogLine, total: int) -> str:
    """Frames left over the rate of one seed since the line before."""
    seeds = max((len(values) for values in line.values.values()), default=1)
    rate = line.frames_per_second / seeds
    seconds = int(max(total - line.frames, 0) / rate) if rate > 0 else 0
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
