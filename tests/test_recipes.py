"""The recipes: each trains for a moment with and without ELLA; their judges against the truth."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import minigrid_tasks
import numpy as np
import paired_runs
import pytest
import vector_errands
from paired_runs import ELLA, NUM_BINS, PLAIN, Episodes, Outcome, compare
from PIL import Image
from vector_errands import CENTRES, CUSTOMERS, PLACES, PUSHES, SHOPS, PointErrands

from ella import InputError
from ella.intervals import SHARE, student_t

ROOT = Path(__file__).resolve().parent.parent
RUNS = [
    ("vector_errands", vector_errands.NAME),
    ("cleanrl_ppo", minigrid_tasks.DOORKEY),
    *((recipe, env) for recipe in ("sb3_ppo", "sb3_recurrent_ppo") for env in minigrid_tasks.ENVS),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("recipe", "env"), RUNS)
def test_recipe_trains_with_and_without_ella(recipe, env, tmp_path, capsys):
    out = tmp_path / "results" / "tiny.json"
    compare(recipe, import_module(recipe).train, env, seeds=1, frames=2048, out=out)
    table = json.loads(out.read_text())
    assert f"recipes/{recipe}.py --env {env} --seeds 1 --frames 2048" in table["command"]
    rows = {method: table["runs"][method]["0"] for method in (PLAIN, ELLA)}
    for row in rows.values():
        assert len(row["success"]) == NUM_BINS
        assert row["frames_per_second"] > 0
    assert "relevance_updates" in rows[ELLA]
    assert "relevance_updates" not in rows[PLAIN]
    with Image.open(out.with_suffix(".png")) as picture:
        assert np.asarray(picture.convert("L")).std() > 0
    assert capsys.readouterr().out.count("frames/s") == 2


def solved_from_the_start(run):
    """Every second episode with ELLA is solved, every fourth without."""
    found = Episodes()
    for index in range(40):
        found.add((index + 1) * run.frames // 40, index % (2 if run.shaped else 4) == 0)
    return Outcome(found, None)


def test_curve_is_the_share_solved_in_each_part_of_training():
    found = solved_from_the_start(paired_runs.Run("any", 400, 0, True)).episodes
    assert found.curve(400) == [0.5] * NUM_BINS
    found.add(401, True)  # a rollout may end after the last frame asked for
    assert found.curve(400)[-1] == pytest.approx(2 / 3, abs=1e-4)
    assert Episodes().curve(400) == [None] * NUM_BINS


def test_summary_has_paired_intervals_over_seeds():
    shares = {PLAIN: [0.1, 0.2, 0.3], ELLA: [0.2, 0.5, 0.5]}
    table = {
        "runs": {
            method: {str(seed): {"success": [share] * NUM_BINS} for seed, share in enumerate(row)}
            for method, row in shares.items()
        }
    }
    found = paired_runs.summary(table)["success_at_the_end"]
    for method, row in shares.items():
        one = student_t(np.array(row), SHARE)
        assert found[method] == pytest.approx([one.value, one.low, one.high], abs=1e-4)
    gain = student_t(np.array([0.1, 0.3, 0.2]))
    assert found["gain"] == pytest.approx([gain.value, gain.low, gain.high], abs=1e-4)


def test_interrupted_comparison_continues_and_more_seeds_are_added(tmp_path):
    out, asked = tmp_path / "found.json", []

    def train(run):
        asked.append((run.seed, run.shaped))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return solved_from_the_start(run)

    with pytest.raises(KeyboardInterrupt):
        compare("any", train, "env", seeds=2, frames=400, out=out)
    compare("any", train, "env", seeds=3, frames=400, out=out)
    assert asked == [(0, False), (0, True), (1, False), *[(1, True)] * 2, (2, False), (2, True)]
    summary = json.loads(out.read_text())["summary"]["area_under_curve"]
    assert summary[ELLA] == [0.5, 0.5, 0.5]
    assert summary["gain"][0] == pytest.approx(0.25)


@pytest.mark.nightly
def test_runs_in_several_processes_fill_the_same_table(tmp_path):
    tables = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.json"
        compare("any", solved_from_the_start, "env", seeds=2, frames=400, out=out, workers=workers)
        tables.append(json.loads(out.read_text()))
    for table in tables:
        assert {method: set(runs) for method, runs in table["runs"].items()} == {
            PLAIN: {"0", "1"},
            ELLA: {"0", "1"},
        }
    assert tables[0]["summary"] == tables[1]["summary"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "0"], "--workers must be >= 1, got 0"),
        (["--seeds", "0"], "--seeds must be >= 1, got 0"),
        (["--frames", "-1"], "--frames must be >= 1, got -1"),
        (["--out", "found.txt"], "--out must end in .json, got found.txt"),
        (["--frames", "800", "--out", "earlier.json"], "holds other results ({'frames': 400})"),
        (["--out", "broken.json"], "broken.json is not a results file of a recipe"),
    ],
)
def test_wrong_arguments_are_one_line_and_change_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    compare("any", solved_from_the_start, "env", seeds=1, frames=400, out=Path("earlier.json"))
    Path("broken.json").write_text('{"runs": [')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(sys, "argv", ["any.py", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        paired_runs.main("any", "About.", solved_from_the_start, ("env",), frames=400)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("env", minigrid_tasks.ENVS)
def test_minigrid_judge_agrees_with_minigrids_state(env):
    """In random episodes; an open door counts where the view shows it."""
    world = minigrid_tasks.make(env)
    random, met = np.random.default_rng(0), np.zeros(4, int)
    for episode in range(8):
        observation, _ = world.reset(seed=episode)
        done = False
        while not done:
            state = world.unwrapped
            ahead = state.grid.get(*state.front_pos)
            ahead = ahead.type if ahead is not None else None
            grid, _ = state.gen_obs_grid()
            doors = [cell for cell in grid.grid if cell is not None and cell.type == "door"]
            carried = state.carrying
            truth = [
                ahead == "key",
                carried is not None and carried.type == "key",
                ahead == "door",
                any(door.is_open for door in doors),
            ]
            judged = minigrid_tasks.judge({"image": observation["image"][None]})[0]
            assert judged.tolist() == truth
            met += judged
            # Turning and walking, and using whatever lies ahead.
            action = random.choice([0, 1, 2, 2, 2])
            if ahead == "key" and carried is None:
                action = 3
            elif ahead == "door" and random.random() < 0.7:
                action = 5
            observation, _, terminated, truncated, _ = world.step(int(action))
            done = terminated or truncated
    least = 3 if env == minigrid_tasks.UNLOCK else 4
    assert (met[:least] > 0).all(), "every low-level instruction is carried out now and then"


def towards(observations, places):
    """int[B]: pushes that steer points towards places [B], braking by friction."""
    apart = CENTRES[places] - observations[:, :2]
    return (PUSHES @ apart.T).argmax(0)


def test_errand_is_rewarded_after_bank_shop_and_customer_in_this_order():
    envs = PointErrands(64)
    observations, infos = envs.reset(seed=0)
    missions = infos["mission"]
    names = list(PLACES)
    shop = names.index("bakery") + observations[:, 9:13].argmax(1)
    customer = names.index("baron") + observations[:, 13:17].argmax(1)
    assert (SHOPS.start, CUSTOMERS.start) == (names.index("bakery"), names.index("baron"))
    steps, ended = 0, np.zeros(64, bool)
    while not ended.all():
        has_purse = observations[:, 4] > 0
        carries = (observations[:, 5:9] * observations[:, 9:13]).any(1)
        places = np.where(carries, customer, np.where(has_purse, shop, 0))
        before = observations
        observations, rewards, terminated, truncated, infos = envs.step(towards(before, places))
        steps += 1
        assert not (truncated & ~ended).any(), "every errand can be finished in time"
        new = terminated & ~ended
        assert ((rewards > 0) == terminated).all()
        for index in np.flatnonzero(new):
            assert rewards[index] == pytest.approx(1 - 0.9 * steps / vector_errands.HORIZON)
            assert carries[index] or has_purse[index]
            last = infos["final_obs"][index]
            assert vector_errands.judge(last[None])[0, customer[index]]
            assert infos["_final_obs"][index]
            assert not observations[index, 4:9].any(), "the next errand starts with nothing"
        assert (infos["mission"][~terminated & ~ended] == missions[~terminated & ~ended]).all()
        ended |= terminated


def test_shops_do_not_sell_without_a_purse():
    envs = PointErrands(16)
    observations, _ = envs.reset(seed=1)
    shop = SHOPS.start + observations[:, 9:13].argmax(1)
    without = np.ones(16, bool)
    for _ in range(60):
        observations, *_ = envs.step(towards(observations, shop))
        without &= observations[:, 4] == 0
    at_the_shop = vector_errands.judge(observations)[np.arange(16), shop]
    assert (at_the_shop & without).any()
    assert not observations[at_the_shop & without, 5:9].any()


def test_page_names_every_recipe_and_only_results_that_exist():
    text = (ROOT / "docs" / "recipes.md").read_text()
    for recipe in {recipe for recipe, _ in RUNS}:
        assert f"python examples/recipes/{recipe}.py" in text
    for target in re.findall(r"\]\(\.\./((?:results|examples)[^)#]*)\)", text):
        assert (ROOT / target).exists(), target


def test_compare_refuses_before_training(tmp_path):
    def never(run):
        raise AssertionError("trained")

    with pytest.raises(InputError, match="frames"):
        compare("any", never, "env", seeds=1, frames=0, out=tmp_path / "a.json")
