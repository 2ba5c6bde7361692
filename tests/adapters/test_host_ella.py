"""ELLA outside the compiled program: what it pays, learns, saves and refuses."""

import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from errands import PAYING, SIZES, SMALL, errands_ella, standing_at
from gymnasium.utils import seeding
from own_environment import CUSTOMERS, GOODS, LOW_LEVEL, PLACES, SHOPS, visited

import ella
from ella.adapters.babyai_judge import babyai_low_level
from ella.adapters.gymnasium_env import EllaEnv, draw_key
from ella.adapters.gymnasium_shaping import ShapedEnv
from ella.adapters.host_ella import FORMAT_VERSION, HostElla
from ella.array_file import save_arrays
from ella.episodes.payments import episode_trajectory
from ella.errors import InputError
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.settings import RelevanceSettings
from ella.shaping.termination import visible_termination
from ella.trajectory import Trajectory
from ella.world import compiled

NEEDED = {
    f"bring {goods} to the {customer}": (shop, customer)
    for goods, shop in zip(GOODS, SHOPS, strict=True)
    for customer in CUSTOMERS
}
"""The places that matter for each of the 16 errands."""
MISSIONS = list(NEEDED)
UPDATES = 5
B = len(MISSIONS)
EVERY_ROUND = {"first_update": 3 * B, "update_every": 3 * B}
"""Steps of one round of errands of all environments."""


@pytest.mark.thorough
def test_step_by_step_it_pays_what_the_compiled_program_pays():
    spec = ella.world.tasks.find("putnext-room")
    low = low_level_of(spec).language
    told = babyai_low_level(spec.low_level, learned=False)
    assert told.instructions == tuple(low.text(index) for index in range(low.num_ids))
    program = EllaShaper(
        termination=visible_termination(low),
        relevance=OracleRelevance(spec, after_frames=10**9),
        bonus=0.1,
        discount=PAYING["discount"],
        reward_scale=1.0,
        recheck=True,
        neutralise=True,
        solvency=0.4,
        last_state=False,
        num_ids=spec.language.num_ids,
    )
    host = HostElla(
        told.instructions, told.judge, last_state=False, success_reward=0.5,
        **(SIZES | PAYING | {"bonus_share": 0.2, "max_words": 16, "solvency": 0.4}),
    )  # fmt: skip
    world = ella.make(spec)
    env = ShapedEnv(EllaEnv(spec), host, reward_scale=4.0)
    random = np.random.default_rng(0)
    episodes, bonuses, successes = [], [], 0
    for seed in range(6):
        env.reset(seed=seed)
        generator, _ = seeding.np_random(seed)
        timesteps = [compiled.reset(world, draw_key(generator))]
        actions, shaped, own, done = [], [], [], False
        while not done:
            expert = int(compiled.expert_action(world, timesteps[-1].state))
            actions.append(expert if random.random() < 0.7 else int(random.integers(6)))
            _, reward, terminated, truncated, info = env.step(actions[-1])
            timesteps.append(compiled.step(world, timesteps[-1].state, np.int32(actions[-1])))
            shaped.append(reward)
            own.append(info["unshaped_reward"])
            done = terminated or truncated
        successes += own[-1] > 0
        episodes.append(episode_trajectory(timesteps, actions))
        bonuses += (np.array(shaped) / 4.0 - own).tolist()
    assert successes >= 3
    state = program.init(1, key=jax.random.key(0))
    state, expected, measured = jax.jit(program.shape)(state, one_after_another(episodes))
    np.testing.assert_allclose(bonuses, expected[:, 0], atol=1e-6)
    told_of = host.measurements()
    for name in ("insolvent_successes", "success_net_reward"):
        mean = measured[name]
        assert told_of[name] == pytest.approx(float(mean.total / mean.count), abs=1e-6)
    assert 0 < told_of["insolvent_successes"] < 1, "some are charged in full, some are not"
    for text in host.solved():
        row = relevance_dataset.decompositions(
            state.dataset, jnp.array([spec.language.find(text)]), low.num_ids
        )[0]
        assert host.solved()[text] == {low.text(i) for i in np.flatnonzero(row)}


def one_after_another(episodes: list[Trajectory]) -> Trajectory:
    """Episodes of one environment as one rollout, so that one program serves them all."""
    rows = [
        replace(episode, instruction_row=episode.instruction_row + index)
        for index, episode in enumerate(episodes)
    ]
    joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *rows)
    assert joined.instructions.ids.shape == (len(episodes),)
    return joined


