"""Films, read back from the files they were written to."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageFont

from ella.episodes.video import (
    LAST_FRAME_SECONDS,
    MARK_COLOURS,
    Mark,
    Shot,
    draw,
    episode_shots,
    moments,
    wrap,
    write_film,
    write_strip,
)
from ella.errors import InputError
from ella.world.encoding import BALL, EMPTY, FORWARD, GREY, KEY, PICKUP, WALL

LONG_MISSION = "put the purple ball next to the yellow box after you pick up a grey key"


def level(x: int = 1, *, carrying=None, mission: str = "pick up the red key") -> dict:
    """A corridor of 6 x 3 cells with a key and a ball."""
    grid = np.zeros((6, 3, 3), np.uint8)
    grid[:] = (WALL, GREY, 0)
    grid[1:-1, 1] = (EMPTY, 0, 0)
    grid[3, 1] = (KEY, 0, 0) if carrying is None else (EMPTY, 0, 0)
    grid[4, 1] = (BALL, 2, 0)
    return {
        "grid": grid,
        "agent_pos": np.array([x, 1]),
        "agent_dir": 0,
        "carrying": carrying,
        "mission": mission,
        "step_count": x - 1,
        "max_steps": 64,
    }


@pytest.fixture
def episode() -> list[Shot]:
    levels = [level(1), level(2), level(2, carrying=("key", "red"))]
    marks = [[], [], [Mark("termination", "go to the red key")]]
    return episode_shots(levels, [FORWARD, PICKUP], marks=marks, reward=0.9)


def test_captions_tell_the_step_the_horizon_and_the_action(episode):
    captions = [shot.caption for shot in episode]
    assert captions == ["step 0 of 64", "step 1 of 64 · forward", "step 2 of 64 · pickup"]


def test_the_last_shot_says_how_it_ended(episode):
    assert episode[-1].marks[-1] == Mark("success", "done, reward 0.90")
    failed = episode_shots([level(1), level(2)], [FORWARD], reward=0.0)
    assert failed[-1].marks == (Mark("failure", "not done"),)
    assert not episode[0].marks


def test_pictures_have_one_even_size_and_carry_the_level(episode):
    pictures = draw(episode, tile_size=15)
    assert len({picture.shape for picture in pictures}) == 1
    height, width, _ = pictures[0].shape
    assert height % 2 == 0
    assert width % 2 == 0
    # The board is on top, unchanged: a wall's corner and the agent's red.
    assert tuple(pictures[0][7, 7]) == (100, 100, 100)
    assert tuple(pictures[0][22, 22]) == (255, 0, 0)
    assert tuple(pictures[1][22, 22]) == (0, 0, 0)


def pixels_of(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int(np.all(picture == colour, axis=-1).sum())


def test_marks_and_carried_objects_appear_only_where_they_belong(episode):
    pictures = draw(episode)
    for kind in ("termination", "success"):
        counts = [pixels_of(picture, MARK_COLOURS[kind]) for picture in pictures]
        assert counts[:2] == [0, 0]
        assert counts[2] > 40
    board = 3 * 32
    carried = [pixels_of(picture[board:], (255, 0, 0)) for picture in pictures]
    assert carried[:2] == [0, 0]
    assert carried[2] > 20


def test_the_mission_is_drawn_and_wrapped():
    short = draw([Shot(level(), "a")])[0]
    other = draw([Shot(level(mission="pick up the blue box"), "a")])[0]
    long = draw([Shot(level(mission=LONG_MISSION), "a")])[0]
    assert short.shape == other.shape
    assert np.any(short != other)
    assert long.shape[0] > short.shape[0]
    font = ImageFont.load_default(17)
    lines = wrap(LONG_MISSION, font, 172)
    assert len(lines) > 2
    assert all(font.getlength(line) <= 172 for line in lines)
    assert " ".join(lines) == LONG_MISSION


def test_a_gif_plays_every_frame_and_rests_on_the_last(episode, tmp_path):
    path = write_film(episode, tmp_path / "films" / "a.gif", frames_per_second=4)
    with Image.open(path) as film:
        assert film.n_frames == 3
        assert film.info["loop"] == 0
        durations = []
        for index, picture in enumerate(draw(episode)):
            film.seek(index)
            durations.append(film.info["duration"])
            shown = np.asarray(film.convert("RGB")).astype(float)
            assert np.abs(shown - picture).mean() < 1.0
    assert durations == [250, 250, 1000 * LAST_FRAME_SECONDS]


def test_an_mp4_without_the_encoder_is_one_clear_error(episode, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="needs the program ffmpeg"):
        write_film(episode, tmp_path / "a.mp4")


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_has_every_frame(episode, tmp_path):
    path = write_film(episode, tmp_path / "a.mp4", frames_per_second=5)
    height, width, _ = draw(episode)[0].shape
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)
    assert len(frames) == 3 + LAST_FRAME_SECONDS * 5
    assert np.abs(frames[0].astype(float) - draw(episode)[0]).mean() < 12


def test_other_endings_are_refused(episode, tmp_path):
    with pytest.raises(InputError, match=r"a \.gif or an \.mp4"):
        write_film(episode, tmp_path / "a.avi")


def test_a_strip_shows_every_moment_of_a_short_episode(episode, tmp_path):
    path = write_strip(episode, tmp_path / "a.png")
    with Image.open(path) as picture:
        strip = np.asarray(picture.convert("RGB"))
    # Three boards in a row, each with the agent on it.
    assert pixels_of(strip, (100, 100, 100)) > 3 * 14 * 15 * 15
    assert strip.shape[1] > 3 * 6 * 20


def test_a_long_strip_keeps_the_ends_and_the_events(tmp_path):
    levels = [level(1 + step % 2) for step in range(60)]
    levels += [level(2, carrying=("key", "red")) for _ in range(40)]
    shots = episode_shots(levels, [FORWARD] * 99, reward=0.5)
    path = write_strip(shots, tmp_path / "a.png", pictures=6)
    with Image.open(path) as picture:
        assert picture.height > 2 * 60  # two rows of boards
    chosen = moments(shots, 6)
    assert len(chosen) == 6
    assert {0, 60, 99} <= set(chosen)
