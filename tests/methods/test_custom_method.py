"""Methods from outside the package: options, config.json, the report, sums, real training."""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY, settings_file

import ella
from ella.measurement import count_of, mean_of
from ella.runs.training_run import Outcome, train_run
from ella.training.settings import LogSettings
from ella.world.encoding import FORWARD

SETTINGS = replace(
    TINY,
    frames=4 * FRAMES_PER_ITERATION,
    log=LogSettings(every=2 * FRAMES_PER_ITERATION, tensorboard=False),
)


class WanderlustShaper(ella.AbstractRewardShaper):
    """Pays for every step forward, and counts them."""

    price: float

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        walked = trajectory.action == FORWARD
        state = state + walked.sum(dtype=jnp.int32)
        return state, jnp.where(walked, self.price, 0.0), {"steps_forward": count_of(walked)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {"steps_forward_so_far": count_of(state)}


@dataclass(frozen=True)
class Wanderlust(ella.Method):
    """A toy that is not registered anywhere."""

    name: ClassVar[str] = "wanderlust"
    label: ClassVar[str] = "Wanderlust"

    price: float = 0.125

    def build(self, context):
        return WanderlustShaper(self.price)


class RentShaper(ella.AbstractRewardShaper):
    """Every step costs, and more so in later rollouts."""

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        rent = jnp.full_like(trajectory.reward, -0.01) * (state + 1).astype(jnp.float32)
        return state + 1, rent, {"rent": mean_of(rent)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@dataclass(frozen=True)
class Rent(ella.Method):
    name: ClassVar[str] = "rent"
    label: ClassVar[str] = "Rent"

    def build(self, context):
        return RentShaper()


@pytest.mark.slow
def test_toy_methods_train_in_a_sum(tmp_path):
    settings = replace(SETTINGS, method=Wanderlust() + Rent())
    result = train_run("goto-small", settings, tmp_path / "run")
    assert result.outcome == Outcome.FINISHED
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    last = rows[-1]
    forward = float(last["steps_forward"])
    assert 0 < forward < FRAMES_PER_ITERATION
    assert float(last["steps_forward_so_far"]) > forward
    # The parts' bonuses add up to what the learner was given.
    walked = forward / FRAMES_PER_ITERATION
    assert float(last["rent"]) == pytest.approx(-0.01 * 3.5)
    assert float(last["bonus"]) == pytest.approx(0.125 * walked - 0.01 * 3.5, rel=1e-3)


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


def ella_command(plugin, *words):
    # The package is put on the path as an installation would, in a process of its own.
    start = f"import sys; sys.path.insert(0, {str(plugin)!r}); from ella.cli import main; "
    return subprocess.run(
        [sys.executable, "-c", start + f"sys.exit(main({[str(word) for word in words]!r}))"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_method_has_options_like_a_built_in_one(plugin):
    shown = ella_command(plugin, "train", "--help").stdout
    assert "--homesick.turning X" in shown
    assert "The bonus for one turn" in " ".join(shown.split())
    assert "--homesick.left-only" in shown
    refused = ella_command(plugin, "train", "goto-small", "--out", "x", "--homesick.turning", "1")
    assert refused.returncode == 2
    assert "--homesick.turning is an option of method homesick" in refused.stderr


@pytest.mark.slow
def test_an_installed_method_trains_alone_and_in_a_sum_and_is_compared(plugin, tmp_path):
    config = settings_file(tmp_path / "config.json", SETTINGS)
    for name, words in {
        "sum": ("--method", "ride+homesick"),
        "alone": ("--method", "homesick", "--homesick.turning", "0.25", "--homesick.left-only"),
    }.items():
        done = ella_command(
            plugin, "train", "goto-small", "--config", config, *words,
            "--out", tmp_path / "runs" / name,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "runs" / "alone" / "config.json").read_text())
    assert saved["homesick"] == {"turning": 0.25, "left_only": True}
    assert "ride" not in saved
    with (tmp_path / "runs" / "alone" / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["bonus"]) == pytest.approx(0.25 * float(last["turned"]), rel=1e-5)
    drawn = ella_command(plugin, "report", tmp_path / "runs", "--out", tmp_path / "report")
    assert drawn.returncode == 0, drawn.stderr
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert '"labels":["Homesick","RIDE + Homesick"]' in page
