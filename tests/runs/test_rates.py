"""Rates of training: measured on request, kept for later, never guessed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tiny_runs import tiny_run

from ella.runs.rates import FILE_NAME, known_rate, remember_rate
from ella.training.throughput import measure_rate


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.slow
def test_a_measured_rate_is_kept_and_its_measurement_can_be_watched(tmp_path):
    group = [tiny_run(tmp_path / "run")]
    assert known_rate(group) is None
    said: list[str] = []
    rate = measure_rate(group, say=said.append)
    assert known_rate(group) == rate > 0
    assert said[0] == "compiling"
    assert [line.partition(":")[0] for line in said[1:]] == [
        f"iteration {i} of 3" for i in (1, 2, 3)
    ]


def test_a_rate_serves_runs_with_the_same_learner_and_about_as_many_seeds(tmp_path):
    four = tiny_run(tmp_path / "run", seeds=4)
    remember_rate([four], 1000.0)
    assert known_rate([tiny_run(tmp_path / "other", seeds=3, method="ella")]) == 1000.0
    assert known_rate([tiny_run(tmp_path / "more", seeds=9)]) is None
    learner = replace(four.settings.ppo, num_envs=8)
    assert known_rate([tiny_run(tmp_path / "larger", seeds=4, ppo=learner)]) is None
    assert known_rate([tiny_run(tmp_path / "fewer-devices", seeds=4, devices=7)]) is None


def test_runs_that_end_at_the_same_moment_all_keep_their_rates(tmp_path):
    runs = [tiny_run(tmp_path / f"{seeds}", seeds=4**seeds) for seeds in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda run: remember_rate([run], float(run.settings.seeds)), runs))
    assert [known_rate([run]) for run in runs] == [run.settings.seeds for run in runs]


def test_a_damaged_or_forbidden_file_is_as_if_nothing_was_measured(tmp_path, cache):
    group = [tiny_run(tmp_path / "run")]
    cache.mkdir()
    (cache / FILE_NAME).write_text("[1, 2")
    assert known_rate(group) is None
    remember_rate(group, 5.0)
    assert known_rate(group) == 5.0
    (cache / FILE_NAME).unlink()
    (cache / FILE_NAME).mkdir()
    remember_rate(group, 5.0)
    assert known_rate(group) is None
