"""Videos and contact sheets, read back from the files they were written to."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageFont

from ella.commands.show import MIN_FRAMES_PER_SECOND
from ella.episodes.video import (
    LAST_FRAME_SECONDS,
    MARK_COLOURS,
    Mark,
    VideoFrame,
    draw,
    episode_frames,
    moments,
    wrap,
    write_contact_sheet,
    write_video,
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
def episode() -> list[VideoFrame]:
    levels = [level(1), level(2), level(2, carrying=("key", "red"))]
    marks = [[], [], [Mark("termination", "go to the red key")]]
    return episode_frames(levels, [FORWARD, PICKUP], marks=marks, reward=0.9)


def test_captions_tell_the_step_the_horizon_and_the_action(episode):
    captions = [frame.caption for frame in episode]
    assert captions == ["step 0 of 64", "step 1 of 64 · forward", "step 2 of 64 · pickup"]


def test_the_last_frame_says_how_it_ended(episode):
    assert episode[-1].marks[-1] == Mark("success", "done, reward 0.90")
    failed = episode_frames([level(1), level(2)], [FORWARD], reward=0.0)
    assert failed[-1].marks == (Mark("failure", "not done"),)
    assert not episode[0].marks


def test_images_have_one_even_size_and_carry_the_level(episode):
    images = draw(episode, tile_size=15)
    assert len({image.shape for image in images}) == 1
    height, width, _ = images[0].shape
    assert height % 2 == 0
    assert width % 2 == 0
    # The board is on top, unchanged: a wall's corner and the agent's red.
    assert tuple(images[0][7, 7]) == (100, 100, 100)
    assert tuple(images[0][22, 22]) == (255, 0, 0)
    assert tuple(images[1][22, 22]) == (0, 0, 0)


def pixels_of(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int(np.all(image == colour, axis=-1).sum())


def test_marks_and_carried_objects_appear_only_where_they_belong(episode):
    images = draw(episode)
    for kind in ("termination", "success"):
        counts = [pixels_of(image, MARK_COLOURS[kind]) for image in images]
        assert counts[:2] == [0, 0]
        assert counts[2] > 40
    board = 3 * 32
    carried = [pixels_of(image[board:], (255, 0, 0)) for image in images]
    assert carried[:2] == [0, 0]
    assert carried[2] > 20


def test_the_mission_is_drawn_and_wrapped():
    short = draw([VideoFrame(level(), "a")])[0]
    other = draw([VideoFrame(level(mission="pick up the blue box"), "a")])[0]
    long = draw([VideoFrame(level(mission=LONG_MISSION), "a")])[0]
    assert short.shape == other.shape
    assert np.any(short != other)
    assert long.shape[0] > short.shape[0]
    font = ImageFont.load_default(17)
    lines = wrap(LONG_MISSION, font, 172)
    assert len(lines) > 2
    assert all(font.getlength(line) <= 172 for line in lines)
    assert " ".join(lines) == LONG_MISSION


def test_a_gif_plays_every_frame_and_rests_on_the_last(episode, tmp_path):
    path = write_video(episode, tmp_path / "videos" / "a.gif", frames_per_second=4)
    with Image.open(path) as video:
        assert video.n_frames == 3
        assert video.info["loop"] == 0
        durations = []
        for index, image in enumerate(draw(episode)):
            video.seek(index)
            durations.append(video.info["duration"])
            shown = np.asarray(video.convert("RGB")).astype(float)
            assert np.abs(shown - image).mean() < 1.0
    assert durations == [250, 250, 1000 * LAST_FRAME_SECONDS]


def test_the_slowest_gif_that_may_be_asked_for_is_written(episode, tmp_path):
    path = write_video(episode, tmp_path / "a.gif", frames_per_second=MIN_FRAMES_PER_SECOND)
    with Image.open(path) as video:
        assert video.info["duration"] == 1000 / MIN_FRAMES_PER_SECOND


def test_an_mp4_without_the_encoder_is_one_clear_error(episode, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="needs the program ffmpeg"):
        write_video(episode, tmp_path / "a.mp4")


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_has_every_frame(episode, tmp_path):
    path = write_video(episode, tmp_path / "a.mp4", frames_per_second=5)
    height, width, _ = draw(episode)[0].shape
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)
    assert len(frames) == 3 + LAST_FRAME_SECONDS * 5
    assert np.abs(frames[0].astype(float) - draw(episode)[0]).mean() < 12


def test_other_endings_are_refused(episode, tmp_path):
    with pytest.raises(InputError, match=r"a \.gif or an \.mp4"):
        write_video(episode, tmp_path / "a.avi")


def test_a_contact_sheet_shows_every_moment_of_a_short_episode(episode, tmp_path):
    path = write_contact_sheet(episode, tmp_path / "a.png")
    with Image.open(path) as image:
        sheet = np.asarray(image.convert("RGB"))
    # Three boards in a row, each with the agent on it.
    assert pixels_of(sheet, (100, 100, 100)) > 3 * 14 * 15 * 15
    assert sheet.shape[1] > 3 * 6 * 20


def test_a_long_contact_sheet_keeps_the_ends_and_the_events(tmp_path):
    levels = [level(1 + step % 2) for step in range(60)]
    levels += [level(2, carrying=("key", "red")) for _ in range(40)]
    frames = episode_frames(levels, [FORWARD] * 99, reward=0.5)
    path = write_contact_sheet(frames, tmp_path / "a.png", limit=6)
    with Image.open(path) as image:
        assert image.height > 2 * 60  # two rows of boards
    chosen = moments(frames, 6)
    assert len(chosen) == 6
    assert {0, 60, 99} <= set(chosen)
