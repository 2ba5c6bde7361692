"""The relevance classifier: where it starts, and that it learns what D says."""

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.episodes.explanation import explain
from ella.errors import InputError
from ella.networks.settings import RelevanceNetworkSettings
from ella.schedule import LARGEST_COUNT
from ella.shaping import relevance as relevance_module
from ella.shaping import relevance_dataset
from ella.shaping.beliefs import BelievedRelevance
from ella.shaping.ella import EllaState, EpisodeLedger, ella_shaper
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.shaping.relevance import LearnedRelevance
from ella.shaping.relevance_training import Decompositions, draw_pairs
from ella.shaping.settings import RELEASED_TRAINING, RelevanceSettings, RelevanceTrainingSettings
from ella.shaping.termination import visible_termination
from ella.trajectory import InstructionTable
from ella.world import levels
from ella.world.tasks import TaskSpec, find

SPEC = find("unlock-maze")
NETWORK = RelevanceNetworkSettings(hidden_size=32, output_size=32)
FAST = RelevanceTrainingSettings(batch=16, learning_rate=3e-3, max_learning_rate=3e-3)
SLOW = replace(RELEASED_TRAINING, learning_rate=3e-3, initial_epochs=3)
IDS = jnp.arange(SPEC.language.num_ids, dtype=jnp.int32)


@cache
def relevance_by(training: RelevanceTrainingSettings) -> LearnedRelevance:
    return LearnedRelevance(SPEC, RelevanceSettings(NETWORK, training)).ready_to_learn()


@jax.jit
def truthful_dataset(ids: jax.Array) -> relevance_dataset.RelevanceDataset:
    """D as it would be after many successes of some instructions."""
    empty = relevance_dataset.empty(SPEC.language.num_ids, low_level_of(SPEC).language.num_ids)
    return relevance_dataset.record(
        empty, ids, oracle_relevance(SPEC, ids), jnp.ones(ids.shape, bool)
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(FAST, id="rows"),
        pytest.param(SLOW, id="pairs", marks=pytest.mark.thorough),
    ],
)
def learner(request):
    """(relevance, its state before training, `fit` and `probability` compiled)."""
    relevance = relevance_by(request.param)
    state = jax.jit(lambda key: relevance.init(key=key))(jax.random.key(0))
    key = jax.random.key(1)
    fit = jax.jit(
        lambda state, data, iteration: relevance.fit(
            state, data, iteration, frames_per_iteration=2560, key=key
        )
    )
    probability = jax.jit(lambda state: relevance.probability(state, IDS))
    return relevance, state, fit, probability


def same(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_begins_with_everything_and_learns_what_the_data_say(learner):
    _, state, fit, probability = learner
    assert (np.asarray(probability(state)) > 0.5).all()
    truth = truthful_dataset(IDS)
    for update in range(20):
        state, measured = fit(state, truth, jnp.int32(49 + 50 * update))
    called = np.asarray(probability(state)) > 0.5
    np.testing.assert_array_equal(called, oracle_relevance(SPEC, IDS))
    found = {name: float(mean.total) for name, mean in measured.items()}
    assert found == pytest.approx(
        {"relevance_accuracy": 1.0, "relevance_precision": 1.0, "relevance_recall": 1.0}
    )


def test_updates_only_when_due_and_only_from_data(learner):
    _, state, fit, _ = learner
    some, none = truthful_dataset(jnp.array([2])), relevance_dataset.empty(6, 36)
    kept, measured = fit(state, some, jnp.int32(48))
    assert same(kept, state)
    assert float(measured["relevance_accuracy"].count) == 0
    unchanged, measured = fit(state, none, jnp.int32(49))
    assert same(unchanged, state)
    assert float(measured["relevance_accuracy"].total) == pytest.approx(0.5)
    assert not same(fit(state, some, jnp.int32(49))[0], state)


@pytest.mark.thorough
def test_seeds_with_different_amounts_of_data_do_not_meet(learner):
    _, state, fit, _ = learner
    some, none = truthful_dataset(jnp.array([2])), relevance_dataset.empty(6, 36)
    stacked = jax.tree.map(lambda a, b: jnp.stack([a, b]), some, none)
    both = jax.tree.map(lambda a: jnp.stack([a, a]), state)
    due = jnp.int32(49)
    together, _ = jax.jit(jax.vmap(fit, in_axes=(0, 0, None)))(both, stacked, due)
    for index, alone in enumerate((fit(state, some, due)[0], state)):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[index], b, rtol=1e-2, atol=1e-4)


