"""Reset, step, and the vector form with its pool of levels."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.errors import InputError
from ella.world.environment import Transition, VectorState
from ella.world.tasks import TASKS, TaskSpec

# Episodes of at most five steps end often; eight environments and twelve levels soon wrap.
SHORT = ella.make(
    TaskSpec("short-goto", ("goto",), cols=1, room_size=5, distractors=2, agent_first=True,
             max_steps=5)
)  # fmt: skip
B, P = 8, 12
reset = jax.jit(SHORT.reset)
start = jax.jit(partial(SHORT.start, num_envs=B, pool_size=P))
refill = jax.jit(SHORT.refill)
replenish = jax.jit(SHORT.replenish)
step_vector = jax.jit(SHORT.step_vector)
step_all = jax.jit(jax.vmap(SHORT.step))
observe_all = jax.jit(jax.vmap(SHORT.observe))
table_of = jax.jit(SHORT.instruction_table)


def assert_trees_equal(left: Any, right: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, left, right)


def rollout(vector: VectorState, steps: int, seed: int) -> list[tuple[VectorState, Transition]]:
    """The vector states and transitions after each of `steps` random actions."""
    rng = np.random.default_rng(seed)
    history = []
    for _ in range(steps):
        vector, transition = step_vector(vector, jnp.asarray(rng.integers(0, 7, B), jnp.int32))
        history.append((vector, transition))
    return history


def test_reset_starts_an_episode_and_depends_on_the_key_only() -> None:
    first, again, other = (reset(jax.random.key(seed)) for seed in (0, 0, 1))
    assert_trees_equal(first, again)
    assert not np.array_equal(first.state.cells, other.state.cells)
    assert (int(first.state.step_count), float(first.reward)) == (0, 0.0)
    assert not bool(first.terminated | first.truncated)
    seen = observe_all(jax.tree.map(lambda leaf: leaf[None], first.state))
    assert_trees_equal(first.observation, jax.tree.map(lambda leaf: leaf[0], seen))


def test_step_takes_plain_integers_and_does_not_reset() -> None:
    timestep = reset(jax.random.key(0))
    step = jax.jit(SHORT.step)
    for t in range(1, 8):
        timestep = step(timestep.state, 6)
        assert int(timestep.state.step_count) == t
        assert bool(timestep.truncated) == (t >= 5)


def test_environments_are_static_values() -> None:
    assert ella.make("goto-room") == ella.make(TASKS["goto-room"])
    assert hash(ella.make("goto-room")) == hash(ella.make("goto-room"))
    assert ella.make("goto-room") != ella.make("goto-maze")


def test_start_gives_first_observations_and_a_full_pool() -> None:
    vector = start(jax.random.key(0))
    assert vector.first.all()
    assert_trees_equal(vector.observation, observe_all(vector.states))
    assert vector.instruction_row.tolist() == list(range(P, P + B))
    assert int(vector.pool.fresh) == P
    assert len(np.unique(vector.pool.levels.cells, axis=0)) == P


def test_vector_steps_equal_single_steps_and_resets_take_the_next_levels() -> None:
    vector = start(jax.random.key(1))
    pool, head = vector.pool, 0
    rng = np.random.default_rng(2)
    for _ in range(20):
        actions = jnp.asarray(rng.integers(0, 7, B), jnp.int32)
        alone = step_all(vector.states, actions)
        vector, transition = step_vector(vector, actions)
        assert_trees_equal(transition.next_observation, alone.observation)
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(transition, name), getattr(alone, name))
        done = np.asarray(alone.terminated | alone.truncated)
        np.testing.assert_array_equal(vector.first, done)
        expected = jax.tree.map(np.array, alone.state)
        for b in np.flatnonzero(done):
            jax.tree.map(
                lambda leaf, level, b=b, slot=head % P: leaf.__setitem__(b, level[slot]),
                expected,
                jax.device_get(pool.levels),
            )
            head += 1
        assert_trees_equal(vector.states, expected)
        assert_trees_equal(vector.observation, observe_all(vector.states))
    assert head > P, "the test should wrap round the pool"


def test_rows_point_at_the_current_instruction_even_when_the_pool_wraps() -> None:
    vector = start(jax.random.key(3))
    for round_ in range(3):
        table = table_of(vector)
        assert table.ids.shape == (P + B,)
        for later, _ in rollout(vector, 15, seed=round_):
            np.testing.assert_array_equal(
                table.ids[later.instruction_row], later.states.instruction_id
            )
            np.testing.assert_array_equal(
                table.tokens[later.instruction_row], later.observation.mission
            )
            vector = later
        vector = refill(vector, jax.random.key(round_))
        assert vector.instruction_row.tolist() == list(range(P, P + B))


def test_reused_levels_are_counted() -> None:
    vector = start(jax.random.key(4))
    resets = reused = 0
    for later, transition in rollout(vector, 15, seed=0):
        resets += int(later.first.sum())
        reused += int(transition.reused)
        assert int(later.pool.fresh) == max(P - resets, 0)
        assert reused == max(resets - P, 0)
    assert reused > 0


def test_refill_replaces_played_levels_and_keeps_the_others() -> None:
    vector = start(jax.random.key(5))
    history = rollout(vector, 5, seed=1)
    played = sum(int(later.first.sum()) for later, _ in history)
    assert 0 < played < P or int(history[-1][0].pool.fresh) == 0
    before = history[-1][0]
    fresh, head = int(before.pool.fresh), int(before.pool.head)
    after = refill(before, jax.random.key(0))
    kept = (head + np.arange(fresh)) % P
    changed = np.array(
        [
            not np.array_equal(before.pool.levels.cells[slot], after.pool.levels.cells[slot])
            for slot in range(P)
        ]
    )
    assert not changed[kept].any()
    gained = int(after.pool.fresh) - fresh
    assert 0 < gained <= P - fresh
    filled = (head + fresh + np.arange(gained)) % P
    assert changed[filled].mean() > 0.9
    assert int(after.pool.head) == head
    assert_trees_equal(after.pool.observations, observe_all(after.pool.levels))
    assert_trees_equal(after.states, before.states)


def test_refill_of_a_full_pool_changes_no_level() -> None:
    vector = start(jax.random.key(6))
    assert_trees_equal(refill(vector, jax.random.key(1)).pool, vector.pool)


@pytest.mark.thorough
def test_seeds_are_a_vmap() -> None:
    keys = jax.random.split(jax.random.key(7), 2)
    actions = jnp.asarray(np.random.default_rng(0).integers(0, 7, (6, 2, B)), jnp.int32)

    vectors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(start, keys))
    refilled = jax.jit(jax.vmap(SHORT.refill))(vectors, keys)
    together = jax.jit(
        lambda vectors: jax.lax.scan(jax.vmap(SHORT.step_vector), vectors, actions)[0]
    )(refilled)
    for seed, alone in enumerate(map(start, keys)):
        alone = refill(alone, keys[seed])
        for t in range(len(actions)):
            alone, _ = step_vector(alone, actions[t, seed])
        assert_trees_equal(jax.tree.map(lambda leaf, seed=seed: leaf[seed], together), alone)


@pytest.mark.parametrize(("num_envs", "pool_size"), [(0, 4), (4, 0)])
def test_empty_vectors_are_refused(num_envs: int, pool_size: int) -> None:
    with pytest.raises(InputError, match="must be >= 1, got"):
        SHORT.start(jax.random.key(0), num_envs, pool_size)


def described() -> dict[str, Any]:
    """A room with a red ball at (1, 3) and a blue key at (3, 3)."""
    grid = np.full((5, 5, 3), (1, 0, 0), np.uint8)
    grid[[0, -1]] = grid[:, [0, -1]] = (2, 5, 0)
    grid[1, 3], grid[3, 3] = (6, 0, 0), (5, 2, 0)
    return {
        "grid": grid, "agent_pos": (1, 1), "agent_dir": 3, "carrying": None,
        "mission": "go to the red ball", "step_count": 0, "max_steps": 5,
    }  # fmt: skip


def test_description_has_minigrids_terms() -> None:
    description = ella.world.describe(reset(jax.random.key(8)).state)
    assert set(description) == {
        "grid", "agent_pos", "agent_dir", "carrying", "mission", "step_count", "max_steps",
    }  # fmt: skip
    assert description["grid"].shape == (5, 5, 3)
    assert description["grid"].dtype == np.uint8
    assert description["carrying"] is None
    assert description["mission"].startswith("go to ")


def test_load_undoes_describe() -> None:
    state = reset(jax.random.key(8)).state
    assert_trees_equal(ella.world.load(SHORT, ella.world.describe(state)), state)
    assert_trees_equal(ella.world.load(SHORT.spec, ella.world.describe(state)), state)
    held = replace(state, carrying=jnp.uint8(5 | 2 << 4), step_count=jnp.int32(3))
    assert ella.world.describe(held)["carrying"] == ("key", "blue")
    assert_trees_equal(ella.world.load(SHORT, ella.world.describe(held)), held)


def test_load_fills_in_what_may_be_left_out() -> None:
    description = described()
    for name in ("carrying", "step_count", "max_steps"):
        del description[name]
    state = ella.world.load(replace(SHORT.spec, max_steps=None), description)
    assert (int(state.carrying), int(state.step_count), int(state.max_steps)) == (0, 0, 25)


def with_cell(cell: tuple[int, int], triple: tuple[int, int, int]) -> np.ndarray:
    grid = described()["grid"].copy()
    grid[cell] = triple
    return grid


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": np.zeros((8, 8, 3), np.uint8)}, "grids of shape"),
        ({"grid": with_cell((0, 2), (1, 0, 0))}, "outermost cells"),
        ({"grid": with_cell((2, 2), (9, 0, 0))}, "only empty cells, walls, doors"),
        ({"grid": with_cell((2, 2), (6, 7, 0))}, "only empty cells, walls, doors"),
        ({"grid": with_cell((2, 2), (6, 1, 1))}, "only empty cells, walls, doors"),
        ({"agent_pos": (0, 0)}, "cannot stand at"),
        ({"agent_pos": (9, 1)}, "agent_pos x must be in 0..4"),
        ({"agent_pos": 3}, "must be (x, y)"),
        ({"agent_dir": 4}, "agent_dir must be in 0..3"),
        ({"agent_dir": 1.5}, "one integer"),
        ({"mission": "open the red door"}, "not an instruction of this task"),
        ({"mission": "dance"}, "unknown verb 'dance'"),
        ({"carrying": ("door", "red")}, "unknown type to carry"),
        ({"carrying": ("key", "gray")}, "did you mean grey"),
        ({"carrying": "key"}, "None or (type, colour)"),
        ({"max_steps": 0}, "max_steps must be >= 1, got 0"),
        ({"step_count": -1}, "step_count must be >= 0, got -1"),
    ],
)
def test_load_refuses_bad_descriptions_in_one_line(change: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ella.world.load(SHORT, {**described(), **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_names_what_is_missing() -> None:
    description = described()
    del description["mission"]
    with pytest.raises(InputError, match="needs 'mission'"):
        ella.world.load(SHORT, description)


def test_replenish_makes_every_level_fresh_and_keeps_those_not_yet_played() -> None:
    before = rollout(start(jax.random.key(5)), 5, seed=1)[-1][0]
    fresh, head = int(before.pool.fresh), int(before.pool.head)
    assert fresh < P
    after = replenish(before, jax.random.key(0))
    assert (int(after.pool.fresh), int(after.pool.head)) == (P, head)
    kept = (head + np.arange(fresh)) % P
    same = (np.asarray(before.pool.levels.cells) == after.pool.levels.cells).all((1, 2))
    assert same[kept].all()
    assert np.delete(same, kept).mean() < 0.1
    assert_trees_equal(after.pool.observations, observe_all(after.pool.levels))
    assert_trees_equal(after.states, before.states)
    assert after.instruction_row.tolist() == list(range(P, P + B))


@pytest.mark.thorough
def test_replenish_of_one_seed_does_not_depend_on_what_another_played() -> None:
    full = start(jax.random.key(6))
    used = rollout(start(jax.random.key(7)), 12, seed=1)[-1][0]
    keys = jax.random.split(jax.random.key(8), 2)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), full, used)
    together = jax.jit(jax.vmap(SHORT.replenish))(both, keys)
    for seed, alone in enumerate((full, used)):
        one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        assert_trees_equal(one, replenish(alone, keys[seed]))
