"""The vectorised environment: automatic resets, final observations, fresh levels."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ella
from ella.adapters.gymnasium_env import EllaEnv
from ella.adapters.gymnasium_vector import EllaVectorEnv
from ella.errors import InputError
from ella.world import TaskSpec, compiled

B = 8
SHORT = TaskSpec("goto-room-short", ("goto",), cols=1, agent_first=True, max_steps=3)
"""Episodes of at most three steps: resets at every turn."""


def make(**options) -> EllaVectorEnv:
    return EllaVectorEnv(B, SHORT, pool_size=2 * B, **options)


def actions(steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(6, size=(steps, B))


@pytest.fixture(scope="module")
def step_all():
    """One action in each of B environments, without resets."""
    world = ella.make(SHORT)
    return jax.jit(jax.vmap(world.step))


def test_make_vec_gives_the_native_environment():
    env = gymnasium.make_vec("ELLA/PutNext-Room-v0", num_envs=64)
    assert isinstance(env, EllaVectorEnv)
    assert env.world == ella.make("putnext-room")
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.single_observation_space["image"].shape == (7, 7, 3)
    assert env.observation_space["image"].shape == (64, 7, 7, 3)
    assert env.observation_space["mission"].shape == (64, env.world.language.max_tokens)
    assert env.action_space.shape == (64,)


@pytest.mark.parametrize("mission", ["tokens", pytest.param("text", marks=pytest.mark.thorough)])
def test_everything_lies_in_the_spaces(mission):
    env = make(mission=mission)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    finals = 0
    for row in actions(8):
        observation, reward, terminated, truncated, infos = env.step(row)
        assert observation in env.observation_space
        for array, kind in ((reward, np.float64), (terminated, np.bool_), (truncated, np.bool_)):
            assert array.shape == (B,)
            assert array.dtype == kind
        for final in infos.get("final_obs", ()):
            if final is not None:
                finals += 1
                assert final in env.single_observation_space
    assert finals >= 2 * B


def test_steps_resets_and_final_observations(step_all):
    env = make()
    env.reset(seed=1)
    ends = 0
    for row in actions(12):
        before = env._vector
        expected = step_all(before.states, row.astype(np.int32))
        observation, reward, terminated, truncated, infos = env.step(row)
        ended = terminated | truncated
        np.testing.assert_array_equal(reward, np.asarray(expected.reward, np.float64))
        np.testing.assert_array_equal(terminated, expected.terminated)
        np.testing.assert_array_equal(truncated, expected.truncated)
        np.testing.assert_array_equal(infos.get("_final_obs", np.zeros(B, bool)), ended)
        image = np.asarray(expected.observation.image)
        for b in range(B):
            if ended[b]:
                final = infos["final_obs"][b]
                np.testing.assert_array_equal(final["image"], image[b])
                old_id = int(before.observation.instruction_id[b])
                assert infos["final_info"]["mission"][b] == env.world.language.text(old_id)
                np.testing.assert_array_equal(
                    final["mission"], np.asarray(before.observation.mission[b])
                )
            else:
                np.testing.assert_array_equal(observation["image"][b], image[b])
            state = jax.tree.map(lambda leaf, b=b: leaf[b], env._vector.states)
            description = ella.world.describe(state)
            assert (description["step_count"] == 0) == ended[b]
            assert infos["mission"][b] == description["mission"]
            assert infos["instruction_id"][b] == int(state.instruction_id)
        ends += ended.sum()
    assert ends >= 4 * B


def test_no_level_is_played_twice():
    env = make()
    env.reset(seed=2)
    seen = []

    def note(new: np.ndarray) -> None:
        states = jax.device_get(env._vector.states)
        for b in np.flatnonzero(new):
            seen.append(states.cells[b].tobytes() + states.agent_pos[b].tobytes())

    note(np.ones(B, bool))
    for row in actions(40):
        _, _, terminated, truncated, _ = env.step(row)
        note(terminated | truncated)
    # Many times the pool's 16 levels.
    assert len(seen) > 100
    assert len(set(seen)) == len(seen)


def test_infos_have_the_form_of_gymnasiums_own_vector_environments():
    theirs = SyncVectorEnv(
        [lambda: EllaEnv("goto-room")] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    _, first = theirs.reset(seed=0)
    steps = 0
    while "final_obs" not in (infos := theirs.step(np.array([6, 6]))[-1]):
        steps += 1
        assert steps < 64
    env = make()
    _, our_first = env.reset(seed=0)
    while "final_obs" not in (our_infos := env.step(np.full(B, 6))[-1]):
        pass

    def form(value):
        if isinstance(value, dict):
            return {key: form(part) for key, part in value.items()}
        return (value.dtype, value.ndim)

    assert form(our_first) == form(first)
    assert form(our_infos) == form(infos)
    mine, other = (
        next(final for final in part["final_obs"] if final is not None)
        for part in (our_infos, infos)
    )
    assert mine.keys() == other.keys()
    assert all(type(mine[key]) is type(other[key]) for key in mine)


def test_seeds_fix_everything():
    def run(seed: int) -> list:
        env = make()
        outcomes = [env.reset(seed=seed), *(env.step(row) for row in actions(10))]
        for *_, infos in outcomes:
            infos["final_obs"] = list(infos.get("final_obs", ()))
        return outcomes

    first, again, other = run(3), run(3), run(4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert np.any(first[0][0]["image"] != other[0][0]["image"])


def test_environments_differ_from_each_other():
    observation, _ = make().reset(seed=0)
    assert len({image.tobytes() for image in observation["image"]}) > B // 2


def test_what_is_handed_out_is_the_callers():
    env = make()
    observation, infos = env.reset(seed=0)
    observation["image"][:] = 99
    infos["mission"][:] = "overwritten"
    after, *_, later = env.step(np.full(B, 6))
    assert after["image"].max() <= 10
    assert "overwritten" not in later["mission"]


def test_instances_share_compiled_programs():
    make().reset(seed=0)
    sizes = compiled.start._cache_size(), compiled.step_vector._cache_size()
    env = make()
    env.reset(seed=9)
    env.step(np.zeros(B, int))
    assert (compiled.start._cache_size(), compiled.step_vector._cache_size()) == sizes


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full(B, 7), "from 0 to 6, got 7 for environment 0"),
        (np.array([0] * (B - 1) + [-1]), f"from 0 to 6, got -1 for environment {B - 1}"),
        (np.zeros(B), "actions are 8 integers, got float64"),
        (np.zeros(3, int), r"got int64\[3\]"),
    ],
)
def test_bad_actions_are_one_clear_error(bad, message):
    env = make()
    env.reset(seed=0)
    with pytest.raises(InputError, match=message) as caught:
        env.step(bad)
    assert "\n" not in str(caught.value)


def test_bad_options_are_clear_errors():
    with pytest.raises(InputError, match=r"call reset\(\) first"):
        make().step(np.zeros(B, int))
    with pytest.raises(InputError, match="pool_size must be >= num_envs = 8, got 4"):
        EllaVectorEnv(B, SHORT, pool_size=4)
    with pytest.raises(InputError, match="num_envs must be >= 1, got"):
        EllaVectorEnv(0, SHORT)
    with pytest.raises(InputError, match="unknown render mode"):
        make(render_mode="human")
    with pytest.raises(InputError, match="reset_mask"):
        make().reset(options={"reset_mask": np.ones(B, bool)})


def test_rendering_draws_every_environment():
    env = make(render_mode="rgb_array", tile_size=4)
    env.reset(seed=0)
    pictures = env.render()
    assert len(pictures) == B
    assert {picture.shape for picture in pictures} == {(32, 32, 3)}
    assert len({picture.tobytes() for picture in pictures}) == B


def test_reset_takes_a_mission_for_the_first_episodes():
    env = make(mission="text")
    text = "go to a blue key"
    observation, infos = env.reset(seed=3, options={"mission": text})
    assert observation["mission_text"] == (text,) * B
    assert list(infos["mission"]) == [text] * B
    assert observation in env.observation_space
    assert len({image.tobytes() for image in observation["image"]}) > B // 2
    again, _ = env.reset(seed=3, options={"mission": text})
    jax.tree.map(np.testing.assert_array_equal, observation, again)
    later = set()
    for row in actions(6):
        *_, infos = env.step(row)
        later |= set(infos["mission"])
    assert len(later) > 5


def test_fixed_levels_are_played_again_and_again():
    env, single = make(levels=[3, 5]), EllaEnv(SHORT)
    expected = {single.reset(seed=seed)[0]["image"].tobytes() for seed in (3, 5)}
    observation, _ = env.reset(seed=0)
    first = [image.tobytes() for image in observation["image"]]
    starts = list(first)
    for row in actions(40):
        observation, _, terminated, truncated, _ = env.step(row)
        starts += [
            observation["image"][b].tobytes() for b in np.flatnonzero(terminated | truncated)
        ]
    # Many times the pool's 16 levels.
    assert len(starts) > 100
    assert set(starts) == expected
    assert 0.3 < np.mean([start == starts[0] for start in starts]) < 0.7
    again, _ = env.reset(seed=0)
    assert [image.tobytes() for image in again["image"]] == first


def test_one_seed_for_each_environment_gives_the_levels_of_single_environments():
    env, single, seeds = make(), EllaEnv(SHORT), [7, 3, 3, *range(20, 20 + B - 3)]

    def run(seeds) -> list[np.ndarray]:
        observation, _ = env.reset(seed=seeds)
        return [observation["image"], *(env.step(row)[0]["image"] for row in actions(10))]

    first = run(seeds)
    for image, seed in zip(first[0], seeds, strict=True):
        np.testing.assert_array_equal(image, single.reset(seed=seed)[0]["image"])
    np.testing.assert_array_equal(run(np.array(seeds)), first)
    # The last environment has another level; then the later levels are others for all.
    other = run([*seeds[:-1], 99])
    np.testing.assert_array_equal(other[0][:-1], first[0][:-1])
    assert any((one[:-1] != two[:-1]).any() for one, two in zip(other, first, strict=True))


def test_options_that_vector_environments_do_not_take():
    with pytest.raises(InputError, match=f"seeds must be one or {B}, got 2"):
        make().reset(seed=[1, 2])
    with pytest.raises(InputError, match="an integer >= 0, got None"):
        make().reset(seed=[None] * B)
    with pytest.raises(InputError, match="give one seed"):
        make(levels=3).reset(seed=[1] * B)
    with pytest.raises(InputError, match="unknown option of reset 'level'"):
        make().reset(options={"level": 3})
    with pytest.raises(InputError, match="fixed levels"):
        make(levels=3).reset(options={"mission": "go to the red ball"})
