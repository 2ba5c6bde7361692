"""A judge learned from labelled observations of Gymnasium's and minigrid's environments."""

import logging

import gymnasium
import numpy as np
import pytest

from ella.adapters import observation_parts
from ella.adapters.gymnasium_shaping import ShapedEnv
from ella.adapters.host_ella import HostElla
from ella.adapters.judge_examples import LabelledExamples, labelled_examples, measured_quality
from ella.adapters.observation_parts import describe, moments
from ella.adapters.trained_judge import JudgeSettings, TrainedJudge
from ella.array_file import save_arrays
from ella.errors import InputError

QUICK = JudgeSettings(width=32, channels=8, steps=150, batch=128, learning_rate=3e-3)
INSTRUCTIONS = ("carry the key", "open the door")


def door_key() -> gymnasium.Env:
    from minigrid.wrappers import FullyObsWrapper

    return FullyObsWrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0", max_steps=80))


def carried_out(env: gymnasium.Env) -> list[bool]:
    """The truth, from minigrid's own state."""
    state = env.unwrapped
    doors = [cell for cell in state.grid.grid if cell is not None and cell.type == "door"]
    carries = state.carrying is not None and state.carrying.type == "key"
    return [carries, any(door.is_open for door in doors)]


@pytest.fixture(scope="module")
def played() -> dict:
    """Episodes of random actions, mostly useful ones."""
    pytest.importorskip("minigrid")
    random, env = np.random.default_rng(0), door_key()
    observations, labels, episodes = [], [], []
    for episode in range(60):
        observation, _ = env.reset(seed=episode)
        done = False
        while not done:
            observations.append(observation)
            labels.append(carried_out(env))
            episodes.append(episode)
            action = random.choice(6, p=(0.15, 0.15, 0.4, 0.1, 0.0, 0.2))
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
    return {"observations": observations, "labels": np.array(labels), "episodes": episodes}


@pytest.fixture(scope="module")
def judge(played) -> TrainedJudge:
    return TrainedJudge.fit(
        played["observations"], INSTRUCTIONS, played["labels"], episodes=played["episodes"],
        settings=QUICK,
    )  # fmt: skip


def test_it_learns_minigrids_states_from_pictures(judge, played):
    assert played["labels"].mean(0).min() > 0.02
    assert judge.quality.accuracy > 0.97
    assert judge.quality.recall > 0.9
    assert judge.quality.false_alarms_per_episode < 0.5
    # Levels that were not played, in the form vector environments return them.
    envs, right = [door_key() for _ in range(8)], []
    observations = [env.reset(seed=1000 + index)[0] for index, env in enumerate(envs)]
    for action in np.random.default_rng(1).choice([0, 1, 2, 2, 3, 5], size=120):
        batch = {
            name: np.stack([observation[name] for observation in observations])
            for name in ("image", "direction")
        }
        right.append(judge(batch) == [carried_out(env) for env in envs])
        observations = [env.step(action)[0] for env in envs]
    assert np.mean(right) > 0.95


def test_numbers_that_never_differed_are_no_surprise():
    """A place that nobody stood on among the examples."""
    random = np.random.default_rng(0)
    seen = np.concatenate([random.normal(size=(400, 2)), np.full((400, 1), 0.3)], axis=1)
    judge = TrainedJudge.fit(seen, ["right of the middle"], seen[:, :1] > 0, settings=QUICK)
    elsewhere = seen + np.array([0.0, 0.0, 0.5])
    truth = seen[:, :1] > 0
    assert (judge(seen) == truth).mean() > 0.95
    assert (judge(elsewhere) == truth).mean() > 0.9


@pytest.mark.parametrize("noise", ["float64", "float32"])
def test_noise_around_a_number_far_from_zero_is_not_blown_up(noise):
    random = np.random.default_rng(0)
    seen = random.normal(size=(400, 2)).astype(noise)
    truth = seen[:, :1] > 0
    seen[:, 1] = 5000 + (1e-11 * seen[:, 1] if noise == "float64" else 5e-4 * (seen[:, 1] > 1.5))
    judge = TrainedJudge.fit(seen, ["go right"], truth, settings=QUICK)
    assert (judge(seen + np.array([0, 0.5], noise)) == truth).mean() > 0.9


def test_noise_that_float32_cannot_see_is_no_number():
    random = np.random.default_rng(0)
    seen = random.normal(size=(400, 2))
    seen[:, 1] = 1 + 2.0**-24 + 1e-14 * seen[:, 1]  # in float32 either 1 or the next number
    judge = TrainedJudge.fit(seen, ["go right"], seen[:, :1] > 0, settings=QUICK)
    assert (judge(seen) == (seen[:, :1] > 0)).mean() > 0.95


