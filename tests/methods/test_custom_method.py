"""Methods from outside the package, and sums of methods, in real training."""

import csv
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY

from ella.errors import InputError
from ella.measurement import count_of, mean_of
from ella.methods import registry as methods
from ella.methods.registry import MethodContext, check_method, register
from ella.ppo.iteration import init_train_state
from ella.runs.run import Outcome, train
from ella.shaping.shaper import AbstractRewardShaper
from ella.training.program import training_key
from ella.training.settings import LogSettings
from ella.world.encoding import FORWARD
from ella.world.environment import make
from ella.world.tasks import find

SETTINGS = replace(
    TINY,
    frames=4 * FRAMES_PER_ITERATION,
    log=LogSettings(every=2, tensorboard=False),
)


class Wanderlust(AbstractRewardShaper):
    """A toy: pays for every step forward, and counts them."""

    price: float = eqx.field(static=True)

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        walked = trajectory.action == FORWARD
        state = state + walked.sum(dtype=jnp.int32)
        return state, self.price * walked, {"steps_forward": count_of(walked)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {"steps_forward_so_far": count_of(state)}


class Rent(AbstractRewardShaper):
    """A toy: every step costs, and more so in later rollouts."""

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        rent = jnp.full_like(trajectory.reward, -0.01 * (state + 1))
        return state + 1, rent, {"rent": mean_of(rent)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


class Fussy(AbstractRewardShaper):
    """A toy that will not start with an odd state."""

    def init(self, num_envs, *, key):
        return jax.random.randint(key, (), 0, 100)

    def start_problems(self, state):
        return {"odd numbers will not do": state % 2 == 1}

    def shape(self, state, trajectory):
        return state, jnp.zeros_like(trajectory.reward), {}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


def wanderlust(context: MethodContext) -> AbstractRewardShaper:
    return Wanderlust(0.125)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fussy", "fussy+wanderlust"])
def test_a_start_that_a_method_finds_fault_with_is_refused(method, tmp_path):
    register("wanderlust", wanderlust)
    register("fussy", lambda context: Fussy())
    settings = replace(SETTINGS, method=method, seeds=8)
    with pytest.raises(InputError, match=r"^seed [\d, ]+: odd numbers will not do$") as refused:
        train(find("goto-small"), settings, tmp_path / "run")
    env, shaper = make(find("goto-small")), methods.build_shaper(find("goto-small"), settings)
    odd = []
    for seed in range(8):
        started = init_train_state(env, settings.ppo, shaper, key=training_key(seed)).shaper
        if (started["fussy"] if "+" in method else started) % 2:
            odd.append(str(seed))
    assert str(refused.value).startswith(f"seed {', '.join(odd)}: ")


@pytest.mark.slow
def test_toy_methods_train_in_a_sum(tmp_path):
    register("wanderlust", wanderlust)
    register("rent", lambda context: Rent())
    settings = replace(SETTINGS, method="wanderlust+rent")
    result = train(find("goto-small"), settings, tmp_path / "run")
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


def test_an_installed_package_offers_a_method(tmp_path, monkeypatch):
    package = tmp_path / "site"
    information = package / "ella_homesick-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ella-homesick\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text("[ella.methods]\nhomesick = homesick:build\n")
    (package / "homesick.py").write_text(
        "from ella.shaping.shaper import NoShaping\ndef build(context):\n    return NoShaping()\n"
    )
    with pytest.raises(InputError, match="unknown method 'homesick'"):
        check_method("homesick")
    monkeypatch.syspath_prepend(package)
    assert check_method("ride+homesick") == ("ride", "homesick")
    shaper = methods.build_shaper(find("goto-small"), replace(SETTINGS, method="ride+homesick"))
    state = shaper.init(SETTINGS.ppo.num_envs, key=jax.random.key(0))
    assert set(state) == {"ride", "homesick"}


def test_names_that_cannot_be():
    register("wanderlust", wanderlust)
    for name in ("wanderlust", "ride", "a+b", ""):
        with pytest.raises(InputError):
            register(name, wanderlust)
