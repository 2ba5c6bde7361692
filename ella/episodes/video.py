"""Videos of episodes (GIF, MP4) and contact sheets (PNG), with the mission under the level."""

import itertools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ella.errors import InputError
from ella.world.encoding import ACTION_NAMES, COLOUR_NAMES, TYPE_NAMES, cell_of
from ella.world.render import TILE_SIZE, tile
from ella.world.render import frame as render_level

FRAMES_PER_SECOND = 5
LAST_FRAME_SECONDS = 1.6
SHEET_FRAMES = 8
SHEET_COLUMNS = 4
SHEET_TILE_SIZE = 20

MARGIN = 10
MISSION_FONT_SIZE, LINE_FONT_SIZE = 17, 14
BACKGROUND, INK, FAINT_INK, TRACK = (24, 26, 32), (240, 240, 240), (150, 154, 166), (58, 62, 74)
MARK_COLOURS = {
    "termination": (122, 162, 255),
    "bonus": (255, 206, 84),
    "success": (110, 222, 128),
    "failure": (255, 112, 103),
}
"""RGB by kind of mark: a low-level instruction terminated, a bonus was paid, the end."""


@dataclass(frozen=True)
class Mark:
    """Something worth seeing at one step."""

    kind: str
    """One of `MARK_COLOURS`."""
    text: str


@dataclass(frozen=True)
class VideoFrame:
    """One frame of a video."""

    description: Mapping[str, Any]
    """The level at that moment, from `ella.world.describe`."""
    caption: str
    view: np.ndarray | None = None
    """The observation's image uint8[7, 7, 3]; its cells are highlighted."""
    marks: tuple[Mark, ...] = ()


def episode_frames(
    descriptions: Sequence[Mapping[str, Any]],
    actions: Sequence[int],
    *,
    views: Sequence[np.ndarray] | None = None,
    marks: Sequence[Sequence[Mark]] | None = None,
    reward: float | None = None,
) -> list[VideoFrame]:
    """The frames of one episode of T actions.

    `descriptions`, `views` and `marks` have T + 1 entries, before the first action and after
    each one. `reward` is the last step's; it says how the episode ended.
    """
    frames = []
    for step, description in enumerate(descriptions):
        caption = f"step {step} of {int(description['max_steps'])}"
        if step > 0:
            caption += f" · {ACTION_NAMES[int(actions[step - 1])]}"
        here = tuple(marks[step]) if marks is not None else ()
        if reward is not None and step == len(descriptions) - 1:
            ending = Mark("success", f"done, reward {reward:.2f}")
            here += (ending if reward > 0 else Mark("failure", "not done"),)
        view = np.asarray(views[step]) if views is not None else None
        frames.append(VideoFrame(description, caption, view, here))
    return frames


def write_video(
    frames: Sequence[VideoFrame], path: Path, *, frames_per_second: float = FRAMES_PER_SECOND
) -> Path:
    """Write a video; the suffix, .gif or .mp4, decides the format."""
    writers = {".gif": write_gif, ".mp4": write_mp4}
    if path.suffix not in writers:
        raise InputError(f"cannot write '{path.name}': a video is a .gif or an .mp4 file")
    writers[path.suffix](draw(frames), path, frames_per_second)
    return path


