"""What is shown of ELLA is what the run pays: its own language, thresholds and number of frames."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.episodes.episode import expert_actor
from ella.episodes.explanation import explain
from ella.methods.ella import ELLA, EllaMethod
from ella.methods.ella_oracle import ELLAOracle
from ella.methods.ella_solvent import ELLASolvent
from ella.runs.config_file import write_config
from ella.runs.relevance_file import save_relevance
from ella.runs.restore import LearnedElla, learned_ella
from ella.studio.ledger_view import Judges, LedgerView
from ella.training.assembly import build_shaper
from ella.training.settings import TrainingSettings
from ella.world import compiled, make
from ella.world.tasks import find

SPEC = find("unlock-maze")


def exported(folder, method: EllaMethod, frames: int = 0) -> LearnedElla:
    """ELLA as an agent brings it, before it has learned anything, after so many frames."""
    settings = TrainingSettings(method=method)
    shaper = build_shaper(SPEC, settings, trained=False, only_judges=True)
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shaper.state_shapes(1))
    state = replace(nothing, steps=np.int32(frames // settings.ppo.num_envs))
    write_config(folder, SPEC, settings)
    save_relevance(folder, state)
    return learned_ella(folder)


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (ELLA(), 36),
        pytest.param(ELLASolvent(), 18, marks=pytest.mark.thorough),
        pytest.param(ELLA(low_level=("pick-maze", "goto-maze")), 78, marks=pytest.mark.thorough),
    ],
)
def test_the_ledger_has_the_low_level_instructions_of_the_run(tmp_path, method, count):
    learned = exported(tmp_path, method)
    view = LedgerView(SPEC, Judges(learned.shaper, learned.state, are_learned=True))
    world = make(SPEC)
    timestep = compiled.reset(world, jax.random.key(3))
    view.begin(timestep)
    act = expert_actor(world)
    while not bool(timestep.terminated):
        action = act(timestep)
        before, timestep = timestep, compiled.step(world, timestep.state, action)
        view.step(before, action, timestep)
    rows = view.rows()
    assert len({row["text"] for row in rows}) == count
    mission = SPEC.language.text(int(timestep.observation.instruction_id))
    colour = mission.split()[-2]
    assert f"pick up the {colour} key" in {row["text"] for row in rows if row["completed"]}


def test_paid_for_is_what_exceeds_the_base_rate(tmp_path):
    learned = exported(tmp_path, ELLASolvent())
    beliefs = replace(learned.state.relevance, shift=jnp.float32(-5))
    often = replace(beliefs.rates, rate=jnp.full_like(beliefs.rates.rate, 0.999))
    text = "open the red door"
    for state, paid in ((beliefs, 18), (replace(beliefs, rates=often), 0)):
        found = explain(SPEC, learned.shaper, replace(learned.state, relevance=state), text)
        assert min(judgement.probability for judgement in found.judgements) > 0.5
        assert len(found.paid_for) == paid


@pytest.mark.parametrize(("frames", "paid"), [(2_000_000, 18), (3_000_000, 0)])
def test_a_learned_judge_pays_for_everything_as_long_as_it_is_asked_to(tmp_path, frames, paid):
    method = ELLASolvent()
    method = replace(method, relevance=replace(method.relevance, everything_frames=2_500_000))
    learned = exported(tmp_path, method, frames)
    beliefs = replace(learned.state.relevance, shift=jnp.float32(5))
    state = replace(learned.state, relevance=beliefs)
    found = explain(SPEC, learned.shaper, state, "open the red door")
    assert max(judgement.probability for judgement in found.judgements) < 0.5
    assert len(found.paid_for) == paid


@pytest.mark.parametrize(("frames", "paid"), [(2_000_000, 36), (10_000_000, 2), (3 * 10**9, 2)])
def test_an_oracle_pays_for_everything_as_long_as_it_did_in_training(tmp_path, frames, paid):
    learned = exported(tmp_path, ELLAOracle(after_frames=2_500_000), frames)
    found = explain(SPEC, learned.shaper, learned.state, "open the red door")
    assert len(found.paid_for) == paid
