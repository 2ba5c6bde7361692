"""Examples recorded while a script or a person acts, and the judges learned from their files."""

import gymnasium
import numpy as np
import pytest
from errands import LOW_LEVEL, Runner, visited
from own_environment import Errands

from ella.adapters.example_recorder import ExampleRecorder
from ella.adapters.gymnasium_env import EllaEnv
from ella.adapters.recorded_examples import RecordedExamples
from ella.adapters.trained_judge import JudgeSettings, TrainedJudge
from ella.array_file import save_arrays
from ella.errors import InputError

QUICK = JudgeSettings(width=32, channels=8, steps=200, batch=128, learning_rate=3e-3)


def stands_at(env: gymnasium.Env) -> np.ndarray:
    """The truth, from the environment's own state."""
    return visited(env.unwrapped._observation()[None])[0]


def play(env: gymnasium.Env, episodes: int, seed: int, after=lambda observation: None) -> None:
    """A script that runs errands; `after` sees every observation."""
    runner = Runner(seed)
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        after(observation)
        first, over = True, False
        while not over:
            action = runner.action(observation, first)
            observation, _, terminated, truncated, _ = env.step(action)
            after(observation)
            first, over = False, terminated or truncated


def accuracy_elsewhere(judge: TrainedJudge) -> tuple[float, float]:
    """(accuracy, recall) on episodes that were not recorded."""
    seen: list[np.ndarray] = []
    play(Errands(), 40, 5000, after=seen.append)
    judged, truth = judge(np.array(seen)), visited(np.array(seen))
    assert truth.mean() > 0.005
    return float((judged == truth).mean()), float(judged[truth].mean())


@pytest.mark.thorough
def test_a_script_records_and_a_judge_learns_from_the_file(tmp_path):
    recorder = ExampleRecorder(Errands(), LOW_LEVEL, completed=stands_at)
    play(recorder, 150, 0)
    recorder.save(tmp_path / "examples.safetensors")
    examples = RecordedExamples.load(tmp_path / "examples.safetensors")
    assert examples.instructions == tuple(LOW_LEVEL)
    assert len(np.unique(examples.episodes)) == 150
    assert examples.known.all()
    np.testing.assert_array_equal(examples.labels, visited(examples.observations[""]))
    for seed in range(4):  # cells hardly ever stood on have the smallest spreads
        judge = examples.fit_judge(QUICK, seed=seed)
        assert judge.quality.accuracy > 0.99
        assert judge.quality.false_alarms_per_episode is not None
        accuracy, recall = accuracy_elsewhere(judge)
        assert accuracy > 0.99
        assert recall > 0.9


def test_a_person_marks_completions_in_a_loop_of_their_own(tmp_path):
    """Marks alone, in two sittings; nobody says when a completion is no longer in view."""
    paths = []
    for session in range(2):
        recorder = ExampleRecorder(Errands(), LOW_LEVEL)

        def mark(observation, recorder=recorder):
            for index in np.flatnonzero(visited(observation[None])[0]):
                recorder.mark(LOW_LEVEL[index])

        play(recorder, 75, 1000 * session, after=mark)
        paths.append(tmp_path / f"session-{session}.safetensors")
        recorder.save(paths[-1])
    examples = RecordedExamples.load(*paths)
    assert len(np.unique(examples.episodes)) == 150
    assert 0 < (~examples.known).mean() < 0.5
    truth = visited(examples.observations[""])
    assert (examples.labels == truth)[examples.known].all()
    accuracy, recall = accuracy_elsewhere(examples.fit_judge(QUICK))
    assert accuracy > 0.99
    assert recall > 0.9


