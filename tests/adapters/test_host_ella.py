"""ELLA outside the compiled program: any environment, any trainer."""

import csv
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor

import ella
from ella.adapters.babyai_judge import babyai_low_level
from ella.adapters.gymnasium_env import EllaEnv, draw_key
from ella.adapters.gymnasium_shaping import ShapedEnv, ShapedVectorEnv
from ella.adapters.host_ella import HostElla
from ella.adapters.stable_baselines3 import EllaLog, ShapedVecEnv
from ella.array_file import save_arrays
from ella.episodes.payments import episode_trajectory
from ella.errors import InputError
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.settings import RelevanceSettings, RelevanceTrainingSettings
from ella.shaping.termination import visible_termination
from ella.world import compiled

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import own_environment
from own_environment import (
    CUSTOMERS,
    GOODS,
    HORIZON,
    LOW_LEVEL,
    MOVES,
    PLACES,
    SHOPS,
    SIZE,
    Errands,
    visited,
)

DISCOUNT = 0.9
PAYING = {"bonus": 0.1, "discount": DISCOUNT}
SMALL = RelevanceSettings(
    network=RelevanceNetworkSettings(hidden_size=32, output_size=64),
    training=RelevanceTrainingSettings(learning_rate=1e-3),
)
UPDATES = 20


def errands_ella(**options) -> HostElla:
    sizes = {"max_instructions": 32, "max_words": 8, "vocabulary": 64, "relevance": SMALL}
    return HostElla(LOW_LEVEL, visited, **(PAYING | sizes | options))


