"""A program that is compiled while its shapers' offline stage runs trains with their weights."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from ella.errors import InputError
from ella.measurement import mean_of
from ella.methods.method import BuildContext, Method
from ella.shaping.shaper import AbstractRewardShaper
from ella.training.ahead import assembled, compiles_ahead
from ella.training.assembly import build_shaper, training_environment
from ella.training.train import train_settings
from ella.world.tasks import find
from tests.tiny_runs import FRAMES_PER_ITERATION, TINY

TASK = find("goto-small")


class LearnedBonus(AbstractRewardShaper):
    """Pays what an offline stage found, at every step, and keeps it in its state."""

    amount: Float[Array, ""]

    def init(self, num_envs, *, key):
        return self.amount

    def shape(self, state, trajectory):
        bonus = jnp.broadcast_to(self.amount, trajectory.reward.shape)
        return state, bonus, {"kept": mean_of(state)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@dataclass(frozen=True)
class LearnedOffline(Method):
    """A method with an offline stage."""

    name: ClassVar[str] = "learned-offline"
    label: ClassVar[str] = "learned offline"
    amount: float = 0.5

    def build(self, context: BuildContext) -> LearnedBonus:
        return LearnedBonus(jnp.asarray(self.amount if context.trained else 0.0, jnp.float32))


def settings(amount: float = 0.5):
    return replace(TINY, frames=2 * FRAMES_PER_ITERATION, method=LearnedOffline(amount))


@pytest.mark.thorough
def test_start_and_loop_use_the_weights_of_the_offline_stage():
    assert compiles_ahead()
    result = train_settings(TASK, settings())
    np.testing.assert_array_equal(result.metrics["bonus"], 0.5)
    np.testing.assert_array_equal(result.metrics["kept"], 0.5)


@pytest.mark.thorough
def test_members_whose_offline_stages_differ_are_not_merged():
    env = training_environment(TASK, settings())

    def build(trained: bool) -> list[AbstractRewardShaper]:
        return [build_shaper(TASK, settings(x), trained=trained) for x in (0.5, 0.25)]

    program, sweeps = assembled(settings(), env, [(0,), (1,)], build)
    assert [sweep.members for sweep in sweeps] == [(0,), (1,)]
    program.prepare()
    np.testing.assert_array_equal([state.shaper[0] for state in program.start()], [0.5, 0.25])


def test_errors_of_the_compilation_are_raised():
    def build(trained: bool) -> list[AbstractRewardShaper]:
        if not trained:
            raise InputError("too large")
        return [LearnedBonus(jnp.zeros(()))]

    with pytest.raises(InputError, match="too large"):
        assembled(settings(), training_environment(TASK, settings()), [(0,)], build)
