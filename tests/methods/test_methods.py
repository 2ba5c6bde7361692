"""The registry of methods, sums, and settings resolved for a task."""

from dataclasses import replace

import equinox as eqx
import pytest

import ella
from ella.errors import InputError
from ella.methods.registry import RESERVED, all_methods, classes_of, register
from ella.ppo.settings import PPOSettings
from ella.runs.identity import identity
from ella.shaping.shaper import NoShaping, Sum
from ella.training import presets
from ella.training.assembly import build_shaper
from ella.training.settings import PLAIN_FIELDS, TrainingSettings, from_table, to_table
from ella.world.tasks import all_tasks, find


def test_names_sums_and_mistakes():
    assert list(classes_of("ella+ride")) == ["ella", "ride"]
    assert isinstance(build_shaper(find("goto-room"), TrainingSettings()), NoShaping)
    method = ella.RND() + ella.RIDE()
    assert method.name == "ride+rnd"
    both = build_shaper(find("goto-room"), TrainingSettings(method=method))
    assert isinstance(both, Sum)
    assert list(both.parts) == ["ride", "rnd"]
    with pytest.raises(InputError, match="did you mean ella"):
        classes_of("ela")
    with pytest.raises(InputError, match="twice"):
        classes_of("ride+ride")
    with pytest.raises(InputError, match="twice"):
        ella.RIDE() + ella.RIDE(coefficient=1.0)
    with pytest.raises(InputError, match="has no low-level task"):
        build_shaper(find("goto-room"), TrainingSettings(method=ella.ELLA()))


def test_the_order_of_a_sums_parts_makes_no_difference():
    one, other = ella.ELLA() + ella.RIDE(), ella.RIDE() + ella.ELLA()
    assert one == other
    assert one.name == other.name == "ella+ride"
    read = from_table({"method": "ride+ella", "ride": {"coefficient": 1.0}}, where="test")
    assert read.method == ella.ELLA() + ella.RIDE(coefficient=1.0)
    task = find("unlock-maze")
    started = presets.start("small", "ride+ella")
    assert identity(task, started) == identity(task, presets.start("small", "ella+ride"))


def test_a_method_can_have_no_name_that_is_taken():
    class Other(ella.PPO):
        name = "ride"

    class Joined(ella.PPO):
        name = "a+b"

    class Seeds(ella.RIDE):
        name = "seeds"

    with pytest.raises(InputError, match="exists"):
        register(Other)
    with pytest.raises(InputError, match="cannot be a method's name"):
        register(Joined)
    with pytest.raises(InputError, match="names other settings"):
        register(Seeds)
    assert {"method", "task", *PLAIN_FIELDS} <= set(RESERVED)


def test_every_method_has_what_results_show():
    labels = [method.label for method in all_methods().values()]
    assert len(set(labels)) == len(labels)
    colours = [method.colour for method in all_methods().values() if method.colour]
    assert len(set(colours)) == len(colours)


def bonus(task: str, **settings) -> float | None:
    return ella.ELLA(**settings).resolved(find(task)).bonus


def test_the_papers_bonuses():
    found = {spec.name: bonus(spec.name) for spec in all_tasks() if spec.low_level}
    assert found.pop("openpick-maze") == found.pop("sequence-maze") == 0.5
    assert set(found.values()) == {0.25}
    assert bonus("combo-maze", bonus=0.1) == 0.1


def test_resolved_settings_have_no_open_value():
    for method in all_methods().values():
        resolved = method().resolved(find("sequence-maze"))
        open_values = {name for name, value in resolved.values().items() if value is None}
        # None is an answer here: no file, no limit.
        assert open_values <= {"examples", "solvency"}
        assert resolved.resolved(find("putnext-room")) == resolved


def warning(task: str, **settings) -> str | None:
    method = ella.ELLA(**settings).resolved(find(task))
    return method.bound_warning(find(task), PPOSettings())


