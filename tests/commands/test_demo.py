"""`ella demo` leaves pictures of ELLA and PPO, and prints what ELLA learned."""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ella.cli import main
from ella.report.learning_curve import curves_of
from ella.world.tasks import find

pytestmark = pytest.mark.thorough

FRAMES, SEEDS = 2560, 2
"""Steps of 16 environments, more than an episode has: some episodes end. A notebook trains as many
seeds of the same task, so that they share their programs."""


@dataclass(frozen=True)
class Demo:
    folder: Path
    words: list[str]
    printed: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "out"
    words = [
        *("demo", "--preset", "smoke", "--frames", str(FRAMES), "--seeds", str(SEEDS)),
        *("--out", str(folder)),
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(words) == 0
    return Demo(folder, words, printed.getvalue())


def test_both_methods_train_from_the_same_seeds_for_the_same_frames(demo: Demo) -> None:
    for method in ("ppo", "ella"):
        frames, curves = curves_of(demo.folder / method)
        assert frames[-1] == FRAMES
        assert curves.shape == (SEEDS, len(frames))


def test_pictures_are_written_and_named(demo: Demo) -> None:
    written = [Path(path) for path in re.findall(r"wrote (.+)", demo.printed)]
    assert {path.suffix for path in written} == {".png", ".gif"}
    assert {"learning-curves.png", "relevance.png"} <= {path.name for path in written}
    for path in written:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 0


def test_decompositions_of_all_instructions_are_printed(demo: Demo) -> None:
    told = re.findall(r"for '(.+)' ELLA pays for: .+", demo.printed)
    language = find("unlock-small").language
    assert sorted(told) == sorted(language.text(i) for i in range(language.num_ids))


def test_success_of_both_and_next_steps_are_printed(demo: Demo) -> None:
    assert re.search(
        r"success over the last 10% of 2,560 frames.*: PPO \d+%, ELLA \d+%", demo.printed
    )
    assert f'ella explain {demo.folder / "ella"} "open the' in demo.printed


def test_a_second_call_trains_nothing_and_shows_the_same(
    demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (demo.folder / "ella" / "metrics.csv").stat().st_mtime_ns
    assert main(demo.words) == 0
    assert (demo.folder / "ella" / "metrics.csv").stat().st_mtime_ns == before
    shown = capsys.readouterr().out
    assert shown == demo.printed[demo.printed.index("wrote") :]