def errands_of_a_round(host: HostElla, round_: int, solved: int = B) -> None:
    """Every mission once, by way of some other place: three steps of each environment. Only the
    first `solved` succeed."""
    detours = [list(PLACES.values())[(round_ + index) % 8] for index in range(B)]
    shops, customers = zip(*NEEDED.values(), strict=True)
    yes = np.ones(B, bool)
    for step, places in enumerate((detours, shops, shops)):
        last = yes & (step == 2)
        host.shape(
            standing_at(*places), MISSIONS, yes & (step == 0), last & (np.arange(B) < solved), last,
            last_observations=standing_at(*customers),
        )  # fmt: skip


@pytest.fixture(scope="module")
def taught() -> HostElla:
    """After a few rounds of all errands."""
    host = errands_ella(**EVERY_ROUND)
    assert set(host.relevance("bring ink to the widow").values()) == {1.0}
    assert set(host.relevance("words nobody used").values()) == {1.0}
    host.start(B)
    for round_ in range(UPDATES):
        errands_of_a_round(host, round_)
    assert host.updates == UPDATES
    return host


def test_it_learns_what_matters_for_each_errand(taught):
    for mission, places in NEEDED.items():
        needed = {f"visit the {place}" for place in places}
        assert taught.solved()[mission] == needed
        relevance = taught.relevance(mission)
        assert set(list(relevance)[:2]) == needed
        assert list(relevance.values())[2] < 0.5
    assert set(taught.relevance("bring glue to the widow").values()) == {1.0}
    measured = taught.measurements()
    assert 2.0 <= measured["decomposition_size"] < len(PLACES)
    assert measured["bonus_per_episode"] > 0
    assert "decomposition_size" not in taught.measurements()


@pytest.mark.thorough
def test_it_pays_for_everything_in_the_first_frames_and_learns_meanwhile():
    paid = {}
    for frames in (0, 3 * B * UPDATES):
        relevance = replace(SMALL, everything_frames=frames)
        host = errands_ella(**EVERY_ROUND, relevance=relevance)
        host.start(B)
        for round_ in range(UPDATES + 1):
            host.measurements()
            errands_of_a_round(host, round_)
            paid[frames, round_] = host.measurements()["bonus_per_episode"]
    late = 3 * B * UPDATES
    assert paid[0, 0] == paid[late, 0]
    assert paid[0, UPDATES - 1] < paid[late, UPDATES - 1]
    assert paid[0, UPDATES] == paid[late, UPDATES], "both learned the same"


