"""The single environment under Gymnasium's and Stable-Baselines3's own checks."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ella
from ella.adapters.gymnasium_env import EllaEnv, observation_space
from ella.adapters.gymnasium_registration import ENVIRONMENT_IDS, register_all
from ella.errors import InputError
from ella.world import compiled
from ella.world.encoding import DONE
from ella.world.grammar import tokenise
from ella.world.tasks import find

GOTO_ROOM = "ELLA/GoTo-Room-v0"


def test_every_task_of_the_paper_has_an_id():
    assert set(ENVIRONMENT_IDS) == {
        "goto-room", "goto-maze", "open-maze", "pick-maze", "opengoto-maze", "putnext-room",
        "putnext-maze", "unlock-maze", "openpick-maze", "combo-maze", "sequence-maze",
    }  # fmt: skip
    for task, environment_id in ENVIRONMENT_IDS.items():
        assert environment_id.lower() == f"ella/{task}-v0"
        env = gymnasium.make(environment_id)
        assert env.unwrapped.world == ella.make(task)
        assert env.spec.max_episode_steps is None


def test_registering_again_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_all()


@pytest.mark.thorough
def test_ella_works_without_gymnasium_and_starts_no_jax():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import ella\n"
        "assert 'jax' not in sys.modules\n"
        "print(ella.make('goto-room').spec.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "goto-room\n"


@pytest.mark.parametrize("mission", ["tokens", "text"])
def test_gymnasiums_checker_is_content(mission):
    env = gymnasium.make(GOTO_ROOM, mission=mission, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_stable_baselines3s_checker_has_no_other_complaint_than_small_images():
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It takes every array of three axes for a picture, and says what pictures need.
        warnings.filterwarnings("ignore", ".*(is an image but the|minimal resolution for an image)")
        check_for_sb3(gymnasium.make(GOTO_ROOM).unwrapped)


@pytest.mark.parametrize("task", ENVIRONMENT_IDS)
def test_every_instruction_lies_in_the_spaces(task):
    language = find(task).language
    space = observation_space(language, "text")
    drawn = np.random.default_rng(0).integers(language.num_ids, size=400, dtype=np.int32)
    ids = drawn[language.is_valid(drawn)]
    assert len(ids) > 100
    for text in (language.text(int(i)) for i in ids):
        tokens = np.zeros(space["mission"].shape, np.int32)
        words = tokenise(text)
        tokens[: len(words)] = words
        assert tokens in space["mission"]
        assert text in space["mission_text"]


def test_the_image_is_not_taken_for_a_photograph():
    space = observation_space(find("goto-room").language, "tokens")["image"]
    np.testing.assert_array_equal(space.high[0, 0], [10, 5, 2])
    assert space.dtype == np.uint8


def walk(env: gymnasium.Env, seed: int, steps: int = 20) -> list:
    """Observations and infos of two episodes' beginnings under seeded random actions."""
    actions = np.random.default_rng(7).integers(6, size=2 * steps)
    seen = [env.reset(seed=seed)]
    for index, action in enumerate(actions):
        seen.append(env.step(int(action)) if index != steps else env.reset())
    return seen