def draw(frames: Sequence[VideoFrame], *, tile_size: int = TILE_SIZE) -> list[np.ndarray]:
    """Images uint8[H, W, 3] of one size: the level, and under it the mission, the caption,
    what the agent carries, the marks and a time line."""
    boards = [
        render_level(frame.description, view=frame.view, tile_size=tile_size) for frame in frames
    ]
    width = max(board.shape[1] for board in boards)
    mission_font, line_font = (
        ImageFont.load_default(size) for size in (MISSION_FONT_SIZE, LINE_FONT_SIZE)
    )
    missions = [
        wrap(str(frame.description["mission"]), mission_font, width - 2 * MARGIN)
        for frame in frames
    ]
    mission_height = (MISSION_FONT_SIZE + 5) * max(map(len, missions))
    mark_height = (LINE_FONT_SIZE + 6) * max(len(frame.marks) for frame in frames)
    caption_height = LINE_FONT_SIZE + 8
    top = max(board.shape[0] for board in boards)
    height = top + MARGIN + mission_height + caption_height + mark_height + 2 * MARGIN
    # Video encoders want even sizes.
    size = (width + width % 2, height + height % 2)

    images = []
    for index, (frame, board, mission) in enumerate(zip(frames, boards, missions, strict=True)):
        picture = Image.new("RGB", size, BACKGROUND)
        picture.paste(Image.fromarray(board), ((width - board.shape[1]) // 2, 0))
        pen = ImageDraw.Draw(picture)
        y = top + MARGIN
        for line in mission:
            pen.text((MARGIN, y), line, INK, mission_font)
            y += MISSION_FONT_SIZE + 5
        y = top + MARGIN + mission_height
        pen.text((MARGIN, y), frame.caption, FAINT_INK, line_font)
        _draw_carried(picture, pen, frame.description["carrying"], y, line_font)
        y += caption_height
        for mark in frame.marks:
            colour = MARK_COLOURS[mark.kind]
            pen.ellipse((MARGIN, y + 4, MARGIN + 9, y + 13), colour)
            pen.text((MARGIN + 16, y), mark.text, colour, line_font)
            y += LINE_FONT_SIZE + 6
        _draw_time_line(pen, frames, index, width, height - MARGIN - 3)
        images.append(np.asarray(picture))
    return images


def write_gif(images: Sequence[np.ndarray], path: Path, frames_per_second: float) -> None:
    """Write an endless GIF; the last frame stays for a moment."""
    # One palette for the whole video, sampled along it, keeps colours steady.
    sample = np.concatenate([images[i] for i in _spread(len(images), 8)])
    palette = Image.fromarray(sample).quantize(256, dither=Image.Dither.NONE)
    quantised = [
        Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)
        for image in images
    ]
    durations = [round(1000 / frames_per_second)] * len(quantised)
    durations[-1] = round(1000 * LAST_FRAME_SECONDS)
    path.parent.mkdir(parents=True, exist_ok=True)
    quantised[0].save(
        path, save_all=True, append_images=quantised[1:], duration=durations, loop=0, optimize=False
    )


def find_encoder() -> str:
    """The ffmpeg program, or an error where it is not installed."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise InputError("an .mp4 needs the program ffmpeg on the PATH; install it or write a .gif")
    return program


def write_mp4(images: Sequence[np.ndarray], path: Path, frames_per_second: float) -> None:
    """Write an H.264 video with the ffmpeg program."""
    program = find_encoder()
    height, width, _ = images[0].shape
    still = round(LAST_FRAME_SECONDS * frames_per_second)
    raw = np.stack([*images, *[images[-1]] * still]).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    outcome = subprocess.run(
        [program, "-y", "-v", "error", *source, "-r", str(frames_per_second), "-i", "-", *target],
        input=raw,
        capture_output=True,
        check=False,
    )
    if outcome.returncode != 0:
        reason = outcome.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(
            f"ffmpeg could not write '{path}': {reason[-1] if reason else 'no reason'}"
        )


def write_contact_sheet(
    frames: Sequence[VideoFrame], path: Path, *, limit: int = SHEET_FRAMES
) -> Path:
    """Write a PNG of up to `limit` frames of an episode with the mission under them."""
    chosen = [frames[i] for i in moments(frames, limit)]
    columns = min(SHEET_COLUMNS, len(chosen))
    boards = [
        render_level(frame.description, view=frame.view, tile_size=SHEET_TILE_SIZE)
        for frame in chosen
    ]
    height, width, _ = boards[0].shape
    caption_font, mission_font = (
        ImageFont.load_default(size) for size in (LINE_FONT_SIZE, MISSION_FONT_SIZE)
    )
    cell_width, cell_height = width + MARGIN, height + LINE_FONT_SIZE + 16
    rows = -(-len(chosen) // columns)
    total_width = columns * cell_width + MARGIN
    lines = wrap(str(chosen[0].description["mission"]), mission_font, total_width - 2 * MARGIN)
    mission_top = MARGIN + rows * cell_height
    total_height = mission_top + len(lines) * (MISSION_FONT_SIZE + 5) + MARGIN
    picture = Image.new("RGB", (total_width, total_height), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for index, (frame, board) in enumerate(zip(chosen, boards, strict=True)):
        x = MARGIN + index % columns * cell_width
        y = MARGIN + index // columns * cell_height
        picture.paste(Image.fromarray(board), (x, y))
        colour = MARK_COLOURS[frame.marks[-1].kind] if frame.marks else FAINT_INK
        caption = wrap(frame.caption, caption_font, width)[0]
        pen.text((x, y + height + 4), caption, colour, caption_font)
    for index, line in enumerate(lines):
        pen.text((MARGIN, mission_top + index * (MISSION_FONT_SIZE + 5)), line, INK, mission_font)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
    return path


def write_episode(
    frames: Sequence[VideoFrame], stem: Path, format_: str, frames_per_second: float
) -> list[Path]:
    """Write the video and the contact sheet of an episode to `stem` plus their suffixes."""
    video = stem.with_name(f"{stem.name}.{format_}")
    sheet = stem.with_name(f"{stem.name}.png")
    return [
        write_video(frames, video, frames_per_second=frames_per_second),
        write_contact_sheet(frames, sheet),
    ]


def wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> list[str]:
    """Break a text into lines of at most `width` pixels; a longer word has its own line."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _draw_carried(
    picture: Image.Image,
    pen: ImageDraw.ImageDraw,
    carrying: tuple[str, str] | None,
    y: int,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    """Show the object in hand at the right end of the caption's line."""
    if carrying is None:
        return
    type_, colour = carrying
    cell = cell_of(TYPE_NAMES.index(type_), COLOUR_NAMES.index(colour))
    # Drop the grid line of the tile: only the object is wanted.
    icon = Image.fromarray(tile(cell, None, False, 20)).crop((1, 1, 20, 20))
    x = picture.width - MARGIN - icon.width
    picture.paste(icon, (x, y))
    label = "carrying"
    pen.text((x - 6 - font.getlength(label), y), label, FAINT_INK, font)


def _draw_time_line(
    pen: ImageDraw.ImageDraw, frames: Sequence[VideoFrame], index: int, width: int, y: int
) -> None:
    """A track along the bottom: the time gone by, and a tick for every mark so far."""
    span = width - 2 * MARGIN
    places = np.linspace(MARGIN, MARGIN + span, len(frames)) if len(frames) > 1 else [MARGIN + span]
    pen.rectangle((MARGIN, y, MARGIN + span, y + 3), TRACK)
    pen.rectangle((MARGIN, y, places[index], y + 3), FAINT_INK)
    for place, frame in zip(places[: index + 1], frames, strict=False):
        for mark in frame.marks:
            pen.rectangle((place - 1, y - 2, place + 1, y + 5), MARK_COLOURS[mark.kind])


def _spread(count: int, limit: int) -> list[int]:
    """Up to `limit` indices from 0 to count - 1, both ends included, evenly spread."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, limit)).tolist()})


def moments(frames: Sequence[VideoFrame], limit: int) -> list[int]:
    """Indices of the frames a contact sheet shows: the ends, frames with marks or where the level
    changes, and evenly spread ones for the rest."""
    if len(frames) <= limit:
        return list(range(len(frames)))
    events = [
        i
        for i in range(1, len(frames) - 1)
        if frames[i].marks
        or frames[i].description["carrying"] != frames[i - 1].description["carrying"]
        or np.any(frames[i].description["grid"] != frames[i - 1].description["grid"])
    ]
    kept = {0, len(frames) - 1} | {events[i] for i in _spread(len(events), limit - 2) if events}
    while len(kept) < limit:
        # Split the longest stretch without a frame.
        ordered = sorted(kept)
        start, end = max(itertools.pairwise(ordered), key=lambda pair: pair[1] - pair[0])
        kept.add((start + end) // 2)
    return sorted(kept)