class Runner:
    """Carries out errands, sometimes wandering about, and calls elsewhere first."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._detour: str | None = None

    def action(self, observation: np.ndarray, first: bool) -> int:
        cells, rest = np.split(observation, [SIZE * SIZE])
        carried, wanted, customer = np.split(rest, 3)
        cell = divmod(int(cells.argmax()), SIZE)
        if first:
            self._detour = str(self._random.choice(list(PLACES.values())))
        if PLACES.get(cell) == self._detour:
            self._detour = None
        shop, buyer = SHOPS[wanted.argmax()], CUSTOMERS[customer.argmax()]
        place = self._detour or (buyer if carried @ wanted else shop)
        towards = np.subtract(next(spot for spot, name in PLACES.items() if name == place), cell)
        if self._random.random() < 0.1 or not towards.any():
            return int(self._random.integers(len(MOVES)))
        axis = int(np.abs(towards).argmax())
        return next(i for i, move in enumerate(MOVES) if move[axis] == np.sign(towards[axis]))


def test_step_by_step_it_pays_what_the_compiled_program_pays():
    spec = ella.world.tasks.find("unlock-maze")
    low = low_level_of(spec).language
    told = babyai_low_level(spec.low_level, learned=False)
    assert told.instructions == tuple(low.text(index) for index in range(low.num_ids))
    program = EllaShaper(
        termination=visible_termination(low),
        relevance=OracleRelevance(spec, after_frames=10**9),
        **PAYING,
        reward_scale=1.0,
        recheck=True,
        neutralise=True,
        last_state=False,
        num_ids=spec.language.num_ids,
    )
    shape = jax.jit(lambda state, trajectory: program.shape(state, trajectory)[:2])
    state = program.init(1, key=jax.random.key(0))
    host = HostElla(told.instructions, told.judge, **PAYING, last_state=False, relevance=SMALL)
    world = ella.make(spec)
    env = ShapedEnv(EllaEnv(spec), host)
    random = np.random.default_rng(0)
    successes = 0
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
        state, bonus = shape(state, episode_trajectory(timesteps, actions))
        np.testing.assert_allclose(np.array(shaped) - own, bonus[:, 0], atol=1e-6)
    assert successes >= 3
    for text in host.solved():
        row = relevance_dataset.decompositions(
            state.dataset, jnp.array([spec.language.find(text)]), low.num_ids
        )[0]
        assert host.solved()[text] == {low.text(i) for i in np.flatnonzero(row)}


def episodes_of_single_environments(seeds, count: int) -> list[list[float]]:
    """Bonuses of each episode, environment by environment."""
    found = []
    for seed in seeds:
        env, runner = ShapedEnv(Errands(), errands_ella()), Runner(seed)
        observation, _ = env.reset(seed=seed)
        for _ in range(count):
            bonuses, done, first = [], False, True
            while not done:
                action = runner.action(observation, first)
                observation, reward, terminated, truncated, info = env.step(action)
                bonuses.append(reward - info["unshaped_reward"])
                done, first = terminated or truncated, False
            found.append((seed, bonuses))
            observation, _ = env.reset()
    return [[bonuses for owner, bonuses in found if owner == seed] for seed in seeds]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_many_environments_pay_what_each_pays_alone(mode):
    seeds, count = [3, 4, 5], 4
    alone = episodes_of_single_environments(seeds, count)
    assert all(any(bonuses) for episodes in alone for bonuses in episodes)
    envs = ShapedVectorEnv(
        SyncVectorEnv([Errands] * len(seeds), autoreset_mode=mode), errands_ella()
    )
    runners = [Runner(seed) for seed in seeds]
    found: list[list[list[float]]] = [[] for _ in seeds]
    current: list[list[float]] = [[] for _ in seeds]
    first, resetting = np.ones(3, bool), np.zeros(3, bool)
    observations, _ = envs.reset(seed=seeds)
    while min(map(len, found)) < count:
        actions = [
            0 if resetting[i] else runner.action(observations[i], first[i])
            for i, runner in enumerate(runners)
        ]
        observations, rewards, terminated, truncated, infos = envs.step(np.array(actions))
        done = terminated | truncated
        for i in range(len(seeds)):
            bonus = rewards[i] - infos["unshaped_reward"][i]
            if resetting[i]:
                assert bonus == 0
                continue
            current[i].append(bonus)
            if done[i]:
                found[i].append(current[i])
                current[i] = []
        if mode == AutoresetMode.NEXT_STEP:
            first, resetting = resetting, done & ~resetting
        else:
            first = done
        if mode == AutoresetMode.DISABLED and done.any():
            observations, _ = envs.reset(options={"reset_mask": done})
    for mine, theirs in zip(found, alone, strict=True):
        for left, right in zip(mine[:count], theirs, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.fixture(scope="module")
def taught() -> HostElla:
    """After a few hundred errands."""
    host = errands_ella(update_every=1000)
    envs = ShapedVectorEnv(
        SyncVectorEnv([Errands] * 16, autoreset_mode=AutoresetMode.SAME_STEP), host
    )
    runners = [Runner(seed) for seed in range(16)]
    first = np.ones(16, bool)
    observations, _ = envs.reset(seed=0)
    assert set(host.relevance("bring ink to the widow").values()) == {1.0}
    assert set(host.relevance("words nobody used").values()) == {1.0}
    while host.updates < UPDATES:
        actions = [r.action(*pair) for r, *pair in zip(runners, observations, first, strict=True)]
        observations, _, terminated, truncated, _ = envs.step(np.array(actions))
        first = terminated | truncated
    return host


def test_it_learns_what_matters_for_each_errand(taught):
    for goods, shop in zip(GOODS, SHOPS, strict=True):
        for customer in CUSTOMERS:
            mission = f"bring {goods} to the {customer}"
            needed = {f"visit the {shop}", f"visit the {customer}"}
            assert needed <= taught.solved()[mission]
            relevance = taught.relevance(mission)
            assert set(list(relevance)[:2]) == needed
            assert list(relevance.values())[2] < 0.5
    assert set(taught.relevance("bring glue to the widow").values()) == {1.0}
    measured = taught.measurements()
    assert 2.0 <= measured["decomposition_size"] < len(PLACES)
    assert measured["bonus_per_episode"] > 0
    assert "decomposition_size" not in taught.measurements()


def test_what_was_learned_is_saved_and_goes_on_as_if_nothing_had_happened(taught, tmp_path):
    taught.save(tmp_path / "ella.safetensors")
    other = errands_ella(update_every=1000, seed=7)
    other.load(tmp_path / "ella.safetensors")
    missions = ["bring ink to the widow", "sweep the bakery"] * 4
    observations = np.stack([Errands().reset(seed=seed)[0] for seed in range(8)])
    observations[:, : SIZE * SIZE] = np.arange(SIZE * SIZE) == 0  # at the bakery
    for host in (taught, other):
        host.start(8)
    first, done = np.ones(8, bool), np.zeros(8, bool)
    for step in range(300):
        bonuses = [
            host.shape(observations, missions, first, done, done, last_observations=observations)
            for host in (taught, other)
        ]
        np.testing.assert_array_equal(*bonuses)
        first, done = done, np.full(8, step % 5 == 0)
    assert taught.updates == other.updates > UPDATES
    assert taught.solved()["sweep the bakery"] == {"visit the bakery"}
    assert taught.solved() == other.solved()
    assert taught.relevance("bring ink") == other.relevance("bring ink")
    assert min(taught.relevance("bring ink").values()) < 0.5


def test_nothing_is_lost_between_measurements():
    hosts = []
    at_the_bakery = np.zeros((1, SIZE * SIZE + 12), np.float32)
    at_the_bakery[0, 0] = 1
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


def test_more_instructions_than_there_is_room_for_push_out_the_least_recent():
    low_level = ["wave", "wait"]
    host = HostElla(
        low_level,
        lambda observations: np.asarray(observations, bool),
        **PAYING,
        last_state=False,
        relevance=SMALL,
        update_every=6,
        max_instructions=2,
        max_words=4,
        vocabulary=32,
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
    assert host.updates == 1
    assert host.solved() == {"meet dan": {"wave", "wait"}}
    seen_now = host._state.dataset
    assert (int(seen_now.num_seen), int(seen_now.num_members)) == (1, 2)
    host.start(3)
    several = np.repeat(yes, 3)
    with pytest.raises(InputError, match="max_instructions"):
        host.shape([[0, 0]] * 3, ["a", "b", "c"], several, ~several, ~several)


def test_files_that_cannot_be_taken_are_one_line(tmp_path):
    saved = tmp_path / "ella.safetensors"
    env = ShapedEnv(Errands(), errands_ella())
    env.reset()
    env.step(0)
    env.ella.save(saved)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(saved.read_bytes()[:100])
    foreign = tmp_path / "foreign"
    foreign.write_bytes(
        safetensors.numpy.save({"a": np.zeros(1)}, metadata={"ella": '{"format_version": 1}'})
    )
    other, policy, wrong = (tmp_path / name for name in ("other", "policy", "wrong"))
    save_arrays(other, {}, kind="HostElla", version=9, table={})
    save_arrays(policy, {}, kind="policy", version=2, table={})
    table = {"low_level": [], "words": [], "instructions": [], "steps": "many", "updates": 0}
    save_arrays(wrong, {}, kind="HostElla", version=2, table=table)
    for host, path, complaint in (
        (errands_ella(), foreign, "not a file that HostElla.save wrote"),
        (errands_ella(), other, "format version 9"),
        (errands_ella(), policy, "holds a policy"),
        (errands_ella(), wrong, "not a file that HostElla.save wrote"),
        (errands_ella(), damaged, "not a file that HostElla.save wrote"),
        (errands_ella(), tmp_path / "missing", "not a file that HostElla.save wrote"),
        (errands_ella(max_instructions=33), saved, "other sizes"),
        (HostElla(["rest"], visited), saved, "other low-level instructions"),
    ):
        with pytest.raises(InputError, match=complaint):
            host.load(path)
    short = errands_ella(max_words=4)
    with pytest.raises(InputError, match="max_words"):
        short.load(saved)
    assert (short.updates, short.solved()) == (0, {})
    with pytest.raises(InputError, match="cannot write"):
        short.save(tmp_path / "nowhere" / "ella.safetensors")


@pytest.mark.thorough
def test_stable_baselines_trains_on_neutral_successes(tmp_path):
    host = errands_ella(update_every=256)
    envs = ShapedVecEnv(make_vec_env(Errands, n_envs=4, seed=0), host)
    envs.reset()
    runners = [Runner(seed) for seed in range(4)]
    observations, first = envs.reset(), np.ones(4, bool)
    returns, discounts, neutral = np.zeros((2, 4)), np.ones(4), 0
    for _ in range(400):
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
    assert neutral > 20
    assert len(host.solved()) > 5

    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(512, callback=EllaLog(host))
    assert host.updates == (400 * 4 + 512) // 256
    with (tmp_path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["ella/updates"]) for row in rows] == [7, 8]
    assert all(float(row["ella/decomposition_size"]) >= 2 for row in rows)


@pytest.mark.parametrize(
    "wrap",
    [VecMonitor, lambda venv: VecFrameStack(venv, 1), lambda venv: SubprocVecEnv([Errands] * 2)],
)
def test_missions_come_through_other_wrappers_and_from_processes(wrap):
    told = []

    def judge(observations):
        told.append(list(envs._missions))
        return visited(observations)

    inner = make_vec_env(Errands, n_envs=2, seed=0)
    envs = ShapedVecEnv(wrap(inner), HostElla(LOW_LEVEL, judge, relevance=SMALL))
    with pytest.raises(InputError, match="reset"):
        envs.step(np.zeros(2, int))
    envs.reset()
    for _ in range(HORIZON + 1):
        envs.step(np.zeros(2, int))
    envs.close()
    assert all(text.startswith("bring ") for texts in told for text in texts)
    assert told[0] != told[-1]


def test_ella_s_own_environments_tell_stable_baselines_their_missions():
    told = babyai_low_level("goto-room", learned=False)
    host = HostElla(told.instructions, told.judge, relevance=SMALL)
    envs = ShapedVecEnv(VecMonitor(make_vec_env(lambda: EllaEnv("putnext-room"), n_envs=2)), host)
    PPO("MultiInputPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, device="cpu").learn(128)
    assert all(text.startswith("put the ") for text in envs._missions)


class Reused(gymnasium.Env):
    """Hands out one array again and again: the number of steps, done after three."""

    observation_space = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Discrete(2)]
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = np.zeros(1, np.float32)
        return (self._steps, 0), {"mission": "wait"}

    def step(self, action):
        self._steps += 1
        done = self._steps[0] == 3
        return (self._steps, 0), 0.0, bool(done), False, {"is_success": bool(done)}


def waited(observations) -> np.ndarray:
    return np.concatenate([observations[0] == 1, observations[0] == 3], axis=1)


@pytest.mark.parametrize("mode", [None, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_tuples_reused_arrays_and_told_successes(mode):
    host = HostElla(["wait once", "wait thrice"], waited, **PAYING, relevance=SMALL)
    if mode is None:
        env = ShapedEnv(Reused(), host)
        env.reset()
        bonuses = [env.step(0)[1] for _ in range(3)]
    else:
        vector = SyncVectorEnv([Reused] * 3, autoreset_mode=mode, observation_mode="same")
        envs = ShapedVectorEnv(vector, host)
        envs.reset()
        bonuses = [envs.step(np.zeros(3, int))[1][1] for _ in range(3)]
    np.testing.assert_allclose(bonuses, [0, 0.1, -0.1 / 0.9], rtol=1e-5)
    if mode != AutoresetMode.SAME_STEP:  # there Gymnasium does not copy the last observation
        assert host.solved() == {"wait": {"wait once", "wait thrice"}}


def test_one_ella_serves_one_wrapper():
    host = errands_ella()
    one, other = ShapedEnv(Errands(), host), ShapedEnv(Errands(), host)
    one.reset()
    other.reset()
    other.step(0)
    with pytest.raises(InputError, match="one wrapper"):
        one.step(0)


def test_the_example_trains_and_tells_what_it_learned(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["own_environment.py", "--steps", "2048", "--episodes", "32"])
    own_environment.main()
    *_, finished, question = [
        line for line in capsys.readouterr().out.splitlines() if not line.startswith(("|", "  "))
    ]
    assert finished.startswith("errands finished: ")
    assert question == "bring ink to the widow:"


def test_minigrid_tells_its_missions():
    gymnasium.register_envs(pytest.importorskip("minigrid"))
    told = babyai_low_level("goto-room", learned=False)
    host = HostElla(told.instructions, told.judge, relevance=SMALL)
    single = ShapedEnv(gymnasium.make("BabyAI-GoToLocal-v0"), host)
    mission = single.reset(seed=0)[0]["mission"]
    for _ in range(70):
        *_, terminated, truncated, _ = single.step(single.action_space.sample())
        if terminated or truncated:
            single.reset()
    assert mission.startswith("go to")
    many = ShapedVectorEnv(gymnasium.make_vec("BabyAI-GoToLocal-v0", num_envs=2), host)
    many.reset(seed=0)
    for _ in range(70):
        many.step(many.action_space.sample())
    stacked = ShapedVecEnv(
        make_vec_env(
            lambda: gymnasium.wrappers.FilterObservation(
                gymnasium.make("BabyAI-GoToLocal-v0"), ["image", "direction"]
            ),
            n_envs=2,
        ),
        host,
    )
    stacked.reset()
    for _ in range(70):
        stacked.step(np.array([2, 1]))
    assert host.measurements()["low_level_completions"] > 0


def test_misuse_is_one_line():
    host = errands_ella()
    with pytest.raises(InputError, match="reset"):
        ShapedEnv(Errands(), host).step(0)
    envs = SyncVectorEnv([Errands] * 2)
    with pytest.raises(InputError, match="reset"):
        ShapedVectorEnv(envs, host).step(np.zeros(2, int))
    silent = ShapedVectorEnv(envs, host, missions=lambda observations, infos: ["go"] * 2)
    silent.reset()
    silent.step(np.zeros(2, int))
    with pytest.raises(InputError, match="mission"):
        ShapedVectorEnv(gymnasium.make_vec("CartPole-v1", num_envs=2), host).reset()
    with pytest.raises(InputError, match="mission"):
        ShapedEnv(gymnasium.make("CartPole-v1"), host).reset()
    for kind in (DummyVecEnv, SubprocVecEnv):
        unspoken = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=kind)
        with pytest.raises(InputError, match="mission"):
            ShapedVecEnv(unspoken, host).reset()
        unspoken.close()
    blind = HostElla(LOW_LEVEL, lambda observations: np.zeros((1, 3), bool), relevance=SMALL)
    single = ShapedEnv(Errands(), blind)
    single.reset()
    with pytest.raises(InputError, match=r"bool\[1, 8\]"):
        single.step(0)
    host = errands_ella()
    host.start(1)
    solved = [np.zeros((1, 133), np.float32), ["go"], np.ones(1, bool), np.ones(1, bool)]
    with pytest.raises(InputError, match="last_observations"):
        host.shape(*solved, np.ones(1, bool))
    with pytest.raises(InputError, match="start"):
        host.shape(solved[0], ["go"] * 2, *[np.ones(2, bool)] * 3)
    for words, options in (
        (LOW_LEVEL, {"update_every": 0}), ([], {}), ("visit", {}), (["rest", "Rest!"], {}),
    ):  # fmt: skip
        with pytest.raises(InputError):
            HostElla(words, visited, **options)
