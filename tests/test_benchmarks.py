"""The scripts in benchmarks/: what they compare, on which levels, and that they still run."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from ella.episodes.episode import expert_actor
from ella.methods.ella import ELLA
from ella.methods.ella_solvent import ELLASolvent
from ella.networks.actor_critic import ActorCritic
from ella.offline.false_alarms import ACTIONS, random_episodes
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import find_termination, untrained_termination
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS, Series
from ella.runs.config_file import write_config
from ella.shaping.low_level import low_level_tasks
from ella.training.policy import Policy
from ella.training.program import held_out_key, training_key
from ella.training.settings import TrainingSettings
from ella.world import make
from ella.world.encoding import DONE, NUM_ACTIONS
from ella.world.tasks import find

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
ablation = import_module("ablation")
column_means = import_module("column_means")
differences = import_module("differences")
kernel_cases = import_module("kernel_cases")
largest_falls = import_module("largest_falls")
network_kernels = import_module("network_kernels")
paid_steps = import_module("paid_steps")
plain_kernels = import_module("plain_kernels")
relative_gains = import_module("relative_gains")
success_by_mission = import_module("success_by_mission")
what_successes_show = import_module("what_successes_show")

KERNELS_WITH_CASE = [name for name, kernel in kernel_cases.KERNELS.items() if kernel.case]
DISTINCT_CASES = list(
    {kernel_cases.KERNELS[name].case: name for name in KERNELS_WITH_CASE}.values()
)
"""One kernel for each case that kernels share."""
LOW_LEVEL = {
    "both articles": ELLA(),
    "one article": ELLASolvent(),
    "two tiers": ELLASolvent(low_level=("pick-maze", "goto-maze")),
}
"""Methods that differ in the low-level language of unlock-maze."""
COMMITTED = {
    "results/parts/parts.json": (
        "results/parts", "--beside", "results/main-8-seeds/unlock-maze-ella-solvent",
    ),
    "results/parts-500-episodes/parts.json": ("results/parts-500-episodes", "--episodes", "500"),
    "results/more-seeds/both-sets.json": ("results/main-8-seeds", "results/more-seeds"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny_scale():
    words = ["--seeds", "2", "--environments", "4", "--width", "8", "--dtype", "float32"]
    scale = network_kernels.scale_of(network_kernels.parsed(words))
    # Shapes instead of a classifier: they are all that tracing needs, and compile nothing.
    scale.termination = eqx.filter_eval_shape(
        plain_kernels.Termination,
        scale.env.spec,
        scale.images(256)[0],
        scale.width,
        scale.dtype,
        kernel_cases.CHUNK_STEPS * scale.ppo.num_envs,
    )
    return scale


@pytest.mark.parametrize("name", DISTINCT_CASES)
def test_kernel_case_traces(name, tiny_scale):
    case = kernel_cases.KERNELS[name].case(tiny_scale)
    arguments = (*case.learned, *case.data)
    axes = [0] * len(arguments) + [None] * len(case.shared)
    outputs = jax.eval_shape(jax.vmap(case.call, in_axes=axes), *arguments, *case.shared)
    assert all(leaf.shape[0] == tiny_scale.seeds for leaf in jax.tree.leaves(outputs))
    assert jax.tree.leaves(outputs)


@pytest.mark.thorough
@pytest.mark.parametrize("name", KERNELS_WITH_CASE)
def test_plain_kernel_is_another_program_of_the_same_shapes(name, tiny_scale):
    kernel = kernel_cases.KERNELS[name]
    function, arguments = network_kernels.pulled_back(tiny_scale, kernel.case(tiny_scale))
    ours = jax.jit(lambda *given: function(*given)).lower(*arguments)
    with network_kernels.replaced(kernel.patches):
        plain = jax.jit(lambda *given: function(*given)).lower(*arguments)
    assert ours.out_info == plain.out_info
    assert ours.as_text() != plain.as_text()


@pytest.mark.thorough
def test_gradient_step_case_traces(tiny_scale):
    case = network_kernels.gradient_step_case(tiny_scale)
    function, arguments = network_kernels.pulled_back(tiny_scale, case)
    assert jax.tree.leaves(jax.eval_shape(function, *arguments))


def _run(path: str, areas: dict[int, float], method: str = "ella") -> Run:
    """A run of unlock-maze with a constant success rate for each seed."""
    series = {
        seed: Series(np.array([1e6, 2e6]), {SUCCESS: np.full(2, area)})
        for seed, area in areas.items()
    }
    return Run(Path(path), {"task": {"name": "unlock-maze"}, "method": method}, {}, series)


def _rows(folders: dict[str, list[Run]]) -> dict[tuple[str, str], dict]:
    found = ablation.areas({Path(name): runs for name, runs in folders.items()}, "unlock-maze")
    rows = ablation.differences("unlock-maze", found)
    return {(row["part"], row["question"]): row for row in rows}


def test_a_pair_of_runs_beside_several_folders_counts_once():
    beside = [
        _run("elsewhere/unlock-maze-ella", {1: 0.2, 2: 0.4, 3: 0.3}),
        _run("elsewhere/unlock-maze-ella-solvent", {1: 0.5, 2: 0.6, 3: 0.7}),
    ]
    once = _rows({"a": beside})[ablation.ALL, "alone"]
    assert once["pairs"] == 3
    assert once["difference"]["value"] == pytest.approx((0.3 + 0.2 + 0.4) / 3)
    assert _rows({"a": beside, "b": beside})[ablation.ALL, "alone"] == once


def test_runs_with_few_expert_episodes_are_an_ablation_of_their_own():
    runs = [
        _run("a/unlock-maze-ella", {1: 0.2}),
        _run("a/unlock-maze-ella-solvent", {1: 0.5}),
        _run("a/unlock-maze-ella-episodes500", {1: 0.1}),
        _run("a/unlock-maze-ella-solvent-episodes500-without-windows", {1: 0.3}),
    ]
    for episodes, names in (
        (None, {"ella", "ella-solvent"}),
        (500, {"ella", "ella-solvent-without-windows"}),
        (100, set()),
    ):
        assert set(ablation.areas({Path("a"): runs}, "unlock-maze", episodes)) == names


def test_a_run_beside_several_folders_is_paired_with_the_runs_of_each():
    solvent = _run("elsewhere/unlock-maze-ella-solvent", {1: 0.5, 2: 0.6})
    without = "unlock-maze-ella-solvent-without-windows"
    rows = _rows(
        {
            "a": [_run(f"a/{without}", {1: 0.1, 2: 0.1}), solvent],
            "b": [_run(f"b/{without}", {1: 0.3, 2: 0.2}), solvent],
        }
    )
    last = rows["windows", "last"]
    assert last["pairs"] == 4
    assert last["difference"]["value"] == pytest.approx((0.4 + 0.5 + 0.2 + 0.4) / 4)


@pytest.mark.parametrize("name", COMMITTED)
def test_ablation_gives_the_committed_rows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["ablation.py", *COMMITTED[name], "--out", str(out)])
    ablation.main()
    assert json.loads(out.read_text())["rows"] == json.loads(Path(name).read_text())["rows"]


def test_relative_gains_are_those_of_the_areas():
    areas = {"ella": {1: 0.4, 2: 0.9}, "ppo": {1: 0.2, 2: 0.1}}
    runs = [
        _run(f"{method}/unlock-maze-{method}", found, method) for method, found in areas.items()
    ]
    ratios = relative_gains.log_ratios(runs, "unlock-maze", 2e6)
    assert np.exp(ratios) == pytest.approx([2.0, 9.0])
    found = relative_gains.difference(ratios, ratios + 1)
    assert found.value == pytest.approx(-1.0)
    assert found.low < -1.0 < found.high
    assert relative_gains.success(runs[0].series, 2e6) == pytest.approx((0.4 + 0.9) / 2)
    parts = [replace(runs[0], series={seed: runs[0].series[seed]}) for seed in (1, 2)]
    np.testing.assert_array_equal(
        relative_gains.log_ratios([*parts, runs[1]], "unlock-maze", 2e6), ratios
    )
    with pytest.raises(SystemExit, match="2 runs of ella on unlock-maze instead of one of every"):
        relative_gains.log_ratios([runs[0], *runs], "unlock-maze", 2e6)


@pytest.mark.parametrize("folder", ["main-finished", "own-classifiers"])
def test_relative_gains_give_the_committed_rows(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    committed = json.loads(Path(f"results/{folder}/relative-gains.json").read_text())
    words = committed["command"].split()[1:]
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", [*words[:-1], str(out)])
    relative_gains.main()
    assert json.loads(out.read_text())["rows"] == committed["rows"]


@pytest.mark.parametrize(
    ("file", "pairs"),
    [
        ("main-finished/differences.json", 3),
        pytest.param("verdicts.json", None, marks=pytest.mark.thorough),
    ],
)
def test_differences_give_the_committed_rows(file, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    committed = json.loads(Path("results", file).read_text())
    script, *words = committed["command"].split()[1:]
    assert words[-2] == "--out"
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", [script, *words[:-2][:pairs], "--out", str(out)])
    differences.main()
    found = json.loads(out.read_text())
    assert found["rows"] == committed["rows"][:pairs]
    if pairs is None:
        assert found["survive_holm"] == committed["survive_holm"]


def test_means_of_columns_are_the_committed_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    committed = json.loads(Path("results/columns.json").read_text())
    script, *words = committed["command"].split()[1:]
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", [script, *words[:-1], str(out)])
    column_means.main()
    assert json.loads(out.read_text())["rows"] == committed["rows"]


def test_largest_falls_are_the_committed_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    committed = json.loads(Path("results/lambda/largest-falls.json").read_text())
    script, *words = committed["command"].split()[1:]
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", [script, *words[:-1], str(out)])
    largest_falls.main()
    assert json.loads(out.read_text()) | {"command": ""} == committed | {"command": ""}


def test_the_largest_fall_is_from_the_best_window_before():
    frames = np.arange(1.0, 9.0)
    success = np.array([0.2, 0.4, 0.9, 0.7, np.nan, 0.5, 0.6, 0.4])
    # Windows of two lines: 0.3, 0.8, 0.5, 0.5; the rise before the best is no fall.
    series = Series(frames, {SUCCESS: success})
    assert largest_falls.largest_fall(series, 8, 2) == pytest.approx(0.3)
    assert largest_falls.largest_fall(series, 4, 2) == 0
    assert np.isnan(largest_falls.largest_fall(series, 8, 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("results/nowhere,success_rate,0,end", "is not RUN,COLUMN,FROM,TO"),
        ("results/main-finished/unlock-maze-ella,relevance,0,end", "has no column relevance"),
        ("results/main-finished/unlock-maze-ella,success_rate,1,2", "must have measured it"),
        ("results/main-finished/unlock-maze-ella,success_rate,0,1e9", "has 10,001,920 frames"),
    ],
)
def test_means_of_columns_that_are_not_there_are_one_line(words, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["column_means.py", words])
    with pytest.raises(SystemExit, match=message):
        column_means.main()


def test_holms_correction_stops_at_the_first_test_that_does_not_reject():
    # 0.01 <= 0.05 / 4; 0.02 > 0.05 / 3, so that 0.024 <= 0.05 / 2 rejects nothing any more.
    assert differences.survives_holm([0.024, 0.01, 0.9, 0.02]) == [False, True, False, False]
    assert differences.survives_holm([0.04]) == [True]
    assert differences.survives_holm([None, 0.04, None]) == [None, True, None]


def test_pairs_are_the_seeds_that_both_runs_have():
    ours, theirs = np.array([0.11, 0.2, 0.9]), np.array([0.4, 0.0, 0.11])
    # Seeds 1, 2, 3 and 4, 1, 2, say, of which both have 1 and 2.
    found = differences.compared(ours, theirs, [0, 1], [1, 2])
    assert found["paired"]["value"] == pytest.approx(0.1)
    assert found["paired"]["p"] < 0.1 < found["difference"]["p"]
    assert "paired" not in differences.compared(ours, theirs, [0], [1])
    alike = differences.compared(ours, ours, [0, 1, 2], [0, 1, 2])
    assert alike["paired"]["p"] is None
    assert alike["paired"]["correlation"] == pytest.approx(1)
    assert differences.compared(ours, -theirs, [0, 1, 2], [0, 1, 2])["paired"][
        "correlation"
    ] == pytest.approx(-np.corrcoef(ours, theirs)[0, 1])


def test_runs_of_other_seeds_count_as_one_run():
    (run,), _ = read_runs([ROOT / "results/main-finished/unlock-maze-ella"])
    parts = tuple(
        replace(run, series={seed: run.series[seed] for seed in seeds})
        for seeds in ((0, 1, 2), (3, 4, 5, 6, 7))
    )
    whole, divided = (differences.Experiment("", runs) for runs in ((run,), parts))
    assert divided.seeds == whole.seeds == list(range(8))
    assert divided.shared_end == whole.shared_end
    found, expected = (one.found(one.shared_end) for one in (divided, whole))
    assert found.keys() == expected.keys() > {"area", "alone_sampled"}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("unlock-maze-ella", "does not name two runs"),
        (".,unlock-maze-ella", "does not name two runs"),
        ("nowhere,unlock-maze-ella", "does not name two runs"),
        ("unlock-maze-ella,combo-maze-ella", "does not name two runs of one task"),
        ("unlock-maze-ella,unlock-maze-ppo,many", "invalid"),
    ],
)
def test_differences_of_no_pair_are_refused(monkeypatch, capsys, pair, message):
    monkeypatch.chdir(ROOT / "results/main-finished")
    monkeypatch.setattr("sys.argv", ["differences.py", pair])
    with pytest.raises(SystemExit) as stop:
        differences.main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_relevant_instructions_are_those_of_the_methods_own_language(name):
    method, task = LOW_LEVEL[name], find("unlock-maze")
    low = method.low_level_of(task)
    classifier = find_termination(
        low_level_tasks(task, method.low_level), method.termination, trained=False
    )
    assert classifier.language == low
    found = np.zeros((3, low.num_ids), bool)
    found[-1] = True
    instruction = jnp.int32(task.language.find("open the red door"))
    seen = what_successes_show.relevant_seen(task, low, instruction, found)
    articles = ("a", "the") if name == "both articles" else ("the",)
    texts = {f"pick up {article} red key" for article in articles}
    if name == "two tiers":
        texts.add("go to the red door")
    assert dict(seen) == dict.fromkeys(texts, what_successes_show.AFTER)


def test_when_a_relevant_instruction_was_seen():
    task = find("unlock-maze")
    low = ELLASolvent().low_level_of(task)
    instruction, key = jnp.int32(task.language.find("open the red door")), "pick up the red key"
    found = np.zeros((3, low.num_ids), bool)

    def seen() -> list[tuple[str, str]]:
        return what_successes_show.relevant_seen(task, low, instruction, found)

    assert seen() == [(key, what_successes_show.NEVER)]
    found[0, low.find(key)] = True
    assert seen() == [(key, what_successes_show.BEFORE)]


@pytest.mark.thorough
def test_what_successes_show_of_a_solvent_run(tmp_path, monkeypatch, capsys):
    task = find("unlock-maze")
    write_config(tmp_path, task, TrainingSettings(method=ELLASolvent()))
    monkeypatch.setattr("sys.argv", ["what_successes_show.py", str(tmp_path), "--episodes", "2"])
    monkeypatch.setattr(what_successes_show, "load_policy", lambda *_: None)
    monkeypatch.setattr(what_successes_show, "trained_actor", lambda *_: expert_actor(make(task)))
    monkeypatch.setattr(
        what_successes_show,
        "find_termination",
        lambda tasks, settings, *, examples: untrained_termination(tasks, settings),
    )
    what_successes_show.main()
    report = json.loads(capsys.readouterr().out)
    assert report["successes"] == 2
    assert report["relevant_instructions_seen"]["pick up an object"]["cases"] == 2


@pytest.mark.parametrize("seed", [0, 77])
def test_success_by_mission_draws_from_no_training_key(seed):
    levels_key, action_key = success_by_mission.keys_of(seed)
    assert levels_key != training_key(jnp.uint32(seed))
    assert jnp.all(jnp.stack([levels_key, action_key]) == jax.random.split(held_out_key(seed)))


@pytest.mark.thorough
def test_success_by_mission_counts_every_level(tmp_path, monkeypatch):
    task = find("unlock-small")
    network = ActorCritic(TINY.ppo.network, key=jax.random.key(0))
    Policy(task, network, network.initial_statistics(), 0, 0).save(tmp_path / "policy")
    out = tmp_path / "found.json"
    words = [str(tmp_path / "policy.safetensors"), "--episodes", "8", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["success_by_mission.py", *words])
    success_by_mission.main()
    found = json.loads(out.read_text())
    assert [(row["kinds"], row["episodes"]) for row in found["missions"]] == [(["open"], 8)]


def test_random_choice_of_all_actions_is_randint():
    """So `paid_steps.py` plays as when it drew actions by number (results/termination)."""
    key, shape = jax.random.key(5), (64, 3)
    chosen = jax.random.choice(key, jnp.arange(NUM_ACTIONS, dtype=jnp.int32), shape)
    assert (chosen == jax.random.randint(key, shape, 0, NUM_ACTIONS)).all()


@pytest.mark.thorough
def test_random_episodes_take_the_actions_they_are_given():
    task, key = find("unlock-small"), jax.random.key(0)
    still = random_episodes(task, 2, (DONE,), key=key)
    steps = 2 * max(task.horizons)
    assert still.first.shape == (steps, 2)
    assert still.first.sum(0).tolist() == [2, 2]
    unmoved = (still.images[1:] == still.images[:-1]).all((2, 3, 4))
    assert unmoved[~still.first[1:]].all()
    moved = random_episodes(task, 2, ACTIONS, key=key)
    assert (moved.images[0] == still.images[0]).all()
    assert (moved.images != still.images).any()


@pytest.mark.thorough
def test_paid_steps_of_an_untrained_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr(paid_steps, "CLASSIFIERS", {"untrained": TerminationTrainingSettings()})
    monkeypatch.setattr(
        paid_steps,
        "termination_classifier",
        lambda task, settings: untrained_termination((task,), settings),
    )
    out = tmp_path / "found.json"
    words = ["unlock-small", "--environments", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["paid_steps.py", *words])
    paid_steps.main()
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["task"], row["paid"]) == ("unlock-small", 0.0)