@pytest.mark.parametrize("case", [
    "channels", "far from zero", "beyond int32", "largest sentinel",
    pytest.param("channels first", marks=pytest.mark.thorough),
    pytest.param("sentinel", marks=pytest.mark.thorough),
])  # fmt: skip
def test_channels_sentinels_and_numbers_far_from_zero_are_learned_from(case, tmp_path):
    random = np.random.default_rng(0)
    if case.startswith("channels"):
        scales = np.array([255, 1]) if case == "channels" else np.array([255, 1])[:, None, None]
        shape = (400, 4, 4, 2) if case == "channels" else (400, 2, 4, 4)
        seen = random.random(shape) * scales
        labels = (seen[..., 1] if case == "channels" else seen[:, 1]).mean((1, 2))[:, None] > 0.5
    elif case == "sentinel":
        seen = random.uniform(0, 10, (400, 2))
        seen[random.random(400) < 0.3, 1] = 1e6  # nothing in sight
        labels = seen[:, 1:] < 5
    elif case == "largest sentinel":
        seen = random.uniform(0, 0.1, (400, 2))
        seen[random.random(400) < 0.3, 1] = np.finfo(seen.dtype).max
        labels = seen[:, 1:] < 0.05
    elif case == "beyond int32":
        seen = random.integers(-(2**40), 2**40, (400, 2))
        labels = seen[:, 1:] > 0
    else:
        seen = 1.7e9 + random.normal(size=(400, 2))
        labels = seen[:, :1] > 1.7e9
    judge = TrainedJudge.fit(seen, ["go"], labels, settings=QUICK)
    assert (judge(seen) == labels).mean() > 0.9
    judge.save(tmp_path / "judge")
    np.testing.assert_array_equal(TrainedJudge.load(tmp_path / "judge")(seen), judge(seen))


