"""Methods from outside the package: options, config.json, the report, sums, real training."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY, settings_file

from ella.training.settings import LogSettings

SETTINGS = replace(
    TINY,
    frames=4 * FRAMES_PER_ITERATION,
    log=LogSettings(every=2 * FRAMES_PER_ITERATION, tensorboard=False),
)


PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
import ella

@dataclass(frozen=True)
class Homesick(ella.Method):
    """HOMESICK: a bonus for turning."""
    name: ClassVar[str] = "homesick"
    label: ClassVar[str] = "Homesick"
    turning: float = 0.5
    """The bonus for one turn, in units of the scaled reward."""
    left_only: bool = False
    """Whether turning right pays nothing."""

    def build(self, context):
        import equinox as eqx, jax.numpy as jnp
        from ella.measurement import mean_of

        class Shaper(ella.AbstractRewardShaper):
            turning: float
            left_only: bool = eqx.field(static=True)
            def init(self, num_envs, *, key):
                return ()
            def shape(self, state, trajectory):
                turned = trajectory.action < (1 if self.left_only else 2)
                return state, self.turning * turned, {"turned": mean_of(turned)}
            def fit(self, state, trajectory, iteration, *, key):
                return state, {}

        return Shaper(self.turning, self.left_only)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with an installed package that offers a method."""
    package = tmp_path_factory.mktemp("site")
    information = package / "ella_homesick-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ella-homesick\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text("[ella.methods]\nhomesick = homesick:Homesick\n")
    (package / "homesick.py").write_text(PLUGIN)
    return package


def ella_commands(plugin, *commands):
    # The package is put on the path as an installation would, in a process of its own.
    start = f"import sys; sys.path.insert(0, {str(plugin)!r}); from ella.cli import main; "
    typed = [[str(word) for word in words] for words in commands]
    return subprocess.run(
        [sys.executable, "-c", start + f"sys.exit(max([main(words) for words in {typed!r}]))"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.thorough
def test_an_installed_method_has_options_like_a_built_in_one(plugin):
    said = ella_commands(
        plugin,
        ("train", "--help"),
        ("train", "goto-small", "--out", "x", "--homesick.turning", "1"),
        ("train", "goto-small", "--out", "x", "--method", "homesick", "--homesick.turning", "no"),
    )
    assert "--homesick.turning X" in said.stdout
    assert "The bonus for one turn" in " ".join(said.stdout.split())
    assert "--homesick.left-only" in said.stdout
    assert said.returncode == 2
    first, second = said.stderr.splitlines()
    assert "--homesick.turning is an option of method homesick" in first
    assert "--homesick.turning" in second
    assert "'no'" in second


def training(tmp_path, name, *words):
    config = settings_file(tmp_path / "config.json", SETTINGS)
    out = tmp_path / "runs" / name
    return ("train", "goto-small", "--config", config, *words, "--out", out)


@pytest.mark.thorough
def test_an_installed_method_trains_in_a_sum_and_is_compared(plugin, whole, tmp_path):
    shutil.copytree(whole.directory, tmp_path / "runs" / "ppo")
    done = ella_commands(
        plugin,
        training(
            tmp_path, "sum",
            "--method", "ride+homesick", "--homesick.turning", "0.25", "--homesick.left-only",
        ),
        ("report", tmp_path / "runs", "--out", tmp_path / "report"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "runs" / "sum" / "config.json").read_text())
    assert saved["homesick"] == {"turning": 0.25, "left_only": True}
    assert "ride" in saved
    with (tmp_path / "runs" / "sum" / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    own = float(last["bonus"]) - float(last["ride_bonus"])
    assert own == pytest.approx(0.25 * float(last["turned"]), rel=1e-3)
    assert own > 0
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert '"labels":["PPO","RIDE + Homesick"]' in page
