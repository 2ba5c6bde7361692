"""Shapers read whatever observations a trajectory holds, not only BabyAI's."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.measurement import Measurements, mean_of
from ella.methods.noveld import NovelD
from ella.methods.ride import RIDE
from ella.methods.rnd import RND
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper
from ella.shaping.noveld import NoveldShaper
from ella.shaping.relevance import AbstractRelevance
from ella.shaping.ride import RideShaper
from ella.shaping.rnd import RndShaper
from ella.shaping.shaper import AbstractRewardShaper
from ella.shaping.termination import AbstractTermination, LearnedTermination, VisibleTermination
from ella.trajectory import InstructionTable, Trajectory

PLACES = np.array([[0, 1], [1, 1], [2, 1]])
"""Low-level instruction i: visit place i."""
RELEVANT = np.array([[True, False, True], [False, True, False]])
"""By instruction: which visits matter."""


class VisitTermination(AbstractTermination):
    """'Visit place i' is carried out where the agent stands on it."""

    def __call__(self, observation):
        assert observation["position"].ndim == 2
        return (observation["position"][:, None] == PLACES).all(-1)


class TableRelevance(AbstractRelevance):
    """Relevance as `RELEVANT` has it."""

    num_low_level: int = len(PLACES)

    def init(self, *, key):
        return ()

    def relevant(self, state, instructions: InstructionTable):
        return jnp.asarray(RELEVANT)[instructions.ids]

    def pays_everything(self, steps, num_envs):
        return jnp.zeros_like(steps, bool)

    def probability(self, state, ids):
        return jnp.asarray(RELEVANT)[ids].astype(jnp.float32)

    def fit(self, state, dataset, iteration, *, key) -> tuple[tuple[()], Measurements]:
        return state, {}


def walk() -> Trajectory:
    """Two environments walk five steps each. The first carries instruction 1 out, with its last
    step; the second has instruction 0 and comes to no end. Time is the first axis."""
    paths = np.array(
        [
            [[0, 0], [0, 1], [1, 1], [1, 2], [2, 2], [2, 1]],
            [[0, 1], [1, 1], [1, 2], [2, 2], [2, 1], [2, 0]],
        ]
    ).swapaxes(0, 1)
    last = np.array([[False, False]] * 4 + [[True, False]])
    return Trajectory(
        observation={"position": jnp.asarray(paths[:-1])},
        next_observation={"position": jnp.asarray(paths[1:])},
        first=jnp.asarray([[True, True]] + [[False, False]] * 4),
        instruction_row=jnp.zeros((5, 2), jnp.int32).at[:, 1].set(1),
        action=jnp.zeros((5, 2), jnp.int32),
        reward=jnp.asarray(last, jnp.float32),
        terminated=jnp.asarray(last),
        truncated=jnp.zeros((5, 2), bool),
        instructions=InstructionTable(jnp.asarray([1, 0]), jnp.zeros((2, 1), jnp.int32)),
    )


@pytest.mark.parametrize("last_state", [False, True])
def test_ella_pays_for_low_level_instructions_of_a_world_without_images(last_state):
    shaper = EllaShaper(
        termination=VisitTermination(), relevance=TableRelevance(), bonus=1.0, discount=0.5,
        reward_scale=1.0, recheck=True, neutralise=True, last_state=last_state, num_ids=2,
    )  # fmt: skip
    state, bonus, measured = jax.jit(lambda state, walk: shaper.shape(state, walk))(
        shaper.init(2, key=jax.random.key(0)), walk()
    )
    # The first is paid for place 1 and charged twice over, by 1 / discount = 2 a step; the second
    # is paid for places 0 and 2. Nobody is paid for what the last action shows.
    np.testing.assert_allclose(bonus, [[0, 1], [0, 0], [1, 0], [0, 0], [-4, 1]])
    found = relevance_dataset.decompositions(state.dataset, jnp.arange(2), len(PLACES))
    np.testing.assert_array_equal(found, [[0, 0, 0], [1, 1, last_state]])
    assert float(measured["bonus_per_episode"].count) == 1


def test_the_documented_shaper_reads_an_observation_of_its_own():
    _, example = inspect.getdoc(AbstractRewardShaper).split("::\n")
    names = {"AbstractRewardShaper": AbstractRewardShaper, "jnp": jnp, "mean_of": mean_of}
    exec(inspect.cleandoc(example), names)
    shaper = names["DistanceShaper"](coefficient=0.5)
    _, bonus, _ = shaper.shape(shaper.init(2, key=jax.random.key(0)), walk())
    np.testing.assert_allclose(bonus, np.full((5, 2), 0.5))


@pytest.mark.parametrize(
    "shaper",
    [
        RideShaper(horizon=4, **RIDE().values()),
        RndShaper(**RND(features=8).values()),
        NoveldShaper(horizon=4, **NovelD(channels=(8, 8, 8), width=8, features=8).values()),
    ],
    ids=lambda shaper: type(shaper).__name__,
)
def test_methods_that_read_images_refuse_observations_without(shaper):
    with pytest.raises(InputError, match="'image', which dict does not have"):
        jax.eval_shape(lambda key: shaper.shape(shaper.init(2, key=key), walk()), jax.random.key(0))


@pytest.mark.parametrize("termination", [VisibleTermination(()), LearnedTermination(None)])
def test_terminations_that_read_images_refuse_observations_without(termination):
    with pytest.raises(InputError, match="'image', which dict does not have"):
        termination(walk().observation)
