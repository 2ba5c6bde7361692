"""`ella play TASK`: drive the agent with the keyboard in a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ella.commands.options import Positional
from ella.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from ella.world import Environment, Timestep

ACTION_KEYS = {
    b"\x1b[D": "left",
    b"\x1b[C": "right",
    b"\x1b[A": "forward",
    b"p": "pickup",
    b"d": "drop",
    b"t": "toggle",
    b" ": "toggle",
    b"\r": "done",
    b"\n": "done",
}
"""Names of actions by key."""
HELP = (
    "← → turn   ↑ forward   p pick up   d drop   t or space toggle   enter done",
    "r new level   q quit",
)
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
CLEAR, BOLD, FAINT, GREEN, RED, PLAIN = (
    "\x1b[H\x1b[2J", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[0m",
)  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """Play a task with the keyboard: arrow keys move, p picks up, d drops, t toggles, q quits."""

    task: Annotated[str, Positional("TASK")]
    """Name of the task; `ella tasks` lists them."""
    seed: int = 0
    """Seed of the levels."""


def run(arguments: Arguments) -> None:
    """Play until q is pressed or the input ends."""
    from ella.episodes.episode import seed_key
    from ella.world import make

    world, key = make(arguments.task), seed_key(arguments.seed)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("`ella play` needs a terminal for its input and output")
    with _keyboard() as descriptor:
        played, solved = _play(world, key, descriptor)
    sys.stdout.write(f"{world.spec.name}: {solved} of {played} levels solved\n")


def _play(world: "Environment", key: "PRNGKeyArray", descriptor: int) -> tuple[int, int]:
    """Returns how many episodes were finished and how many of them solved."""
    import jax
    import numpy as np

    from ella.world import compiled
    from ella.world.encoding import ACTION_NAMES

    _show(f"{CLEAR}making a level of {world.spec.name} …")
    level, played, solved = 0, 0, 0
    timestep, last = compiled.reset(world, jax.random.fold_in(key, level)), ""
    over = False
    _show(screen(world, timestep, last))
    for pressed in _keys(descriptor):
        if pressed == b"q":
            break
        if pressed == b"r":
            level += 1
            timestep, last, over = compiled.reset(world, jax.random.fold_in(key, level)), "", False
        elif pressed in ACTION_KEYS and not over:
            last = ACTION_KEYS[pressed]
            action = np.int32(ACTION_NAMES.index(last))
            timestep = compiled.step(world, timestep.state, action)
            over = bool(timestep.terminated | timestep.truncated)
            played += over
            solved += bool(timestep.terminated)
        else:
            continue
        _show(screen(world, timestep, last))
    return played, solved


def screen(world: "Environment", timestep: "Timestep", last: str) -> str:
    """The whole terminal screen: level, mission, steps, what is carried, the outcome and help."""
    import numpy as np

    from ella.world import describe
    from ella.world.render import text_frame, text_object

    description = describe(timestep.state)
    carrying = description["carrying"]
    reward = float(timestep.reward)
    if bool(timestep.terminated):
        outcome = f"{GREEN}solved, reward {reward:.2f}{PLAIN}; r for a new level, q to quit"
    elif bool(timestep.truncated):
        outcome = f"{RED}out of steps{PLAIN}; r for a new level, q to quit"
    else:
        outcome = f"last action: {last}" if last else ""
    lines = [
        f"{FAINT}{world.spec.name}{PLAIN}",
        *text_frame(description, view=np.asarray(timestep.observation.image)).split("\n"),
        "",
        f"{BOLD}{description['mission']}{PLAIN}",
        f"step {description['step_count']} of {description['max_steps']}   reward {reward:.2f}   "
        f"carrying {text_object(*carrying) if carrying else 'nothing'}",
        outcome,
        "",
        *(f"{FAINT}{line}{PLAIN}" for line in HELP),
    ]
    return CLEAR + "\n".join(lines) + "\n"


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def _keyboard() -> Iterator[int]:
    """Read keys one by one, without echo, on a screen of our own; puts everything back."""
    try:
        import termios
        import tty
    except ImportError:
        raise InputError("`ella play` needs a Unix terminal") from None
    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        _show(ENTER_SCREEN)
        yield descriptor
    finally:
        _show(LEAVE_SCREEN)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)


def _keys(descriptor: int) -> Iterator[bytes]:
    """Key presses until the input ends."""
    pending = b""
    while received := os.read(descriptor, 256):
        pressed, pending = split_keys(pending + received)
        yield from pressed


def split_keys(received: bytes) -> tuple[list[bytes], bytes]:
    """Single key presses in a run of terminal bytes, and the beginning of an unfinished one.

    Cursor keys come as three bytes; terminals in application mode write O instead of [.
    """
    keys = []
    while received:
        length = 3 if received[:2] in (b"\x1b", b"\x1b[", b"\x1bO") else 1
        if len(received) < length:
            break
        keys.append(received[:length].replace(b"\x1bO", b"\x1b["))
        received = received[length:]
    return keys, received