def test_seeds_fix_levels_and_all_later_resets():
    first, again, other = (walk(gymnasium.make(GOTO_ROOM), seed) for seed in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert any(np.any(a[0]["image"] != b[0]["image"]) for a, b in zip(first, other, strict=True))
    assert np.any(first[0][0]["image"] != first[21][0]["image"])


def test_steps_are_the_worlds():
    env = gymnasium.make(GOTO_ROOM, mission="text").unwrapped
    observation, info = env.reset(seed=5)
    state = env._state
    for action in np.random.default_rng(0).integers(7, size=30):
        expected = compiled.step(env.world, state, np.int32(action))
        observation, reward, terminated, truncated, info = env.step(action)
        state = expected.state
        np.testing.assert_array_equal(observation["image"], expected.observation.image)
        np.testing.assert_array_equal(observation["mission"], expected.observation.mission)
        assert observation["direction"] == int(expected.observation.direction)
        assert (reward, terminated, truncated) == (
            float(expected.reward), bool(expected.terminated), bool(expected.truncated),
        )  # fmt: skip
        description = ella.world.describe(state)
        assert info["mission"] == observation["mission_text"] == description["mission"]
        assert env.world.language.find(info["mission"]) == info["instruction_id"]


def test_an_idle_episode_is_truncated_at_its_horizon():
    env = gymnasium.make(GOTO_ROOM)
    lengths = []
    for seed in range(3):
        env.reset(seed=seed)
        steps, over = 0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(DONE)
            steps, over = steps + 1, terminated or truncated
        if truncated:
            assert reward == 0.0
            lengths.append(steps)
    assert lengths
    assert set(lengths) == {64}


@pytest.mark.parametrize("action", [7, -1, 1.5, "left", None, np.array([1, 2])])
def test_actions_outside_the_space_are_one_clear_error(action):
    env = gymnasium.make(GOTO_ROOM, disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(InputError, match="an action is an integer from 0 to 6") as caught:
        env.step(action)
    assert "\n" not in str(caught.value)


def test_bad_options_are_clear_errors():
    with pytest.raises(InputError, match="unknown task 'goto-rom'; did you mean goto-room"):
        EllaEnv("goto-rom")
    with pytest.raises(InputError, match="unknown kind of mission 'word'"):
        EllaEnv("goto-room", mission="word")
    with pytest.raises(InputError, match="unknown render mode 'rgb'; did you mean rgb_array"):
        EllaEnv("goto-room", render_mode="rgb")
    with pytest.raises(InputError, match=r"call reset\(\) first"):
        EllaEnv("goto-room").step(0)


def test_pictures_follow_the_agent():
    env = gymnasium.make(GOTO_ROOM, render_mode="rgb_array", tile_size=8)
    env.reset(seed=0)
    before = env.render()
    env.step(0)
    after = env.render()
    assert before.shape == after.shape == (64, 64, 3)
    assert np.any(before != after)


def test_text_pictures_have_the_mission_and_one_line_a_row():
    env = gymnasium.make(GOTO_ROOM, render_mode="ansi")
    _, info = env.reset(seed=0)
    lines = env.render().split("\n")
    assert len(lines) == 8 + 1
    assert lines[-1] == info["mission"]
    assert sum(any(arrow in line for arrow in "►▼◄▲") for line in lines) == 1


@pytest.mark.thorough
def test_stable_baselines3_trains_on_it():
    import torch
    from stable_baselines3 import PPO

    torch.manual_seed(0)
    model = PPO(
        "MultiInputPolicy",
        gymnasium.make(GOTO_ROOM),
        n_steps=128,
        batch_size=64,
        n_epochs=1,
        seed=0,
    )
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(256)
    assert model.num_timesteps == 256
    changes = [
        (new - old).abs().max().item()
        for old, new in zip(before, model.policy.parameters(), strict=True)
    ]
    assert max(changes) > 0
    assert np.isfinite(changes).all()
    # The symbols are flattened as they are, not sent through an image network.
    assert model.policy.features_extractor.extractors["image"].__class__.__name__ == "Flatten"


@pytest.mark.parametrize("text", ["go to the red ball", "go to a grey key"])
def test_reset_takes_a_mission(text):
    env = gymnasium.make(GOTO_ROOM, mission="text")
    seen = [env.reset(seed=4, options={"mission": text}) for _ in range(2)]
    jax.tree.map(np.testing.assert_array_equal, *seen)
    observation, info = seen[0]
    assert info["mission"] == observation["mission_text"] == env.unwrapped.mission == text
    np.testing.assert_array_equal(observation["mission"][: len(tokenise(text))], tokenise(text))
    assert env.observation_space.contains(observation)
    other, _ = env.reset(options={"mission": text})
    assert np.any(other["image"] != observation["image"])
    # The episode is won by doing what the mission says.
    done = False
    while not done:
        action = int(compiled.expert_action(env.unwrapped.world, env.unwrapped._state))
        _, reward, done, truncated, info = env.step(action)
        assert not truncated
        assert info["mission"] == text
    assert reward > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mission": "open the red door"}, "is not an instruction of this task; one is 'go to"),
        ({"mission": "go to the pink ball"}, "unknown colour 'pink'"),
        ({"mission": 3}, "the option mission must be an instruction, got 3"),
        (
            {"misson": "go to the red ball"},
            "unknown option of reset 'misson'; did you mean mission",
        ),
        ({"level": -1}, "an integer >= 0, got -1"),
        ({"level": "a"}, "an integer >= 0, got 'a'"),
    ],
)
def test_bad_reset_options_are_one_line(options, message):
    env = EllaEnv("goto-room")
    with pytest.raises(InputError, match=message) as caught:
        env.reset(seed=0, options=options)
    assert "\n" not in str(caught.value)


def test_a_level_can_be_asked_for_without_changing_those_that_follow():
    env = gymnasium.make(GOTO_ROOM)
    by_seed = env.reset(seed=7)
    env.reset(seed=1)
    following = env.reset()
    env.reset(seed=1)
    jax.tree.map(np.testing.assert_array_equal, env.reset(options={"level": 7}), by_seed)
    jax.tree.map(np.testing.assert_array_equal, env.reset(), following)
    both = {"level": 7, "mission": "go to the red ball"}
    there = env.reset(seed=7, options={"mission": both["mission"]})
    jax.tree.map(np.testing.assert_array_equal, env.reset(options=both), there)


def test_fixed_levels_are_those_of_their_seeds():
    fresh = gymnasium.make(GOTO_ROOM)
    expected = {fresh.reset(seed=seed)[0]["image"].tobytes() for seed in (3, 5, 11)}
    env = gymnasium.make(GOTO_ROOM, levels=[3, 5, 11])
    first = [env.reset(seed=0 if i == 0 else None)[0]["image"].tobytes() for i in range(30)]
    assert set(first) == expected
    assert len(expected) == 3
    again = [env.reset(seed=0 if i == 0 else None)[0]["image"].tobytes() for i in range(30)]
    assert first == again
    one = gymnasium.make(GOTO_ROOM, levels=3)
    seen = {one.reset()[0]["image"].tobytes() for _ in range(5)}
    assert seen == {fresh.reset(seed=3)[0]["image"].tobytes()}


def test_fixed_levels_and_their_errors():
    for bad in ([], [-1], [1.5], "3", [True]):
        with pytest.raises(InputError, match=r"levels must have|a level is given by its seed"):
            EllaEnv("goto-room", levels=bad)
    env = EllaEnv("goto-room", levels=[1, 2])
    with pytest.raises(InputError, match="fixed levels, so a mission cannot be chosen"):
        env.reset(options={"mission": "go to the red ball"})


def test_minigrids_reseed_wrapper_cycles_through_levels():
    wrappers = pytest.importorskip("minigrid.wrappers")
    env = wrappers.ReseedWrapper(gymnasium.make(GOTO_ROOM), seeds=[3, 5])
    fresh = gymnasium.make(GOTO_ROOM)
    for seed in (3, 5, 3):
        np.testing.assert_array_equal(env.reset()[0]["image"], fresh.reset(seed=seed)[0]["image"])
