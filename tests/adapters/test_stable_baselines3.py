"""ELLA around Stable-Baselines3's environments, and the example that does so."""

import csv
import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import own_environment
import pytest
from errands import DISCOUNT, SIZES, Runner, errands_ella
from own_environment import HORIZON, LOW_LEVEL, Errands, visited
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
)

from ella.adapters.babyai_judge import babyai_low_level
from ella.adapters.gymnasium_env import EllaEnv
from ella.adapters.host_ella import HostElla
from ella.adapters.stable_baselines3 import EllaLog, ShapedVecEnv
from ella.errors import InputError
from ella.intervals import SHARE, student_t

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_stable_baselines_trains_on_neutral_successes(tmp_path):
    host = errands_ella(first_update=256, update_every=256)
    envs = ShapedVecEnv(make_vec_env(Errands, n_envs=4, seed=0), host)
    envs.reset()
    runners = [Runner(seed) for seed in range(4)]
    observations, first = envs.reset(), np.ones(4, bool)
    returns, discounts, neutral = np.zeros((2, 4)), np.ones(4), 0
    for _ in range(240):
        actions = [r.action(*pair) for r, *pair in zip(runners, observations, first, strict=True)]
        observations, rewards, first, infos = envs.step(np.array(actions))
        own = np.array([info["unshaped_reward"] for info in infos])
        returns += discounts * np.stack([rewards, own])
        discounts = discounts * DISCOUNT
        for i in np.flatnonzero(first):
            if own[i] > 0:
                np.testing.assert_allclose(*returns[:, i], atol=1e-5)
                neutral += 1
                assert infos[i]["episode"]["r"] == pytest.approx(own[i], abs=1e-5)
            returns[:, i], discounts[i] = 0, 1
    assert neutral > 10
    assert len(host.solved()) > 5
    taught_by_runners = host.updates
    assert taught_by_runners >= 3

    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(512, callback=EllaLog(host))
    with (tmp_path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    # The runners' last successes are learned from after the first rollout.
    assert [int(row["ella/updates"]) for row in rows] == [taught_by_runners + 1, host.updates]
    assert all(float(row["ella/decomposition_size"]) >= 2 for row in rows)


def missions_told(envs: ShapedVecEnv, told: list) -> None:
    with pytest.raises(InputError, match="reset"):
        envs.step(np.zeros(2, int))
    envs.seed(0)  # unseeded, both missions are drawn again now and then
    envs.reset()
    for _ in range(HORIZON + 1):
        envs.step(np.zeros(2, int))
    envs.close()
    assert all(text.startswith("bring ") for texts in told for text in texts)
    assert told[0] != told[-1]


def noted(venv: VecEnv, told: list[list[str]]) -> ShapedVecEnv:
    """Environments that note their missions whenever observations are judged."""

    def judge(observations: np.ndarray) -> np.ndarray:
        told.append(list(envs._missions))
        return visited(observations)

    envs = ShapedVecEnv(venv, HostElla(LOW_LEVEL, judge, **SIZES))
    return envs


@pytest.mark.parametrize("wrap", [VecMonitor, lambda venv: VecFrameStack(venv, 1)])
def test_missions_come_through_other_wrappers(wrap):
    told: list[list[str]] = []
    missions_told(noted(wrap(DummyVecEnv([Errands] * 2)), told), told)


@pytest.mark.thorough
def test_missions_come_from_processes():
    told: list[list[str]] = []
    missions_told(noted(SubprocVecEnv([Errands] * 2), told), told)
    unspoken = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=SubprocVecEnv)
    with pytest.raises(InputError, match="mission"):
        ShapedVecEnv(unspoken, errands_ella()).reset()
    unspoken.close()


def test_ellas_own_environments_tell_stable_baselines_their_missions():
    told = babyai_low_level("goto-room", learned=False)
    host = HostElla(told.instructions, told.judge, **(SIZES | {"max_words": 9}))
    envs = ShapedVecEnv(make_vec_env(lambda: EllaEnv("putnext-room"), n_envs=2), host)
    envs.reset()
    for _ in range(8):
        envs.step(np.full(2, 2))
    assert all(text.startswith("put the ") for text in envs._missions)


def test_minigrid_tells_stable_baselines_its_missions():
    gymnasium.register_envs(pytest.importorskip("minigrid"))
    told = babyai_low_level("goto-room", learned=False)
    host = HostElla(told.instructions, told.judge, **SIZES)
    envs = ShapedVecEnv(
        make_vec_env(
            lambda: gymnasium.wrappers.FilterObservation(
                gymnasium.make("BabyAI-GoToLocal-v0"), ["image", "direction"]
            ),
            n_envs=2,
        ),
        host,
    )
    envs.reset()
    for actions in np.random.default_rng(0).integers(3, size=(100, 2)):
        envs.step(actions)
    assert all(text.startswith("go to ") for text in envs._missions)
    assert host.measurements()["low_level_completions"] > 0


def test_missions_in_no_words_are_one_line():
    envs = make_vec_env("CartPole-v1", n_envs=2)
    with pytest.raises(InputError, match="mission"):
        ShapedVecEnv(envs, errands_ella()).reset()


@pytest.mark.thorough
def test_another_discount_and_nothing_learned_are_warned_of(caplog):
    host = errands_ella()
    envs = ShapedVecEnv(DummyVecEnv([Errands]), host)
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, n_epochs=1, device="cpu", gamma=0.5)
    model.learn(8, callback=EllaLog(host))
    envs.close()
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == 2
    assert found[0].startswith("the trainer's gamma is 0.5 and HostElla's discount 0.9")
    assert "never updated in 8 steps" in found[1]


@pytest.mark.thorough
def test_the_example_trains_and_tells_what_it_learned(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["own_environment.py", "--steps", "2048", "--episodes", "16"])
    own_environment.main()
    *_, finished, question = [
        line for line in capsys.readouterr().out.splitlines() if not line.startswith("  ")
    ]
    assert finished.startswith("errands finished: ")
    assert question == "bring ink to the widow:"


def test_the_committed_measurement_is_what_its_seeds_say():
    table = json.loads((ROOT / "results" / "own-environment.json").read_text())
    assert len(table["seeds"]) == len(table["ella"]) == len(table["plain"]) >= 5
    ella, plain = np.array(table["ella"]), np.array(table["plain"])
    page = (ROOT / "docs" / "own-environment.md").read_text()
    for name, interval in (
        ("ella", student_t(ella, SHARE)),
        ("plain", student_t(plain, SHARE)),
        ("gain", student_t(ella - plain)),
    ):
        expected = [interval.value, interval.low, interval.high]
        assert table["mean_and_interval"][name] == pytest.approx(expected, abs=1e-3)
        value, low, high = (round(100 * number) for number in expected)
        assert f"{value} % [{low}, {high}]" in page.replace("\N{MINUS SIGN}", "-")