def test_pairs_are_balanced_and_true():
    relevant = np.zeros((4, 36), bool)
    relevant[0, [3, 5]] = True
    relevant[1] = True
    relevant[2, 7] = True
    data = Decompositions(
        jnp.zeros((4, 1), jnp.int32), jnp.asarray(relevant), jnp.array([True, True, True, False])
    )
    draw = jax.jit(lambda key: draw_pairs(data, 20, key=key))
    pairs = draw(jax.random.key(0))
    count = int(pairs.count)
    assert count == 40 + 20 + 40  # the second row has nothing irrelevant to draw
    row, low, label = (np.asarray(part)[:count] for part in (pairs.row, pairs.low, pairs.relevant))
    assert (relevant[row, low] == label).all()
    assert np.bincount(row, weights=label).tolist() == [20, 20, 20]
    assert set(low[(row == 0) & label]) == {3, 5}


def test_predictions_for_a_rollout_follow_its_table(learner):
    relevance, state, _, probability = learner
    ids = jnp.array([4, 1, 1, 0])
    table = InstructionTable(ids, SPEC.language.tokens(ids))
    found = jax.jit(lambda state, table: relevance.relevant(state, table))(state, table)
    np.testing.assert_array_equal(found, np.asarray(probability(state))[ids] > 0.5)


def test_explains_an_instruction(learner):
    relevance, learned, *_ = learner
    text = "open the green door"
    low = low_level_of(SPEC).language
    shaper = ella_shaper(SPEC, visible_termination(low), relevance)
    nothing = jnp.zeros((2, 36), bool)
    state = EllaState(
        EpisodeLedger(nothing, nothing, jnp.zeros(2)),
        jnp.int32(0),
        truthful_dataset(jnp.array([SPEC.language.find(text)])),
        learned,
    )
    found = explain(SPEC, shaper, state, text)
    assert found.seen
    assert len(found.judgements) == 36
    members = {judgement.text for judgement in found.judgements if judgement.in_dataset}
    assert members == {"pick up the green key", "pick up a green key"}
    assert members == {judgement.text for judgement in found.judgements if judgement.oracle}
    assert not explain(SPEC, shaper, state, "open the red door").seen
    with pytest.raises(InputError, match="not an instruction"):
        explain(SPEC, shaper, state, "pick up the green key")


def missions_of_fresh_levels(spec: TaskSpec) -> dict[str, np.ndarray]:
    """Instruction ids of levels that training has not seen, by kind of mission."""
    ids = np.asarray(levels.generate(spec, jax.random.key(123), 4096).instruction_id)
    by_kind: dict[str, list[int]] = {}
    for number in np.unique(ids):
        words = set(spec.language.text(int(number)).replace(",", "").split())
        verbs = "+".join(sorted(words & {"open", "pick", "put", "go"}))
        by_kind.setdefault(verbs + " door" * ("door" in words), []).append(int(number))
    return {kind: np.array(numbers, np.int32) for kind, numbers in by_kind.items()}


COMBO_KINDS = {"open door", "pick", "put", "put door"}
SEQUENCE_KINDS = {
    *COMBO_KINDS,
    *("pick+put", "pick+put door", "open+pick door", "open+put door"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ("combo-maze", COMBO_KINDS),
        ("sequence-maze", SEQUENCE_KINDS),
    ],
)
def test_everything_is_relevant_at_first_to_every_kind_of_mission(task, kinds):
    spec = find(task)
    relevance = LearnedRelevance(spec).ready_to_learn()
    missions = missions_of_fresh_levels(spec)
    assert missions.keys() == kinds
    everything = jnp.asarray(np.concatenate(list(missions.values())))

    def start(key):
        state = relevance.init(key=key)
        return relevance.probability(state, everything), relevance.start_problems(state)

    # Hundreds of training steps: worth some optimisation.
    start = jax.jit(start, compiler_options={"xla_backend_optimization_level": 1})
    probability, problems = start(jax.random.key(0))
    ends = np.cumsum([len(ids) for ids in missions.values()])[:-1]
    for kind, judged in zip(missions, np.split(np.asarray(probability), ends), strict=True):
        assert (judged > 0.5).all(), kind
    assert not any(problems.values())


