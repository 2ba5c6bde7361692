"""The registry of methods."""

from dataclasses import replace

import pytest

from ella.errors import InputError
from ella.methods import registry as methods
from ella.methods.registry import (
    METHODS,
    bonus_warning,
    build_shaper,
    check_method,
    ella_bonus,
    register,
)
from ella.runs.identity import identity, what_differs
from ella.shaping.rnd import RndShaper
from ella.shaping.shaper import NoShaping, Sum
from ella.training.settings import EllaOptions, Settings
from ella.world.tasks import all_tasks, find


def test_names_sums_and_mistakes():
    assert check_method("ella+ride") == ("ella", "ride")
    assert isinstance(build_shaper(find("goto-room"), Settings()), NoShaping)
    both = build_shaper(find("goto-room"), Settings(method="rnd+ride"))
    assert isinstance(both, Sum)
    assert list(both.parts) == ["rnd", "ride"]
    with pytest.raises(InputError, match="did you mean ella"):
        check_method("ela")
    with pytest.raises(InputError, match="twice"):
        check_method("ride+ride")
    with pytest.raises(InputError, match="has no low-level task"):
        build_shaper(find("goto-room"), Settings(method="ella"))


def test_anyone_can_add_a_method(monkeypatch):
    monkeypatch.setattr(methods, "METHODS", dict(METHODS))
    register("curious", lambda context: RndShaper(context.settings.rnd))
    shaper = build_shaper(find("goto-room"), Settings(method="curious+ppo"))
    assert isinstance(shaper.parts["curious"], RndShaper)
    with pytest.raises(InputError, match="exists"):
        register("ppo", lambda context: NoShaping())
    with pytest.raises(InputError, match="cannot be a method's name"):
        register("a+b", lambda context: NoShaping())


def test_the_papers_bonuses():
    found = {spec.name: ella_bonus(spec, Settings()) for spec in all_tasks() if spec.low_level}
    assert found.pop("openpick-maze") == found.pop("sequence-maze") == 0.5
    assert set(found.values()) == {0.25}
    assert ella_bonus(find("combo-maze"), Settings(ella=EllaOptions(bonus=0.1))) == 0.1


def warning(task: str, **options) -> str | None:
    return bonus_warning(find(task), Settings(ella=EllaOptions(**options)))


@pytest.mark.parametrize(
    ("task", "bound"),
    [
        ("putnext-room", 0.267),
        ("putnext-maze", 0.274),
        ("unlock-maze", 0.267),
        ("combo-maze", 0.229),
    ],
)
def test_the_papers_lambda_rests_on_40_steps_and_a_larger_one_is_warned_of(task, bound):
    # combo-maze's shorter missions have half the horizon of the others, and do not allow it.
    assert (warning(task) is None) == (bound > 0.25)
    assert warning(task, bonus=bound - 0.001) is None
    larger = warning(task, bonus=bound + 0.001)
    assert f"exceeds {bound}," in larger
    assert "at most 40 steps; --ella.optimal-steps" in larger
    assert "at most 100 steps" in warning(task, optimal_steps=100)


@pytest.mark.parametrize(("task", "at_best"), [("openpick-maze", 0.411), ("sequence-maze", "0.47")])
def test_no_number_of_steps_allows_the_papers_larger_lambda(task, at_best):
    for options in ({}, {"optimal_steps": 1}):
        said = warning(task, **options)
        assert f"no number of steps allows it (1 step: {at_best})" in said
        assert "--ella.max-completions" in said
    assert warning(task, optimal_steps=40, max_completions=12) is None


def test_assumptions_are_no_part_of_what_a_run_is():
    told = Settings(ella=EllaOptions(optimal_steps=30, max_completions=5))
    task = find("unlock-maze")
    assert identity(task, told) == identity(task, Settings())


def test_what_is_left_at_its_default_does_not_make_a_run():
    """So that options can be added without making other runs of those there are."""
    task = find("unlock-maze")
    plain = what_differs(task, Settings())
    assert all(name.startswith("task.") for name in plain)
    assert plain["task.name"] == "unlock-maze"
    told = Settings(method="ella", ella=EllaOptions(bonus=0.1))
    assert what_differs(task, told) == {**plain, "method": "ella", "ella.bonus": 0.1}
    assert what_differs(replace(task, distractors=5), told)["task.distractors"] == 5