def test_moments_are_those_of_numpy_in_chunks_and_without_sentinels(monkeypatch):
    monkeypatch.setattr(observation_parts, "CHUNK_NUMBERS", 100)
    random = np.random.default_rng(0)
    pictures = random.normal(size=(50, 6, 5, 3)) * [1, 100, 1e-3] + [5, 0, 1e3]
    vectors = random.uniform(size=(50, 2))
    for examples, axes in ((pictures, (0, 1, 2)), (vectors, 0)):
        mean, spread = moments(describe(examples), examples)
        np.testing.assert_allclose(mean, examples.mean(axes))
        np.testing.assert_allclose(spread, examples.std(axes), rtol=1e-9)
    expected = vectors[10:, 0].mean(), vectors[10:, 0].std()
    for sentinels in ([1e6], [-1e6], [-1e6, 1e6]):
        vectors[:10, 0] = np.resize(sentinels, 10)
        found = moments(describe(vectors), vectors)
        np.testing.assert_allclose([part[0] for part in found], expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_of_sines_and_cosines_makes_no_sentinels(dtype):
    angles = np.arange(40).astype(dtype)[:, None] * dtype(np.pi / 2)
    ahead = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    assert not describe(ahead).has_sentinels
    np.testing.assert_allclose(moments(describe(ahead), ahead)[1], np.sqrt(0.5), rtol=1e-3)


def test_states_by_number_and_numbers_of_any_scale_are_learned():
    random = np.random.default_rng(0)
    states = random.integers(0, 500, 2000)  # as those of Taxi's Discrete(500)
    carried = (states // 4 % 5 == 4)[:, None]
    judge = TrainedJudge.fit(states, ["pick up"], carried, settings=QUICK)
    assert judge.quality.balanced_accuracy > 0.8
    tiny = random.normal(size=(400, 2)) * 1e-8
    judge = TrainedJudge.fit(tiny, ["go right"], tiny[:, :1] > 0, settings=QUICK)
    assert judge.quality.balanced_accuracy > 0.9


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
)
def test_rare_labels_are_neither_overlooked_nor_seen_everywhere(seed):
    random = np.random.default_rng(seed)
    seen = random.normal(size=(24_000, 4))
    labels = seen[:, :1] + seen[:, 1:2] > 3.29  # one in a hundred
    judge = TrainedJudge.fit(seen[:4000], ["go there"], labels[:4000], settings=QUICK, seed=seed)
    judged, truth = judge(seen[4000:]), labels[4000:]
    assert judged[truth].mean() > 0.65
    assert truth[judged].mean() > 0.55


def test_a_split_has_every_label_on_both_sides_where_it_can():
    labels = np.zeros((400, 3), bool)
    labels[[10, 210], 0] = True  # in two of twenty episodes
    labels[[50, 51, 130], 1] = True
    labels[77, 2] = True  # in one, so that it must be learned from
    for seed in range(20):
        examples = labelled_examples(
            400, ["a", "b", "c"], labels, np.arange(400) // 20, 0.2, np.random.default_rng(seed)
        )
        assert examples.held_out.sum() == 80
        both = [labels[side, :2].any(axis=0) for side in (examples.held_out, ~examples.held_out)]
        assert np.all(both)
        assert not examples.held_out[77]


def test_many_labels_of_one_or_two_examples_can_all_be_learned_from():
    labels = np.eye(60, 40, dtype=bool)
    labels[40:60, :20] = np.eye(20, dtype=bool)  # twenty have a second one
    names = [str(index) for index in range(40)]
    for seed in range(5):
        random = np.random.default_rng(seed)
        examples = labelled_examples(60, names, labels, None, 0.5, random)
        assert labels[~examples.held_out].any(axis=0).all()
        assert examples.held_out.sum() >= 15


def test_single_instructions_that_are_poorly_judged_or_not_measured_are_named(caplog):
    random = np.random.default_rng(0)
    seen = random.normal(size=(1000, 3))
    noise, never = random.random(1000) < 0.02, np.arange(1000) == 20
    labels = np.stack([*(seen[:, :3] > 0).T, noise, never], axis=1)
    texts = ["a", "b", "c", "by chance", "only once"]
    episodes = np.arange(1000) // 50
    with caplog.at_level(logging.WARNING):
        # Of a seed whose held-out episodes leave out the first.
        judge = TrainedJudge.fit(seen, texts, labels, episodes=episodes, settings=QUICK)
    assert judge.quality.recall > 0.75
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "fewer than half of the held-out completions of 'by chance'" in said[0]
    assert "no held-out observation shows 'only once' carried out" in said[1]


def test_it_serves_host_ella(judge):
    host = HostElla(judge.instructions, judge, max_instructions=4, bonus_share=0.1)
    env = ShapedEnv(door_key(), host)
    env.reset(seed=0)
    paid = 0.0
    for action in np.random.default_rng(0).choice([0, 1, 2, 2, 3, 5], size=150):
        _, reward, terminated, truncated, info = env.step(action)
        paid += reward - info["unshaped_reward"]
        if terminated or truncated:
            env.reset()
    assert paid != 0


def test_a_saved_judge_judges_alike(judge, played, tmp_path):
    judge.save(tmp_path / "judge.safetensors")
    again = TrainedJudge.load(tmp_path / "judge.safetensors")
    assert again.instructions == judge.instructions == INSTRUCTIONS
    assert again.quality == judge.quality
    some = played["observations"][::7]
    np.testing.assert_array_equal(again(some), judge(some))
    assert 0 < judge(some).mean() < 1


def test_files_that_are_no_judges_are_one_line(judge, tmp_path):
    path = tmp_path / "judge.safetensors"
    judge.save(path)
    damaged, other, wrong = (tmp_path / name for name in ("damaged", "other", "wrong"))
    damaged.write_bytes(path.read_bytes()[:-7])
    save_arrays(other, {}, kind="policy", version=1, table={})
    save_arrays(wrong, {}, kind="TrainedJudge", version=1, table={"instructions": [1]})
    for bad, complaint in (
        (damaged, "not a file that TrainedJudge.save wrote"),
        (tmp_path / "missing", "not a file that TrainedJudge.save wrote"),
        (wrong, "not a file that TrainedJudge.save wrote"),
        (other, "holds a policy"),
    ):
        with pytest.raises(InputError, match=complaint) as caught:
            TrainedJudge.load(bad)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot write"):
        judge.save(tmp_path / "nowhere" / "judge")


def test_vectors_with_one_instruction_for_each_observation():
    """CartPole's numbers differ in scale; each observation is labelled for one instruction."""
    env, random = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    seen = []
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        done = False
        while not done:
            seen.append(observation)
            observation, _, done, _, _ = env.step(int(random.integers(2)))
    vectors = np.array(seen)
    texts = [("lean right", "move right")[index % 2] for index in range(len(vectors))]
    labels = np.where(np.arange(len(vectors)) % 2, vectors[:, 1] > 0, vectors[:, 2] > 0)
    judge = TrainedJudge.fit(vectors, texts, labels, settings=QUICK)
    assert judge.instructions == ("lean right", "move right")
    assert judge.quality.false_alarms_per_episode is None
    truth = np.stack([vectors[:, 2] > 0, vectors[:, 1] > 0], axis=1)
    assert (judge(vectors) == truth).mean() > 0.93


def test_labels_of_nothing_are_warned_of(caplog):
    random = np.random.default_rng(0)
    with caplog.at_level(logging.WARNING, "ella"):
        TrainedJudge.fit(
            random.normal(size=(200, 3)), ["rest"], random.random((200, 1)) < 0.5,
            settings=JudgeSettings(width=4, steps=5, batch=8),
        )  # fmt: skip
    assert [record.getMessage()[:18] for record in caplog.records] == ["the judge is poor "]


def test_a_poor_judge_names_what_it_does_not_recognise(caplog):
    random = np.random.default_rng(0)
    seen = random.normal(size=(1000, 2))
    labels = np.stack([seen[:, 0] > 1.3, *(random.random((3, 1000)) < 0.1)], axis=1)
    texts = ["go right", "by chance", "by luck", "by accident"]
    TrainedJudge.fit(seen, texts, labels, settings=QUICK)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("the judge is poor")
    assert "'by chance', 'by luck', 'by accident'" in said[1]
    assert "go right" not in said[1]


def test_false_alarms_count_instructions_before_they_are_carried_out():
    labels = np.array([[0, 0], [1, 0], [0, 0], [0, 0]], bool)
    examples = LabelledExamples(
        ("a", "b"), labels, np.ones_like(labels), np.array([0, 0, 0, 1]), np.ones(4, bool)
    )
    # "a" too late in episode 0, which costs nothing; "b" twice there and once in episode 1.
    judged = np.array([[0, 1], [1, 1], [1, 0], [0, 1]], bool)
    quality = measured_quality(examples, judged)
    assert quality.false_alarms_per_episode == 1.0
    assert (quality.recall, quality.labels) == (1.0, 8)
    assert quality.accuracy == 0.5
    assert quality.false_alarm_rate == pytest.approx(4 / 7)


@pytest.mark.parametrize(
    ("observations", "instructions", "labels", "complaint"),
    [
        (np.zeros((4, 2)), ["a"], np.zeros(3), r"labels of 4 observations must be \[4, 1\]"),
        (np.zeros((4, 2)), ["a"], [[2]] * 4, "labels must be 0 or 1"),
        (np.zeros((4, 2)), ["a", "a"], np.eye(4)[:, :2], "two instructions are the same"),
        (np.zeros((4, 2)), "a", np.zeros(4), "instructions must be a list"),
        (np.zeros((4, 2)), ["a"], np.zeros((4, 1)), "'a' has no example with label 1 at all"),
        (np.full((4, 2), np.nan), ["a"], [[0], [1]] * 2, "finite"),
        ([], ["a"], [], "batch of observations"),
        ({"text": ("go",) * 4}, ["a"], [[0], [1]] * 2, "batch of observations"),
        ([np.zeros(2), np.zeros(3)], ["a"], [[0], [1]], "same shapes"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(3)}, ["a"], [[0], [1]] * 2, "differ in length"),
    ],
)
def test_examples_that_cannot_be_learned_from_are_one_line(
    observations, instructions, labels, complaint
):
    with pytest.raises(InputError, match=complaint) as caught:
        TrainedJudge.fit(observations, instructions, labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"width": 0}, "width must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0"),
        ({"learning_rate": np.float32(np.nan)}, "learning_rate must be > 0, got nan"),
        ({"learning_rate": np.inf}, "learning_rate must be > 0 and finite, got inf"),
        ({"held_out": np.nan}, r"held_out must lie in \(0, 1\), got nan"),
    ],
)
def test_impossible_training_settings_are_refused(bad, complaint):
    with pytest.raises(InputError, match=f"^judge {complaint}$"):
        JudgeSettings(**bad)


def test_observations_of_another_shape_are_one_line(judge):
    complaint = r"direction \[\], image \[5, 5, 3\], got image \[7, 7, 3\]"
    with pytest.raises(InputError, match=complaint):
        judge({"image": np.zeros((2, 7, 7, 3), np.uint8)})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_observations_that_are_not_finite_are_refused_instead_of_judged(bad):
    seen = np.random.default_rng(0).normal(size=(64, 2))
    judge = TrainedJudge.fit(seen, ["a"], seen[:, :1] > 0, settings=JudgeSettings(steps=1))
    with pytest.raises(InputError, match="observations must be finite numbers"):
        judge(np.array([[1.0, bad]]))