def test_everything_stays_relevant_to_what_has_never_succeeded():
    """The classifier alone, which learned from the other instruction, would find nothing to be."""
    host = errands_ella(**EVERY_ROUND)
    host.start(B)
    missions = ["place a table", "eat a cow"] * (B // 2)
    at_the_bakery, yes = standing_at(*["bakery"] * B), np.ones(B, bool)
    succeeds = np.arange(B) % 2 == 0
    while host.updates < 4:
        host.shape(at_the_bakery, missions, yes, succeeds, yes, last_observations=at_the_bakery)
    assert host.relevance("place a table")["visit the bakery"] > 0.5
    assert min(host.relevance("place a table").values()) < 0.5
    for text in ("eat a cow", "paint a cow"):
        assert set(host.relevance(text).values()) == {1.0}
    missions[1] = "paint a cow"
    bonus = host.shape(standing_at(*["widow"] * B), missions, yes, ~yes, ~yes)
    np.testing.assert_allclose(bonus[:4], [0, 0.1, 0, 0.1])


def test_the_shaper_and_the_updates_read_the_same_sentences(taught):
    """They are data: in the state, not in the module that reads them."""
    ids = jnp.asarray(taught._sentences.use(MISSIONS)[0])
    found = taught._shaper.relevance.probability(taught._state.relevance, ids)
    for mission, row in zip(MISSIONS, found, strict=True):
        expected = dict(zip(LOW_LEVEL, row.tolist(), strict=True))
        assert taught.relevance(mission) == pytest.approx(expected, abs=1e-5)


def test_a_saved_and_loaded_one_continues_identically(taught, tmp_path):
    taught.save(tmp_path / "ella.safetensors")
    other = errands_ella(seed=7, **EVERY_ROUND)
    other.load(tmp_path / "ella.safetensors")
    missions = ["bring ink to the widow", "sweep the bakery"] * (B // 2)
    observations = standing_at(*["bakery"] * B)
    for host in (taught, other):
        host.start(B)
    first, done = np.ones(B, bool), np.zeros(B, bool)
    for step in range(12):
        bonuses = [
            host.shape(observations, missions, first, done, done, last_observations=observations)
            for host in (taught, other)
        ]
        np.testing.assert_array_equal(*bonuses)
        first, done = done, np.full(B, step % 5 == 0)
    assert taught.updates == other.updates > UPDATES
    assert taught.solved()["sweep the bakery"] == {"visit the bakery"}
    assert taught.solved() == other.solved()
    for mission in MISSIONS:
        assert taught.relevance(mission) == other.relevance(mission)
    assert min(taught.relevance("bring ink to the widow").values()) < 0.5


def succeed(host: HostElla, missions: list[str]) -> None:
    """At the bakery, until the next update."""
    before, seen, yes = host.updates, standing_at(*["bakery"] * B), np.ones(B, bool)
    while host.updates == before:
        host.shape(seen, missions, yes, yes, yes, last_observations=seen)


@pytest.mark.thorough
@pytest.mark.parametrize("learns", [False, True])
def test_words_beyond_the_vocabulary_stay_unseen_until_there_is_room(
    learns, taught, tmp_path, caplog
):
    taught.save(tmp_path / "taught.safetensors")
    host = errands_ella(**EVERY_ROUND)
    host.load(tmp_path / "taught.safetensors")
    host.start(B)
    numbers = [" ".join(f"word{10 * row + place}" for place in range(8)) for row in range(B)]
    errands = MISSIONS[: B // 2]
    succeed(host, numbers)
    succeed(host, ["paint the bakery"] * (B // 2) + errands)
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1
    assert "more than 62 different words" in said[0]
    assert min(host.relevance(numbers[0]).values()) < 0.5
    for text in (numbers[-1], "paint the bakery"):
        assert set(host.relevance(text).values()) == {1.0}
    assert host.solved()["paint the bakery"] == {"visit the bakery"}

    saved = tmp_path / "ella.safetensors"
    host.save(saved)
    larger = errands_ella(**EVERY_ROUND, vocabulary=256, max_instructions=40, max_words=9)
    larger.load(saved)
    assert larger.solved() == host.solved()
    assert larger.updates == host.updates
    for text in (numbers[0], *errands):
        assert larger.relevance(text) == pytest.approx(host.relevance(text), abs=1e-5)
    assert set(larger.relevance("paint the bakery").values()) == {1.0}
    if learns:
        larger.start(B)
        succeed(larger, ["paint the bakery"] * B)
        assert min(larger.relevance("paint the bakery").values()) < 0.5
    larger.save(saved)
    with pytest.raises(InputError, match=r"at least max_instructions=40, vocabulary=256$"):
        errands_ella().load(saved)


def test_an_instruction_that_is_read_further_after_loading_counts_as_never_solved(tmp_path):
    short, long = "paint the bakery", "paint the bakery and then rest"
    host = errands_ella(**EVERY_ROUND, max_words=4)
    host.start(B)
    for _ in range(4):
        succeed(host, [short, long] * (B // 2))
    host.save(tmp_path / "ella.safetensors")
    larger = errands_ella(**EVERY_ROUND)
    larger.load(tmp_path / "ella.safetensors")
    elsewhere, yes = standing_at(*["widow"] * B), np.ones(B, bool)
    for one, paid in ((host, [0, 0]), (larger, [0, 0.1])):
        assert [one.relevance(text)["visit the widow"] > 0.5 for text in (short, long)] == [
            bonus > 0 for bonus in paid
        ]
        one.start(B)
        bonus = one.shape(elsewhere, [short, long] * (B // 2), yes, ~yes, ~yes)
        np.testing.assert_allclose(bonus[:2], paid)


def test_it_starts_once_even_if_all_words_are_beyond_the_vocabulary():
    host = errands_ella(**EVERY_ROUND)
    host._sentences.restore([f"word{place}" for place in range(64)], [], [])
    host.start(B)
    steps = []
    for _ in range(2):
        succeed(host, ["paint it"] * B)
        steps.append(int(host._state.relevance.learner.optimiser.count))
    assert steps[1] > steps[0] > 0, "the optimiser starts afresh where everything is taught again"


def test_measurements_of_unfinished_episodes_are_kept():
    hosts = []
    at_the_bakery = standing_at("bakery")
    for asks in (False, True):
        host = errands_ella()
        host.start(1)
        found = []
        for step in range(8):
            last = np.array([step % 4 == 3])
            host.shape(at_the_bakery, ["go"], np.array([step % 4 == 0]), last & False, last)
            found += [host.measurements()] if asks else []
        hosts.append(found or [host.measurements()])
    said = [
        [part["bonus_per_episode"] for part in one if "bonus_per_episode" in part] for one in hosts
    ]
    assert said == [[pytest.approx(0.1)], [pytest.approx(0.1)] * 2]


def test_a_success_without_a_reward_is_charged_by_what_it_is_worth():
    """As where every step costs 1 until the goal is reached."""
    host = errands_ella(bonus_share=0.1, success_reward=10.0, solvency=0.5)
    here, no = standing_at(*["bakery"] * 3), np.zeros(3, bool)
    for steps, expected in ((4, [-(0.9**-4)] * 2 + [-0.15]), (20, [-5.0, -5.0, -0.15])):
        host.start(3)
        for step in range(steps):
            costs = -np.ones(3)
            paid = host.shape(here, ["go"] * 3, ~no if step == 0 else no, no, no, rewards=costs)
            np.testing.assert_array_equal(paid, np.float32(step == 0))
        bonus = host.shape(
            here, ["go"] * 3, no, ~no, ~no, rewards=np.array([0.0, -1.0, 0.3]),
            last_observations=here,
        )  # fmt: skip
        np.testing.assert_allclose(bonus, expected, rtol=1e-5)
        measured = host.measurements()
        assert measured["success_net_reward"] == pytest.approx((sum(expected) - 0.7) / 3)
        assert measured["insolvent_successes"] == pytest.approx(1 / 3 if steps == 4 else 1)


@pytest.mark.parametrize("solvency", [None, pytest.param(0.5, marks=pytest.mark.thorough)])
def test_a_success_that_owes_more_than_it_brings_is_warned_of_once(solvency, caplog):
    """A bonus of 0.1 is owed 1.39 times over 25 steps later."""
    host = errands_ella(solvency=solvency, max_completions=1)
    here, yes, no = standing_at("bakery"), np.ones(1, bool), np.zeros(1, bool)
    for steps, warned in ((10, 0), (25, 1), (25, 1)):
        host.start(1)
        for step in range(steps + 1):
            last = np.array([step == steps])
            host.shape(
                here, ["go"], no if step else yes, last, last, rewards=last.astype(float),
                last_observations=here,
            )  # fmt: skip
        assert len(caplog.records) == (0 if solvency else warned)
    if not solvency:
        assert "a success worth 1 was charged 1.39 for" in caplog.text
        assert "HostElla(solvency=0.5)" in caplog.text


def test_more_instructions_than_there_is_room_for_push_out_the_least_recent():
    host = HostElla(
        ["wave", "wait"],
        lambda observations: np.asarray(observations, bool),
        last_state=False,
        **(PAYING | SIZES | {"max_instructions": 2}),
    )
    host.start(1)
    yes = np.array([True])
    for mission, seen in (
        ("greet ann", [[1, 0]]), ("greet bob", [[1, 1]]), ("greet ann", [[1, 1]]),
        ("meet cleo", [[0, 1]]), ("greet bob", [[0, 1]]), ("greet bob", [[1, 1]]),
        ("meet dan", [[1, 1]]), ("meet eve", [[0, 0]]),
    ):  # fmt: skip
        host.shape(seen, [mission], yes, yes, yes)
    # Bob's first success was forgotten when Cleo came; both are what is remembered.
    assert host.solved() == {"meet dan": {"wave", "wait"}}
    seen_now = host._state.dataset
    assert (int(seen_now.num_seen), int(seen_now.num_members)) == (1, 2)
    host.start(3)
    several = np.repeat(yes, 3)
    with pytest.raises(InputError, match="max_instructions"):
        host.shape([[0, 0]] * 3, ["a", "b", "c"], several, ~several, ~several)


@pytest.mark.thorough
@pytest.mark.parametrize(("most", "seed"), [(1, 0), (1, 1), (2, 0)])
def test_learning_starts_from_as_few_instructions_as_there_may_be(most, seed):
    host = HostElla(
        ["wave", "wait"][:most], lambda observations: np.asarray(observations, bool),
        max_instructions=most, first_update=1, seed=seed, **PAYING,
    )  # fmt: skip
    host.start(most)
    seen, yes = np.eye(most, dtype=bool), np.ones(most, bool)
    host.shape(seen, ["greet ann", "meet bob"][:most], yes, yes, yes, last_observations=seen)
    assert host.updates == 1


def test_files_that_cannot_be_loaded_are_one_line(tmp_path):
    saved = tmp_path / "ella.safetensors"
    host = errands_ella()
    host.start(1)
    host.shape(standing_at("bakery"), ["a b c d e"], *np.zeros((3, 1), bool))
    host.save(saved)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(saved.read_bytes()[:100])
    foreign = tmp_path / "foreign"
    foreign.write_bytes(
        safetensors.numpy.save({"a": np.zeros(1)}, metadata={"ella": '{"format_version": 1}'})
    )
    other, policy, wrong = (tmp_path / name for name in ("other", "policy", "wrong"))
    save_arrays(other, {}, kind="HostElla", version=9, table={})
    save_arrays(policy, {}, kind="policy", version=FORMAT_VERSION, table={})
    table = {"low_level": [], "words": [], "instructions": [], "schedule": "late", "updates": 0}
    save_arrays(wrong, {}, kind="HostElla", version=FORMAT_VERSION, table=table)
    same = errands_ella()
    other_network = replace(SMALL, network=replace(SMALL.network, hidden_size=16))
    for host, path, complaint in (
        (same, foreign, "not a file that HostElla.save wrote"),
        (same, other, "format version 9"),
        (same, policy, "holds a policy"),
        (same, wrong, "not a file that HostElla.save wrote"),
        (same, damaged, "not a file that HostElla.save wrote"),
        (same, tmp_path / "missing", "not a file that HostElla.save wrote"),
        (errands_ella(max_instructions=2), saved, r"give HostElla at least max_instructions=32$"),
        (errands_ella(max_words=4), saved, r"give HostElla at least max_words=5$"),
        (errands_ella(relevance=other_network), saved, "another relevance network"),
        (HostElla(["rest"], visited, **SIZES), saved, "other low-level instructions"),
    ):
        with pytest.raises(InputError, match=complaint) as caught:
            host.load(path)
        assert "\n" not in str(caught.value)
        assert (host.updates, host.solved()) == (0, {})
    with pytest.raises(InputError, match="cannot write"):
        same.save(tmp_path / "nowhere" / "ella.safetensors")


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"bonus_share": 0.25}, "0.125"),
        ({"bonus_share": 0.1, "solution_steps": 60, "discount": 0.99}, "0.0684"),
        ({"bonus_share": 0.25, "max_completions": 5, "success_reward": 20.0}, "0.2"),
        ({"bonus_share": 0.1, "solution_steps": 20, "discount": 0.99}, None),
        ({"bonus_share": 0.25, "max_completions": 4}, None),
        ({"bonus_share": 0.9, "max_completions": 1, "solvency": 0.5}, "0.5"),
        ({"bonus_share": 0.9, "max_completions": 1, "solvency": 0.5, "neutralise": False}, None),
        ({"solvency": 0.5}, None),
        ({}, None),
    ],
)
def test_a_bonus_beyond_the_bound_is_warned_of(options, bound, caplog):
    """An episode is paid up to 8 bonuses, a success is worth discount^steps."""
    with caplog.at_level(logging.WARNING, "ella"):
        HostElla(LOW_LEVEL, visited, **(SIZES | {"solvency": None} | options))
    found = [record.getMessage() for record in caplog.records]
    if bound is None:
        assert found == []
    else:
        assert len(found) == 1
        assert f"bonus_share {options['bonus_share']} is beyond {bound}:" in found[0]


@pytest.mark.parametrize(("options", "bound"), [({}, 0.25), ({"solvency": None}, 0.5)])
def test_within_the_bound_no_episode_returns_more_than_a_direct_success(options, bound, caplog):
    """Two completions, then a success or a failure, without discounting; a direct success returns
    1. Beyond the bound the success returns more, or without solvency the failure."""
    yes, succeeds = np.ones(2, bool), np.array([True, False])
    for share in (bound - 0.01, bound + 0.01):
        paying = {"bonus_share": share, "discount": 1.0, "max_completions": 2}
        host = HostElla(LOW_LEVEL, visited, **SIZES, **paying, **options)
        host.start(2)
        returned = np.zeros(2)
        for step, place in enumerate(("bakery", "baron", "baron")):
            last = yes & (step == 2)
            rewards = (last & succeeds).astype(float)
            here = standing_at(place, place)
            returned += rewards + host.shape(
                here, ["go"] * 2, yes & (step == 0), last & succeeds, last, rewards=rewards,
                last_observations=here,
            )  # fmt: skip
        beyond = share > bound
        solvent = host._shaper.solvency is not None
        assert ((returned > 1.0001) == (beyond & (succeeds == solvent))).all()
        assert ("is beyond" in caplog.text) == beyond


@pytest.mark.parametrize(("success", "why"), [(False, "no episode succeeded"), (True, "2000")])
def test_a_run_without_an_update_is_warned_of_once(success, why, caplog, tmp_path):
    host = errands_ella()
    host.warn_if_not_updated()
    host.start(1)
    yes = np.ones(1, bool)
    seen = standing_at("bakery")
    host.shape(seen, ["go"], yes, yes & success, yes, last_observations=seen)
    with caplog.at_level(logging.WARNING, "ella"):
        host.save(tmp_path / "ella.safetensors")
        host.warn_if_not_updated()
    assert len(caplog.records) == 1
    assert f"never updated in 1 steps: {'the first update' if success else why}" in caplog.text
    assert why in caplog.text


def test_a_run_with_an_update_is_not_warned_of(taught, caplog):
    with caplog.at_level(logging.WARNING, "ella"):
        taught.warn_if_not_updated()
    assert not caplog.records


def test_misuse_is_one_line():
    host = errands_ella()
    host.start(1)
    solved = [standing_at("bakery"), ["go"], np.ones(1, bool), np.ones(1, bool)]
    with pytest.raises(InputError, match="last_observations"):
        host.shape(*solved, np.ones(1, bool))
    solvent = errands_ella(solvency=0.5)
    solvent.start(1)
    with pytest.raises(InputError, match="a success needs rewards"):
        solvent.shape(*solved, np.ones(1, bool))
    with pytest.raises(InputError, match="start"):
        host.shape(solved[0], ["go"] * 2, *[np.ones(2, bool)] * 3)
    with pytest.raises(InputError, match="done must hold wherever success does"):
        host.shape(*solved, np.zeros(1, bool))
    two = errands_ella()
    two.start(2)
    with pytest.raises(InputError, match=r"first must have one value for each of the 2 env"):
        two.shape(np.zeros((2, 2)), ["go"] * 2, *[np.ones(1, bool)] * 3)
    blind = HostElla(LOW_LEVEL, lambda observations: np.zeros((1, 3), bool), **SIZES)
    blind.start(1)
    with pytest.raises(InputError, match=r"bool\[1, 8\]"):
        blind.shape(*solved, np.ones(1, bool))
    for words, options, complaint in (
        (LOW_LEVEL, {"update_every": 0}, "update_every must be >= 1, got 0"),
        (LOW_LEVEL, {"first_update": 0}, "first_update must be >= 1, got 0"),
        (LOW_LEVEL, {"bonus_share": -1}, "bonus_share must be >= 0, got -1"),
        (LOW_LEVEL, {"success_reward": 0}, "success_reward must be > 0, got 0"),
        (LOW_LEVEL, {"solution_steps": 0}, "solution_steps must be >= 1, got 0"),
        (LOW_LEVEL, {"max_completions": 0}, "max_completions must be >= 1, got 0"),
        (LOW_LEVEL, {"discount": 1.5}, "discount must lie in"),
        (LOW_LEVEL, {"solvency": 1.5}, "solvency must lie in"),
        (LOW_LEVEL, {"relevance": RelevanceSettings(labels="beliefs")}, "not from beliefs"),
        ([], {}, "at least one instruction"),
        ("visit", {}, "must be a list"),
        (["rest", "Rest!"], {}, "same words"),
    ):
        with pytest.raises(InputError, match=complaint):
            HostElla(words, visited, **options)
