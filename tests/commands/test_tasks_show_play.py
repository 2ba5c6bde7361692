"""`ella tasks`, `ella show` and `ella play`, the last one with real key presses."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from PIL import Image

import ella
from ella.cli import main
from ella.commands.play import split_keys
from ella.episodes.episode import expert_actor, random_actor, record
from ella.world import compiled
from ella.world.encoding import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE

KEYS = {
    LEFT: b"\x1b[D",
    RIGHT: b"\x1b[C",
    FORWARD: b"\x1b[A",
    PICKUP: b"p",
    DROP: b"d",
    TOGGLE: b"t",
}
PATIENCE_S = 240


def test_tasks_as_a_table(capsys):
    assert main(["tasks"]) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "1,482" in lines["combo-maze"]
    assert "128 to 256" in lines["combo-maze"]
    assert "goto-room" in lines["putnext-room"]
    assert re.search(r"\bput the \w+ \w+ next to the \w+ \w+", lines["putnext-room"])


def test_tasks_as_json(capsys):
    assert main(["tasks", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    instructions = {name: row["instructions"] for name, row in rows.items()}
    expected = {
        "goto-room": 36, "goto-maze": 42, "open-maze": 6, "pick-maze": 36, "opengoto-maze": 48,
        "putnext-room": 306, "putnext-maze": 1440, "unlock-maze": 6, "openpick-maze": 216,
        "combo-maze": 1482,
    }  # fmt: skip
    assert expected.items() <= instructions.items()
    assert instructions["sequence-maze"] > 1_000_000
    assert rows["sequence-maze"]["horizons"] == [256, 384, 512]
    assert rows["unlock-maze"]["low_level"] == "pick-maze"
    for name, row in rows.items():
        assert ella.make(name).language.find(row["example"]) >= 0


@pytest.fixture(scope="module")
def world():
    return ella.make("goto-room")


@pytest.mark.parametrize("policy", ["expert", "random"])
def test_show_writes_the_video_it_says(world, policy, tmp_path, capsys):
    words = ["show", "goto-room", "--policy", policy, "--seed", "3", "--out", str(tmp_path / "x")]
    assert main(words) == 0
    said = capsys.readouterr().out
    paths = re.findall("^wrote (.*)$", said, re.MULTILINE)
    assert [os.path.basename(path) for path in paths] == [
        f"goto-room-{policy}-3.gif",
        f"goto-room-{policy}-3.png",
    ]
    chosen = expert_actor(world) if policy == "expert" else random_actor(3)
    frames = record(world, chosen, compiled.reset(world, jax.random.key(3)))
    assert f"after {len(frames) - 1} steps" in said
    assert frames[0].description["mission"] in said
    with Image.open(paths[0]) as video:
        assert video.n_frames == len(frames)
    with Image.open(paths[1]) as sheet:
        assert sheet.width > 160
    if policy == "expert":
        assert "done, reward" in said


def test_the_expert_is_recorded_to_the_end_of_its_plan(world):
    frames = record(world, expert_actor(world), compiled.reset(world, jax.random.key(0)))
    assert frames[-1].marks[-1].kind == "success"
    assert [frame.description["step_count"] for frame in frames] == list(range(len(frames)))
    assert all(frame.view is not None and frame.view.shape == (7, 7, 3) for frame in frames)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["show", "goto-rom"],
            "'goto-rom', and there is no run directory of that name; did you mean goto-room",
        ),
        (
            ["show", "goto-room", "--frames-per-second", "0"],
            "--frames-per-second must lie between 0.002 and 50, got 0",
        ),
        (
            ["show", "goto-room", "--frames-per-second", "0.0015"],
            "between 0.002 and 50, got 0.0015",
        ),
        (["show", "goto-room", "--frames-per-second", "51"], "between 0.002 and 50, got 51"),
        (["show", "goto-room", "--seed-index", "0"], "--seed-index is for trained agents"),
        (["show", "goto-room", "--actions", "greedy"], "--actions is for trained agents"),
        (["show", "agent:unlock-maze", "--policy", "expert"], "--policy is for tasks"),
        (["show", "goto-room", "--seed", "-1"], "a seed lies between 0 and"),
        (["play", "goto-rom"], "unknown task 'goto-rom'; did you mean goto-room"),
        (["play", "goto-room"], "needs a terminal"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_key_presses_are_told_apart():
    assert split_keys(b"p\x1b[A\x1bODq") == ([b"p", b"\x1b[A", b"\x1b[D", b"q"], b"")
    assert split_keys(b"d\x1b[") == ([b"d"], b"\x1b[")
    assert split_keys(b"\x1b") == ([], b"\x1b")


class Terminal:
    """`ella play` behind a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "ella", "play", *words]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.seen = ""

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait_for(self, text: str) -> str:
        """Everything written up to and with `text`; later calls go on from there."""
        limit = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, limit - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self.seen[-2000:]!r}"
            try:
                received = os.read(self.master, 65536)
            except OSError:  # how Linux says that the other side is closed
                received = b""
            assert received, f"ended before {text!r}, saw {self.seen[-2000:]!r}"
            self.seen += received.decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=30)
        os.close(self.master)


@pytest.fixture
def terminal():
    terminal = Terminal("goto-room", "--seed", "1")
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_playing_with_the_keyboard(world, terminal):
    key = jax.random.key(1)
    timestep = compiled.reset(world, jax.random.fold_in(key, 0))
    mission = ella.world.describe(timestep.state)["mission"]
    screen = terminal.wait_for("q quit")
    assert mission in screen
    assert "step 0 of 64" in screen
    assert "carrying nothing" in screen
    assert "●" in screen or "▣" in screen or "o╤" in screen

    # The expert's plan, typed key by key, solves the level.
    steps = 0
    while not bool(timestep.terminated):
        action = int(compiled.expert_action(world, timestep.state))
        timestep = compiled.step(world, timestep.state, np.int32(action))
        steps += 1
        terminal.press(KEYS[action])
        screen = terminal.wait_for("q quit")
        assert f"step {steps} of 64" in screen
    assert f"solved, reward {float(timestep.reward):.2f}" in screen

    # The level is over: other keys do nothing, r brings the next one.
    terminal.press(b"\x1b[A")
    terminal.press(b"r")
    screen = terminal.wait_for("q quit\x1b[0m")
    following = compiled.reset(world, jax.random.fold_in(key, 1))
    assert ella.world.describe(following.state)["mission"] in screen
    assert "step 0 of 64" in screen

    terminal.press(b"q")
    terminal.wait_for("goto-room: 1 of 1 levels solved")
    assert terminal.process.wait(timeout=PATIENCE_S) == 0