@pytest.mark.parametrize(
    ("task", "bound"), [("putnext-room", 0.267), ("putnext-maze", 0.274), ("unlock-maze", 0.267)]
)
def test_the_papers_lambda_rests_on_40_steps_and_a_larger_one_is_warned_of(task, bound):
    assert warning(task) is None
    assert warning(task, bonus=bound - 0.001) is None
    larger = warning(task, bonus=bound + 0.001)
    assert f"exceeds {bound}," in larger
    assert "at most 40 steps; --ella.optimal-steps" in larger
    assert "deterministic world that the agent sees whole" in larger
    assert "at most 100 steps" in warning(task, optimal_steps=100)


def test_the_shortest_horizon_of_a_task_binds():
    assert "exceeds 0.229," in warning("combo-maze")
    assert warning("combo-maze", bonus=0.228) is None


@pytest.mark.parametrize(("task", "at_best"), [("openpick-maze", 0.411), ("sequence-maze", "0.47")])
def test_no_number_of_steps_allows_the_papers_larger_lambda(task, at_best):
    for options in ({}, {"optimal_steps": 1}):
        found = warning(task, **options)
        assert f"no number of steps allows it (1 step: {at_best})" in found
        assert "--ella.max-completions" in found
    assert warning(task, optimal_steps=40, max_completions=12) is None


def test_assumptions_are_not_part_of_a_runs_identity():
    assumed = TrainingSettings(method=ella.ELLA(optimal_steps=30, max_completions=5))
    task = find("unlock-maze")
    assert identity(task, assumed) == identity(task, TrainingSettings(method=ella.ELLA()))


def test_a_table_holds_the_methods_in_use_and_reads_back():
    settings = TrainingSettings(method=ella.ELLA(bonus=0.1) + ella.RIDE(coefficient=1.0), seeds=3)
    table = to_table(settings)
    assert table["method"] == "ella+ride"
    assert "rnd" not in table
    assert from_table(table, where="test") == settings
    other = from_table({**table, "method": "ride"}, where="test")
    assert other.method == ella.RIDE(coefficient=1.0)
    with pytest.raises(InputError, match="unknown setting 'rid'"):
        from_table({"rid": {}}, where="test")


@pytest.mark.parametrize("preset", ["small", "laptop"])
def test_preset_small_is_small_offline_too(preset):
    """A method that learns offline costs a CPU minutes at most there, and hours in the paper."""
    offline = {"ella": "termination", "ella-oracle": "termination", "learn": "training"}
    for name, field in offline.items():
        small, paper = (getattr(presets.find(one, name).method, field) for one in (preset, "paper"))
        assert small.episodes <= paper.episodes / 7
        assert small.epochs <= paper.epochs / 5
        assert small.network.width <= paper.network.width / 4


def test_agents_that_would_share_a_classifier_of_their_own_are_refused():
    method = ella.ELLA(own_classifier=True)
    for chosen in (method, method + ella.RIDE()):
        settings = TrainingSettings(method=chosen, seeds=2)
        with pytest.raises(InputError, match=r"the 2 seeds of a run share .* --seeds 1 --seed N"):
            settings.resolved(find("putnext-room"))
        replace(settings, seeds=1).resolved(find("putnext-room"))


@pytest.mark.thorough
def test_a_classifier_of_its_own_is_that_of_the_runs_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path))
    usual = presets.find("smoke", "ella")

    def classifier(seed: int, **changes):
        method = replace(usual.method, **changes)
        settings = replace(usual, seeds=1, seed=seed, method=method)
        return build_shaper(find("putnext-room"), settings).termination

    own = [classifier(seed, own_classifier=True) for seed in (0, 1)]
    assert not eqx.tree_equal(*own)
    shared = classifier(3, termination=replace(usual.method.termination, seed=1))
    assert eqx.tree_equal(own[1], shared)
    assert len([path for path in tmp_path.iterdir() if path.suffix != ".lock"]) == 2
