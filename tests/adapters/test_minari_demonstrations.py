"""Demonstrations read back by Minari itself, and replayed in the environment they came from."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from limited_resources import files_of_at_most

from ella.adapters.gymnasium_env import EllaEnv
from ella.cli import main

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.thorough
EPISODES, SEED = 20, 40
TASK = "unlock-small"
"""A task without an id of Gymnasium's."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demonstrations")
    words = ["--episodes", str(EPISODES), "--seed", str(SEED), "--out", "new/root"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["demos", TASK, *words]) == 0
    return folder / "new" / "root"


@pytest.fixture
def dataset(root, monkeypatch) -> "minari.MinariDataset":
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return minari.load_dataset(f"ella/{TASK}/expert-v0")


def seed_of(dataset: "minari.MinariDataset", episode: int) -> int:
    return next(iter(dataset.storage.get_episode_metadata([episode])))["seed"]


def assert_replays(dataset: "minari.MinariDataset", env: gymnasium.Env) -> None:
    """Stepping the environment from the recorded seeds gives what was recorded, bit by bit."""
    for episode in dataset.iterate_episodes():
        steps = len(episode)
        observation, info = env.reset(seed=seed_of(dataset, episode.id))
        for t in range(steps + 1):
            assert episode.observations.keys() == observation.keys()
            for name, value in observation.items():
                np.testing.assert_array_equal(episode.observations[name][t], value)
            assert episode.infos["instruction_id"][t] == info["instruction_id"]
            if t == steps:
                break
            observation, reward, terminated, truncated, info = env.step(episode.actions[t])
            assert episode.rewards[t] == reward
            assert episode.terminations[t] == terminated == (t == steps - 1)
            assert episode.truncations[t] == truncated
        assert episode.rewards[-1] > 0


def test_minari_reads_and_replays_them(dataset):
    assert dataset.total_episodes == EPISODES
    assert dataset.total_steps == sum(len(episode) for episode in dataset.iterate_episodes())
    assert [seed_of(dataset, index) for index in range(EPISODES)] == list(
        range(SEED, SEED + EPISODES)
    )
    first = dataset[0]
    steps = len(first)
    assert first.observations["image"].shape == (steps + 1, 7, 7, 3)
    assert first.observations["image"].dtype == np.uint8
    assert first.actions.shape == first.rewards.shape == (steps,)
    assert first.rewards.dtype == np.float64
    assert len(set(first.observations["mission_text"])) == 1
    assert len({episode.observations["mission_text"][0] for episode in dataset}) > 1
    env = dataset.recover_environment()
    assert dataset.observation_space == env.observation_space
    assert dataset.action_space == env.action_space
    assert_replays(dataset, env)
    assert_replays(dataset, EllaEnv(TASK, mission="text"))


def test_nothing_else_is_left_in_the_folder(root, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    data = f"ella/{TASK}/expert-v0/data"
    assert files == [f"{data}/main_data.hdf5", f"{data}/metadata.json"]
    assert list(minari.list_local_datasets()) == [f"ella/{TASK}/expert-v0"]
    metadata = json.loads((root / data / "metadata.json").read_text())
    assert metadata["requirements"] == [f"ella-rl=={version('ella-rl')}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demos", "goto-rom"], "unknown task 'goto-rom'; did you mean goto-room"),
        (["demos", TASK, "--episodes", "0"], "episodes must be >= 1, got 0"),
        (["demos", TASK, "--seed", "-1"], "a seed lies between 0 and"),
        (["demos", TASK, "--seed", str(10**30)], "a seed lies between 0 and"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words, message, tmp_path, capfd):
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    error = capfd.readouterr().err.splitlines()
    assert message in error[-1]
    assert not (tmp_path / "out").exists()


def test_an_existing_dataset_is_kept(root, capfd):
    before = (root / f"ella/{TASK}/expert-v0/data/main_data.hdf5").read_bytes()
    assert main(["demos", TASK, "--episodes", "2", "--out", str(root)]) == 2
    assert "exists; choose another folder" in capfd.readouterr().err
    assert (root / f"ella/{TASK}/expert-v0/data/main_data.hdf5").read_bytes() == before


def test_a_full_disk_is_one_line_and_leaves_nothing(root, tmp_path, capfd):
    del root  # its programs are compiled, so that no cache file is cut short below
    words = ["--episodes", str(EPISODES), "--seed", str(SEED), "--out", str(tmp_path / "out")]
    with files_of_at_most(200_000):
        assert main(["demos", TASK, *words]) == 2
    error = capfd.readouterr().err.splitlines()
    assert (
        error[-1] == f"ella: cannot write to {tmp_path}/out/ella/{TASK}/expert-v0: File too large"
    )
    assert not (tmp_path / "out").exists()


def test_without_minari_it_is_one_line(tmp_path):
    code = (
        "import sys; sys.modules['minari'] = None\n"
        "from ella.cli import main\n"
        f"sys.exit(main(['demos', 'goto-room', '--out', {str(tmp_path / 'out')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install -e '.[minari]'" in done.stderr


@pytest.mark.parametrize("task", ["goto-room", "sequence-maze"])
def test_other_tasks_replay_too(task, tmp_path, monkeypatch):
    """More episodes than are computed at once."""
    words = ["--episodes", "150", "--out", str(tmp_path)]
    assert main(["demos", task, *words]) == 0
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset(f"ella/{task}/expert-v0")
    assert dataset.total_episodes == 150
    assert_replays(dataset, dataset.recover_environment())
