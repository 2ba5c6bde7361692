"""Runs trained together: identical to runs trained alone, resumed together, sweeps, divergence."""

import json
import logging
import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from tiny_runs import FRAMES_PER_ITERATION, tiny_run, values

import ella
from ella.errors import InputError
from ella.reproduction.local_launcher import groups_of, known_rate, run_progress, unfinished
from ella.runs.run_result import Outcome
from ella.runs.training_run import train_runs


class RuinShaper(ella.AbstractRewardShaper):
    """A toy: pays a price every step, from some rollout on without limit."""

    price: float
    learned: Float[Array, ""]
    """Of the price, what an offline stage found worth paying."""
    after: int = eqx.field(static=True)

    def init(self, num_envs, *, key):
        return jnp.zeros((), jnp.int32)

    def shape(self, state, trajectory):
        price = jnp.where(state < self.after, self.price * self.learned, jnp.inf)
        return state + 1, jnp.full_like(trajectory.reward, price), {}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@ella.register_method
@dataclass(frozen=True)
class Ruin(ella.Method):
    name: ClassVar[str] = "ruin"
    label: ClassVar[str] = "Ruin"

    price: float = 0.0

    def build(self, context):
        return RuinShaper(self.price, jnp.asarray(0.5 if context.trained else 0.0), after=6)


class Messages(logging.Handler):
    """Collects what the package logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two methods trained as one program, the last of which ruins its runs, a sweep over its price:
    (runs, results, what was logged)."""
    folder = tmp_path_factory.mktemp("together")
    group = [
        tiny_run(folder / "plain"),
        tiny_run(folder / "ruined", method=Ruin(), seeds=1),
        tiny_run(folder / "paid", method=Ruin(price=0.5), seeds=1),
    ]
    messages = Messages()
    logging.getLogger("ella").addHandler(messages)
    results = train_runs(group)
    logging.getLogger("ella").removeHandler(messages)
    return group, results, messages.lines


@pytest.fixture(scope="module")
def together(trained):
    return trained[0]


@pytest.mark.thorough
def test_each_run_is_as_if_trained_alone(together, whole):
    """As `whole`, where the toy method pays nothing at first."""
    alone = values(whole.directory)
    for planned in together[:2]:
        shared, rows = values(planned.directory), planned.settings.seeds
        assert shared.keys() == alone.keys()
        # Rounding may differ, so compare before one differing action could grow into many.
        for name in ("seed", "frames", "loss", "bonus", "entropy"):
            np.testing.assert_allclose(shared[name][:rows], alone[name][:rows], rtol=1e-3)
    provenance = json.loads((together[0].directory / "run.json").read_text())
    assert provenance["trained_together_with"] == ["ruined", "paid"]


@pytest.mark.thorough
def test_a_sweep_over_a_number_gives_each_run_its_own(together):
    """And all of them what their offline stage found, which ends after compilation began."""
    *_, ruined, paid = together
    before = slice(0, 6 // 3)
    assert values(ruined.directory)["bonus"][before].tolist() == [0, 0]
    assert values(paid.directory)["bonus"][before].tolist() == [0.25, 0.25]


@pytest.mark.thorough
def test_a_group_resumes_from_the_newest_checkpoint_that_all_have(trained, tmp_path, caplog):
    runs, results, *_ = trained
    group = [replace(run, directory=tmp_path / run.directory.name) for run in runs]
    for old, new in zip(runs, group, strict=True):
        shutil.copytree(old.directory, new.directory)
    (group[0].directory / "checkpoints" / "000000012.safetensors").unlink()
    shutil.rmtree(group[0].directory / "policies")
    with caplog.at_level(logging.INFO, "ella"):
        resumed = train_runs(group, resume=True)
    assert f"resuming at {6 * FRAMES_PER_ITERATION} frames a seed" in caplog.messages
    assert [result.outcome for result in resumed] == [result.outcome for result in results]
    for old, new in zip(runs, group, strict=True):
        for name, column in values(old.directory).items():
            np.testing.assert_array_equal(column, values(new.directory)[name])


@pytest.mark.thorough
def test_a_run_that_diverges_does_not_stop_the_others(trained):
    group, (fine, *ruined), logged = trained
    assert fine.outcome == Outcome.FINISHED
    assert fine.frames == 12 * FRAMES_PER_ITERATION
    for planned, result in zip(group[1:], ruined, strict=True):
        assert result.outcome == Outcome.DIVERGED
        assert result.frames == 6 * FRAMES_PER_ITERATION
        assert any("not finite" in line and planned.directory.name in line for line in logged)
        assert not (planned.directory / "policies").exists()


@pytest.mark.thorough
def test_estimates_use_the_rates_of_runs_in_the_folder(trained, tmp_path):
    group, results, _ = trained
    new = tiny_run(tmp_path / "new")
    assert known_rate([new], [new]) is None
    rate = known_rate([new], [new, group[0]])
    assert rate == pytest.approx(results[0].last.frames_per_second, abs=0.1)


@pytest.mark.thorough
def test_what_is_done_is_known(together, tmp_path):
    assert run_progress(together[0]).finished
    assert unfinished([together[0], tiny_run(tmp_path / "new")]) == [tiny_run(tmp_path / "new")]
    longer = replace(together[0], settings=replace(together[0].settings, frames=10_000))
    assert not run_progress(longer).finished
    other = replace(together[0], settings=replace(together[0].settings, seed=5))
    with pytest.raises(InputError, match="other settings"):
        run_progress(other)


def test_groups_hold_runs_of_one_shape_up_to_a_number_of_seeds(tmp_path):
    runs = [
        tiny_run(tmp_path / "a"),
        tiny_run(tmp_path / "b", method=ella.RIDE()),
        tiny_run(tmp_path / "longer", iterations=24),
        tiny_run(tmp_path / "c", method=ella.RND(), seeds=1),
    ]
    names = [[run.directory.name for run in group] for group in groups_of(runs, 5)]
    assert names == [["a", "b", "c"], ["longer"]]
    names = [[run.directory.name for run in group] for group in groups_of(runs, 4)]
    assert names == [["a", "b"], ["longer"], ["c"]]


@pytest.mark.thorough
def test_runs_begun_apart_stay_apart(together, tmp_path):
    runs = [together[0], tiny_run(tmp_path / "new")]
    assert len(groups_of(runs, 32)) == 2
    assert len(groups_of(together, 32)) == 1


def test_runs_of_other_shapes_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be trained together"):
        train_runs([tiny_run(tmp_path / "a"), tiny_run(tmp_path / "b", iterations=24)])
    with pytest.raises(InputError, match="share a directory"):
        train_runs([tiny_run(tmp_path / "a"), tiny_run(tmp_path / "a")])