def test_labels_before_at_and_after_a_mark():
    recorder = ExampleRecorder(Errands(), ["a", "b"])
    recorder.reset(seed=0)
    recorder.step(0)
    recorder.mark("a")
    recorder.step(0)
    recorder.step(0)
    recorder.unmark("a")
    recorder.step(0)
    recorder.mark("a")
    recorder.reset(seed=1)
    examples = recorder.examples()
    np.testing.assert_array_equal(examples.labels[:, 0], [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(examples.known[:, 0], [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(examples.episodes, [0, 0, 0, 0, 0, 1])
    assert examples.known[:, 1].all()
    assert not examples.labels[:, 1].any()


def test_a_discarded_episode_leaves_nothing():
    recorder = ExampleRecorder(Errands(), ["a"])
    kept, _ = recorder.reset(seed=0)
    recorder.reset(seed=1)
    recorder.mark("a")
    recorder.discard_episode()
    recorder.step(0)
    with pytest.raises(InputError, match=r"call reset\(\) first"):
        recorder.mark("a")
    following, _ = recorder.reset(seed=2)
    examples = recorder.examples()
    np.testing.assert_array_equal(examples.observations[""], [kept, following])
    np.testing.assert_array_equal(examples.episodes, [0, 1])
    assert not examples.labels.any()


class Recycling(gymnasium.Env):
    """Returns the same array at every step, overwritten."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._buffer = np.zeros(1, np.float32)
        return self._buffer, {}

    def step(self, action):
        self._buffer += 1
        return self._buffer, 0.0, False, False, {}


def test_observations_are_kept_as_they_were():
    recorder = ExampleRecorder(Recycling(), ["a"])
    recorder.reset()
    for _ in range(3):
        recorder.step(0)
    np.testing.assert_array_equal(recorder.examples().observations[""][:, 0], [0, 1, 2, 3])


def test_parts_of_observations_keep_their_names(tmp_path):
    env = EllaEnv("goto-room", mission="text")
    recorder = ExampleRecorder(env, ["a"])
    observation, _ = recorder.reset(seed=0)
    recorder.step(0)
    recorder.mark("a")
    recorder.save(tmp_path / "examples")
    found = RecordedExamples.load(tmp_path / "examples")
    assert found.observations.keys() == {"image", "direction", "mission"}
    assert found.observations["image"].dtype == np.uint8
    for name, part in found.observations.items():
        np.testing.assert_array_equal(part[0], observation[name])


def test_recordings_of_other_instructions_are_joined():
    first, second = ExampleRecorder(Errands(), ["a", "b"]), ExampleRecorder(Errands(), ["b", "c"])
    for recorder in (first, second):
        recorder.reset(seed=0)
        recorder.mark("b")
    from ella.adapters.recorded_examples import concatenated

    both = concatenated([first.examples(), second.examples()])
    assert both.instructions == ("a", "b", "c")
    np.testing.assert_array_equal(both.known, [[1, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(both.labels, [[0, 1, 0], [0, 1, 0]])
    np.testing.assert_array_equal(both.episodes, [0, 1])
    other = ExampleRecorder(gymnasium.make("CartPole-v1"), ["a"])
    other.reset(seed=0)
    with pytest.raises(InputError, match="different observations"):
        concatenated([both, other.examples()])


def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(InputError, match="list of at least one"):
        ExampleRecorder(Errands(), "visit")
    with pytest.raises(InputError, match="two instructions are the same"):
        ExampleRecorder(Errands(), ["a", "a"])
    recorder = ExampleRecorder(Errands(), LOW_LEVEL)
    with pytest.raises(InputError, match="nothing is recorded yet"):
        recorder.save(tmp_path / "examples")
    recorder.reset(seed=0)
    with pytest.raises(InputError, match="unknown instruction 'visit the bakry'; did you mean"):
        recorder.mark("visit the bakry")
    with pytest.raises(InputError, match="cannot write"):
        recorder.save(tmp_path / "nowhere" / "examples")
    scripted = ExampleRecorder(Errands(), ["a"], completed=lambda env: [True, False])
    with pytest.raises(InputError, match="completed must return 1 truth values"):
        scripted.reset(seed=0)
    scripted = ExampleRecorder(Errands(), ["a"], completed=lambda env: [True])
    scripted.reset(seed=0)
    with pytest.raises(InputError, match="labels come from `completed`"):
        scripted.mark("a")


def test_files_that_are_no_recordings_are_one_line(tmp_path):
    recorder = ExampleRecorder(Errands(), ["a"])
    recorder.reset(seed=0)
    recorder.save(tmp_path / "good")
    (tmp_path / "cut").write_bytes((tmp_path / "good").read_bytes()[:-3])
    save_arrays(tmp_path / "other", {}, kind="policy", version=1, table={})
    save_arrays(
        tmp_path / "short",
        {"labels": np.zeros((2, 1), bool), "known": np.ones((2, 1), bool),
         "episodes": np.zeros(3, np.int32)},
        kind="RecordedExamples", version=1, table={"instructions": ["a"]},
    )  # fmt: skip
    for name, complaint in (
        ("cut", "is not a file that RecordedExamples.save wrote"),
        ("missing", "is not a file that RecordedExamples.save wrote"),
        ("other", "holds a policy"),
        ("short", r"labels and known must be \[3, 1\]"),
    ):
        with pytest.raises(InputError, match=complaint) as caught:
            RecordedExamples.load(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="at least one file"):
        RecordedExamples.load()


def test_known_labels_have_the_labels_shape():
    observations, labels = np.eye(4), np.array([[0], [1]] * 2)
    with pytest.raises(InputError, match=r"known must be bool\[4, 1\]"):
        TrainedJudge.fit(observations, ["a"], labels, known=np.ones((4, 2), bool))
    with pytest.raises(InputError, match="known needs labels"):
        TrainedJudge.fit(observations, ["a"] * 4, labels[:, 0], known=np.ones(4, bool))
