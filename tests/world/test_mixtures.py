"""Mixtures: one language, padded levels, and shares that follow the weights."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.errors import InputError
from ella.world.environment import VectorState
from ella.world.grammar import sentence_of, tokenise
from ella.world.mixtures import Mixture, attempts, with_also
from ella.world.state import State
from ella.world.tasks import TaskSpec, find

ROOM = TaskSpec("a-room", ("goto",), cols=1, room_size=5, distractors=2, agent_first=True)
MAZE = TaskSpec("a-maze", ("open", "pickup"), room_size=5, distractors=2, form="sequence")
MIXTURE = Mixture((MAZE, ROOM), (1.0, 3.0))
ENV = ella.make(MIXTURE)
N = 64


@pytest.fixture(scope="module")
def vector() -> VectorState:
    """Environments with N levels of the mixture."""
    return jax.jit(partial(ENV.start, num_envs=4, pool_size=N))(jax.random.key(0))


@pytest.fixture(scope="module")
def levels(vector: VectorState) -> State:
    return jax.device_get(vector.pool.levels)


def parts_of(ids) -> np.ndarray:
    return np.asarray(MIXTURE.language.part_of(jnp.asarray(ids)))


@pytest.fixture(scope="module")
def parts(levels):
    return parts_of(levels.instruction_id)


def test_ids_of_the_parts_follow_one_another() -> None:
    language = MIXTURE.language
    assert language.num_ids == MAZE.language.num_ids + ROOM.language.num_ids
    assert language.num_instructions == sum(
        part.language.num_instructions for part in MIXTURE.parts
    )
    ids = language.instruction_ids
    tokens = np.asarray(jax.jit(language.tokens)(ids))
    arrays = jax.device_get(jax.jit(language.decode)(ids))
    assert tokens.shape == (len(ids), MAZE.language.max_tokens)
    for row in range(0, len(ids), 37):
        part = int(ids[row] >= MAZE.language.num_ids)
        own = MIXTURE.parts[part].language.text(int(ids[row]) - part * MAZE.language.num_ids)
        assert language.text(int(ids[row])) == own
        assert tokens[row][tokens[row] > 0].tolist() == tokenise(own)
        one = jax.tree.map(lambda leaf, row=row: leaf[row], arrays)
        assert sentence_of(one).text == own
        assert language.find(own) == ids[row]


def test_the_target_s_ids_are_its_own() -> None:
    ids = MAZE.language.instruction_ids[:50]
    assert [MIXTURE.language.text(int(i)) for i in ids] == [MAZE.language.text(int(i)) for i in ids]


def test_levels_are_those_of_the_parts_with_walls_around(levels, parts) -> None:
    """What an agent sees and gets in a padded level is what it does in the part's own."""
    assert set(parts) == {0, 1}
    assert levels.cells.shape == (N, MAZE.width, MAZE.height)
    step = jax.jit(ENV.step)
    for index, spec in enumerate(MIXTURE.parts):
        own = ella.make(spec)
        own_step = jax.jit(own.step)
        for row in np.flatnonzero(parts == index)[:3]:
            level = jax.tree.map(lambda leaf, row=row: leaf[row], levels)
            cut = replace(
                level,
                cells=level.cells[: spec.width, : spec.height],
                remembered_cells=level.remembered_cells[: spec.width, : spec.height],
                instruction_id=level.instruction_id - MIXTURE.language.offsets[index],
            )
            assert ella.world.describe(cut)["mission"] == own.language.text(int(cut.instruction_id))
            assert int(cut.max_steps) in spec.horizons
            for action in np.random.default_rng(row).integers(0, 7, 40):
                after, own_after = step(level, int(action)), own_step(cut, int(action))
                for name in ("reward", "terminated", "truncated"):
                    assert getattr(after, name) == getattr(own_after, name)
                np.testing.assert_array_equal(after.observation.image, own_after.observation.image)
                level, cut = after.state, own_after.state
                if after.terminated | after.truncated:
                    break


@pytest.mark.thorough
def test_shares_follow_the_weights_and_not_the_acceptance() -> None:
    draw = jax.jit(partial(attempts, MIXTURE, n=512))
    for share in (0.1, 0.5, 0.9):
        weights = jnp.array([share, 1 - share])
        made, usable = draw(weights, jax.random.key(1))
        kept = parts_of(made.instruction_id)[np.asarray(usable)]
        assert len(kept) > 200
        assert abs((kept == 0).mean() - share) < 4 * np.sqrt(0.25 / len(kept))


@pytest.mark.thorough
def test_replenish_draws_with_the_weights_it_is_given(vector: VectorState) -> None:
    used = replace(vector, pool=replace(vector.pool, fresh=jnp.int32(8)))
    full = jax.jit(ENV.replenish)(used, jax.random.key(3), jnp.array([0.0, 1.0]))
    ids = np.asarray(full.pool.levels.instruction_id)
    assert int(full.pool.fresh) == N
    np.testing.assert_array_equal(ids[:8], vector.pool.levels.instruction_id[:8])
    assert (parts_of(ids[8:]) == 1).all()
    assert len(np.unique(full.pool.levels.cells, axis=0)) == N


def test_also_names_tasks_and_weights() -> None:
    target = find("unlock-maze")
    assert with_also(target, ()) is target
    mixture = with_also(target, ("goto-room", "pick-maze:2.5"))
    assert [part.name for part in mixture.parts] == ["unlock-maze", "goto-room", "pick-maze"]
    assert mixture.weights == (1.0, 1.0, 2.5)
    assert mixture.horizons == (64, 128)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        (("goto-rom",), "goto-rom"),
        (("goto-room:x",), "not a number"),
        (("goto-room:0",), "must be > 0"),
        (("unlock-maze",), "twice"),
    ],
)
def test_wrong_mixtures_are_refused(also: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_also(find("unlock-maze"), also)
