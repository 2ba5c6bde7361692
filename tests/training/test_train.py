"""Training as a function: no files, pure functions of keys, sweeps over numbers."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY, values

import ella
from ella.episodes.trained import trained_actor
from ella.errors import InputError
from ella.measurement import count_of, mean_of
from ella.networks.actor_critic import ActorCritic
from ella.training.assembly import build_shaper
from ella.training.program import training_key
from ella.training.pure import _with_settings
from ella.world import compiled
from ella.world.encoding import FORWARD
from ella.world.tasks import find

ITERATIONS, EVERY = 6, 3
TINY_TRAINING = {
    "frames": ITERATIONS * FRAMES_PER_ITERATION,
    "ppo": TINY.ppo,
    "log_every": EVERY * FRAMES_PER_ITERATION,
}


@pytest.fixture(scope="module")
def result() -> ella.TrainingResult:
    lines = []
    found = ella.train("goto-small", seeds=2, on_log_line=lines.append, **TINY_TRAINING)
    assert [line.frames for line in lines] == found.frames.tolist()
    return found


def test_train_returns_metrics_of_every_seed_and_log_line(result, whole):
    assert result.frames.tolist() == [96, 192]
    assert result.success_rate.shape == (2, 2)
    run = values(whole.directory)
    for name, found in result.metrics.items():
        expected = run[name].reshape(-1, 2)[:2]
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_a_policy_is_saved_loaded_and_evaluated(result, tmp_path):
    result.policy(1).save(tmp_path / "agent")
    policy = ella.load_policy(tmp_path / "agent.safetensors")
    assert (policy.seed, policy.frames) == (1, 192)
    found = ella.evaluate(policy, episodes=8)
    assert found.success.shape == (8,)
    with pytest.raises(InputError, match="seed index must lie in"):
        result.policy(2)


def test_a_policy_acts_as_it_does_saved_and_loaded(result, tmp_path):
    timestep = compiled.reset(ella.make("goto-small"), jax.random.key(0))
    result.policy(0).save(tmp_path / "agent")
    loaded = ella.load_policy(tmp_path / "agent.safetensors")
    own, other = (
        [trained_actor(policy, jax.random.key(seed))(timestep) for seed in range(8)]
        for policy in (result.policy(0), loaded)
    )
    assert own == other
    assert len(set(own)) > 1


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

    price: float = 0.25

    def build(self, context):
        return WanderlustShaper(self.price)


class RentShaper(ella.AbstractRewardShaper):
    """Every step costs, and more so in later rollouts."""

    rent: float

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        rent = jnp.zeros_like(trajectory.reward) - self.rent * (state + 1).astype(jnp.float32)
        return state + 1, rent, {"rent": mean_of(rent)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@dataclass(frozen=True)
class Rent(ella.Method):
    name: ClassVar[str] = "rent"
    label: ClassVar[str] = "Rent"

    rent: float = 0.01

    def build(self, context):
        return RentShaper(self.rent)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_pure_function_of_a_sum_of_methods_trains_as_the_program_for_any_numbers(result):
    """A sweep whose rows that pay nothing are the seeds of `result`, in which PPO's numbers are
    compiled in; the last row has bonuses and a learning rate of its own."""
    train = ella.training_function("goto-small", Wanderlust() + Rent(), **TINY_TRAINING)
    rate = TINY.ppo.learning_rate
    numbers = {
        "wanderlust.price": jnp.array([0.0, 0.0, 0.125]),
        "rent.rent": jnp.array([0.0, 0.0, 0.02]),
        "ppo.learning_rate": jnp.array([rate, rate, 0.0]),
    }
    keys = jnp.stack([training_key(seed) for seed in (0, 1, 1)])
    states, metrics = jax.jit(jax.vmap(train))(keys, numbers)
    assert metrics["loss"].shape == (3, 2)
    for name in ("loss", "entropy", "episode_length", "value_loss"):
        np.testing.assert_allclose(
            metrics[name][:2].T, result.metrics[name], rtol=1e-4, err_msg=name
        )
    trained = jax.tree.leaves(states.network)
    for found, expected in zip(trained, jax.tree.leaves(result.states.network), strict=True):
        np.testing.assert_allclose(found[:2], expected, rtol=1e-3, atol=1e-5)
    drawn = jax.tree.leaves(drawn_network(training_key(1)))
    for found, start in zip(trained, drawn, strict=True):
        np.testing.assert_array_equal(found[2], start)

    # The parts' bonuses add up to what the learner was given.
    forward = metrics["steps_forward"]
    assert ((forward > 0) & (forward < FRAMES_PER_ITERATION)).all()
    assert (metrics["steps_forward_so_far"] > forward).all()
    np.testing.assert_allclose(metrics["rent"][2], [-0.02 * 2, -0.02 * 5], rtol=1e-5)
    paid = 0.125 * forward[2] / FRAMES_PER_ITERATION + metrics["rent"][2]
    np.testing.assert_allclose(metrics["bonus"], [[0, 0], [0, 0], paid], rtol=1e-3, atol=1e-6)


class DearShaper(RentShaper):
    def start_problems(self, state):
        return {"the rent is too high": jnp.asarray(self.rent) > 1, "unfurnished": state < 0}


@dataclass(frozen=True)
class Dear(Rent):
    name: ClassVar[str] = "dear"

    def build(self, context):
        return DearShaper(self.rent)


@pytest.mark.slow
def test_the_pure_function_measures_nothing_of_a_start_that_training_refuses():
    with pytest.raises(InputError, match="seed 0: the rent is too high"):
        ella.train("goto-small", Dear(rent=2.0), **TINY_TRAINING)
    train = ella.training_function("goto-small", Dear(), **TINY_TRAINING)
    numbers = {"dear.rent": jnp.array([0.01, 2.0])}
    metrics = jax.jit(jax.vmap(train, in_axes=(None, 0)))(training_key(0), numbers)[1]
    np.testing.assert_array_equal(metrics.pop("start_refused"), [[0, 0], [1, 1]])
    assert np.isfinite(metrics["loss"][0]).all()
    assert all(np.isnan(metric[1]).all() for metric in metrics.values())


@jax.jit
def drawn_network(key: jax.Array) -> ActorCritic:
    """The network of a seed before training."""
    return ActorCritic(TINY.ppo.network, key=jax.random.split(key, 4)[0])


class DebtShaper(RentShaper):
    discount: float
    reward_scale: float


@dataclass(frozen=True)
class Debt(Rent):
    """Takes numbers of the learner."""

    name: ClassVar[str] = "debt"

    def build(self, context):
        return DebtShaper(self.rent, context.ppo.discount, context.ppo.reward_scale)


def test_a_swept_discount_is_shared_with_the_methods_that_take_it_from_the_learner():
    numbers = {"rnd.discount": 0.75, "ppo.discount": 0.5, "ppo.reward_scale": 3.0}
    for method in (ella.RND() + Debt(), Debt(), ella.RND()):
        settings = replace(TINY, method=method)
        shaper = build_shaper(find("goto-small"), settings)
        swept = {name: numbers[name] for name in ("ppo.discount", "ppo.reward_scale")}
        ppo, changed = _with_settings(settings, shaper, swept)
        assert (ppo.discount, ppo.reward_scale) == (0.5, 3.0)
        parts = changed.parts if isinstance(changed, ella.Sum) else {method.name: changed}
        if "debt" in parts:
            assert (parts["debt"].discount, parts["debt"].reward_scale) == (0.5, 3.0)
        if "rnd" in parts:
            assert parts["rnd"].discount == ella.RND().discount
            _, changed = _with_settings(settings, shaper, numbers)
            rnd = changed.parts["rnd"] if isinstance(changed, ella.Sum) else changed
            assert rnd.discount == 0.75


def test_numbers_that_cannot_be_swept_are_named():
    train = ella.training_function("goto-small", ella.RIDE(), **TINY_TRAINING)
    with pytest.raises(
        InputError, match=r"unknown number to sweep 'ride.coeficient'; did you mean"
    ):
        train(training_key(0), {"ride.coeficient": 1.0})
    with pytest.raises(InputError, match=r"ppo.num_envs"):
        train(training_key(0), {"ppo.num_envs": 1.0})
    with pytest.raises(InputError, match=r"learning_rate must be > 0"):
        train(training_key(0), {"ppo.learning_rate": -1.0})


def test_a_method_without_its_brackets_and_endless_frames_are_refused():
    with pytest.raises(InputError, match=r"the class RIDE; give RIDE\(\)"):
        ella.train("goto-small", ella.RIDE)
    with pytest.raises(InputError, match=r"frames must be <= 1e\+15"):
        ella.train("goto-small", frames=10**300)


def test_every_public_name_is_there():
    for name in ella.__all__:
        assert getattr(ella, name) is not None
    assert set(ella.__all__) <= set(dir(ella))
    with pytest.raises(AttributeError):
        ella.no_such_name  # noqa: B018
