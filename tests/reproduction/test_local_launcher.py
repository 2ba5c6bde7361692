"""Runs trained together: as if alone, resumed together, and one's ruin is not the others'."""

import json
import shutil
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import FRAMES_PER_ITERATION, tiny_run, values

from ella.errors import InputError
from ella.methods import registry as methods
from ella.reproduction.local_launcher import groups_of, standing, unfinished
from ella.runs.rates import known_rate
from ella.runs.run import Outcome, train_together
from ella.shaping.shaper import AbstractRewardShaper


class Ruin(AbstractRewardShaper):
    """A toy: pays nothing, from some rollout on without limit."""

    after: int = eqx.field(static=True)

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        price = jnp.where(state < self.after, 0.0, jnp.inf)
        return state + 1, jnp.full_like(trajectory.reward, price), {}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@pytest.fixture(scope="module", autouse=True)
def toy_methods():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "METHODS", {**methods.METHODS, "ruin": lambda context: Ruin(6)})
        yield


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELLA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory, toy_methods, own_cache):
    """Two methods trained as one program, the last of which ruins its run: (runs, results,
    remarks, the rate then known)."""
    folder = tmp_path_factory.mktemp("together")
    group = [tiny_run(folder / "plain"), tiny_run(folder / "ruined", method="ruin", seeds=1)]
    said: list[str] = []
    results = train_together(group, say=said.append)
    return group, results, said, known_rate(group)


@pytest.fixture(scope="module")
def together(trained):
    return trained[0]


@pytest.mark.slow
def test_each_run_is_as_if_trained_alone(together, whole):
    """As `whole`, since the toy method pays nothing at first."""
    alone = values(whole.directory)
    for planned in together:
        shared, rows = values(planned.directory), planned.settings.seeds
        assert shared.keys() == alone.keys()
        # Rounding may differ, so compare before one differing action could grow into many.
        for name in ("seed", "frames", "loss", "bonus", "entropy"):
            np.testing.assert_allclose(shared[name][:rows], alone[name][:rows], rtol=1e-3)
    provenance = json.loads((together[0].directory / "run.json").read_text())
    assert provenance["trained_together_with"] == ["ruined"]


@pytest.mark.slow
def test_a_group_resumes_from_the_newest_checkpoint_that_all_have(trained, tmp_path):
    runs, results, *_ = trained
    group = [replace(run, directory=tmp_path / run.directory.name) for run in runs]
    for old, new in zip(runs, group, strict=True):
        shutil.copytree(old.directory, new.directory)
    (group[0].directory / "checkpoints" / "000000012.safetensors").unlink()
    shutil.rmtree(group[0].directory / "policies")
    said: list[str] = []
    resumed = train_together(group, resume=True, say=said.append)
    assert f"resuming at {6 * FRAMES_PER_ITERATION} frames a seed" in said
    assert [result.outcome for result in resumed] == [result.outcome for result in results]
    for old, new in zip(runs, group, strict=True):
        for name, column in values(old.directory).items():
            np.testing.assert_array_equal(column, values(new.directory)[name])


@pytest.mark.slow
def test_a_run_that_diverges_does_not_stop_the_others(trained):
    group, (fine, ruined), said, _ = trained
    assert fine.outcome == Outcome.FINISHED
    assert fine.frames == 12 * FRAMES_PER_ITERATION
    assert ruined.outcome == Outcome.DIVERGED
    assert ruined.frames == 6 * FRAMES_PER_ITERATION
    assert any("not finite" in line and "ruined" in line for line in said)
    assert not (group[1].directory / "policies").exists()


def test_training_tells_later_estimates_its_rate(trained):
    _, results, _, rate = trained
    assert rate == results[0].last.frames_per_second


def test_what_is_done_is_known(together, tmp_path):
    assert standing(together[0]).finished
    assert unfinished([together[0], tiny_run(tmp_path / "new")]) == [tiny_run(tmp_path / "new")]
    longer = replace(together[0], settings=replace(together[0].settings, frames=10_000))
    assert not standing(longer).finished
    other = replace(together[0], settings=replace(together[0].settings, seed=5))
    with pytest.raises(InputError, match="other settings"):
        standing(other)


def test_groups_hold_runs_of_one_shape_up_to_a_number_of_seeds(tmp_path):
    runs = [
        tiny_run(tmp_path / "a"),
        tiny_run(tmp_path / "b", method="ride"),
        tiny_run(tmp_path / "longer", iterations=24),
        tiny_run(tmp_path / "c", method="rnd", seeds=1),
    ]
    names = [[run.directory.name for run in group] for group in groups_of(runs, 5)]
    assert names == [["a", "b", "c"], ["longer"]]
    names = [[run.directory.name for run in group] for group in groups_of(runs, 4)]
    assert names == [["a", "b"], ["longer"], ["c"]]


def test_runs_begun_apart_stay_apart(together, tmp_path):
    runs = [together[0], tiny_run(tmp_path / "new")]
    assert len(groups_of(runs)) == 2
    assert len(groups_of(together)) == 1


def test_runs_of_other_shapes_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be trained together"):
        train_together([tiny_run(tmp_path / "a"), tiny_run(tmp_path / "b", iterations=24)])
    with pytest.raises(InputError, match="share a directory"):
        train_together([tiny_run(tmp_path / "a"), tiny_run(tmp_path / "a")])