def test_initial_training_and_validation_see_the_missions_of_levels():
    spec = find("combo-maze")
    relevance = LearnedRelevance(spec, RelevanceSettings(NETWORK, FAST)).ready_to_learn()
    drawn = np.asarray(relevance.draw_initial(key=jax.random.key(0)))
    assert drawn.shape == np.unique(drawn).shape == (100,)
    # Of the language's instructions 42 in 1482 are not put-next missions, of levels two thirds.
    starts = [spec.language.text(int(number)).split()[0] for number in drawn]
    assert starts.count("open") == 6
    assert starts.count("pick") >= 20
    validated = np.asarray(relevance.level_instructions[:256])
    share = np.mean([spec.language.text(int(number)).startswith("put") for number in validated])
    assert share == pytest.approx(1 / 3, abs=0.1)


def test_levels_are_drawn_only_for_learning(monkeypatch):
    drawn = []

    def instructions(spec, count):
        drawn.append(spec)
        return np.zeros(count, np.int32)

    monkeypatch.setattr(relevance_module, "instructions_of_levels", instructions)
    plain = LearnedRelevance(SPEC, RelevanceSettings(NETWORK, FAST))
    for judge in (plain, BelievedRelevance(plain)):
        judge.state_shapes()
        assert not drawn
        judge.ready_to_learn()
        assert drawn.pop() == SPEC


def test_few_different_missions_are_all_drawn():
    drawn = relevance_by(FAST).draw_initial(key=jax.random.key(0))
    np.testing.assert_array_equal(np.sort(drawn), IDS)


@pytest.mark.thorough
def test_a_start_that_does_not_get_there_is_a_problem():
    once = RelevanceSettings(NETWORK, replace(FAST, max_initial_steps=1), max_initial_rounds=1)
    relevance = LearnedRelevance(SPEC, once).ready_to_learn()
    state = jax.jit(lambda key: relevance.init(key=key))(jax.random.key(0))
    ((line, applies),) = relevance.start_problems(state).items()
    assert applies
    assert "relevance.max_initial_rounds" in line


@pytest.mark.parametrize(
    ("frames", "paid"), [(0, 0), (1, 1), (128, 2), (129, 3)], ids=lambda value: str(value)
)
def test_everything_is_paid_for_in_the_first_frames_of_a_seed(frames, paid):
    relevance = LearnedRelevance(SPEC, RelevanceSettings(everything_frames=frames))
    for judge in (relevance, BelievedRelevance(relevance)):
        found = judge.pays_everything(jnp.arange(5), 64)
        assert found.tolist() == [True] * paid + [False] * (5 - paid)


def test_more_frames_than_are_counted_are_all_paid_for():
    relevance = LearnedRelevance(SPEC, RelevanceSettings(everything_frames=2**33))
    found = relevance.pays_everything(jnp.array([0, LARGEST_COUNT - 1]), 1)
    assert found.tolist() == [True, True]


def test_a_negative_number_of_frames_is_refused():
    with pytest.raises(InputError, match="everything_frames must be >= 0, got -1"):
        RelevanceSettings(everything_frames=-1)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"batch": 0}, "batch must be >= 1, got 0"),
        ({"max_steps": 0}, "max_steps must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0"),
        ({"learning_rate": math.nan}, "learning_rate must be > 0, got nan"),
        ({"max_learning_rate": math.inf}, "max_learning_rate must be > 0 and finite, got inf"),
    ],
)
def test_impossible_training_settings_are_refused(bad, complaint):
    with pytest.raises(InputError, match=f"^relevance {complaint}$"):
        RelevanceTrainingSettings(**bad)
