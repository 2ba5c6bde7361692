"""The parts of ella-solvent: each alone, none, and what they change."""

from dataclasses import replace

import pytest

import ella
from ella.methods.ella_solvent import PUBLISHED, ELLASolvent
from ella.ppo.settings import PPOSettings
from ella.settings_table import merged, to_json, updated
from ella.training import presets
from ella.world.tasks import find

COUNTED = {
    "false_completions": 0.1, "true_completions": 2.0, "steps_per_episode": 100.0,
}  # fmt: skip


def test_without_any_part_it_is_ella():
    without = updated(ELLASolvent(), merged(*PUBLISHED.values()), where="test")
    assert to_json(replace(without)) == to_json(ella.ELLA())


@pytest.mark.parametrize("part", PUBLISHED)
def test_every_part_is_switched_by_itself(part):
    others = [table for name, table in PUBLISHED.items() if name != part]
    alone = updated(ELLASolvent(), merged(*others), where="test")
    assert to_json(alone) != to_json(ella.ELLA())
    without = updated(ELLASolvent(), dict(PUBLISHED[part]), where="test")
    assert to_json(without) != to_json(ELLASolvent())


@pytest.mark.parametrize("preset", ["small", "laptop"])
def test_short_presets_learn_relevance_often_enough(preset):
    settings = presets.find(preset, "ella-solvent")
    assert settings.method.relevance.update_every <= settings.frames / 10
    assert (
        settings.method.termination.network
        == presets.find(preset, "ella").method.termination.network
    )


def test_solvency_lowers_the_bound_and_one_article_raises_it():
    task, ppo = find("unlock-maze"), PPOSettings()
    paper = ella.ELLA().resolved(task)
    solvent = replace(ella.ELLA(), solvency=0.9).resolved(task)
    assert solvent.bound(task, ppo, 40) == pytest.approx(0.9 * paper.bound(task, ppo, 40))
    better = ELLASolvent().resolved(task)
    assert better.max_completions == 18
    assert better.bound(task, ppo, 40) == pytest.approx(2 * 0.9 * paper.bound(task, ppo, 40))


@pytest.mark.parametrize("name", ["unlock-maze", "putnext-maze", "openpick-maze", "combo-maze"])
def test_its_bonus_exceeds_the_papers_by_the_factor_of_the_bound(name):
    task, ppo = find(name), PPOSettings()
    paper, solvent = ella.ELLA().resolved(task), ELLASolvent().resolved(task)
    used = [one.bonus / one.bound(task, ppo, 40) for one in (paper, solvent)]
    assert used[0] == pytest.approx(used[1], rel=1e-3)
    assert solvent.bonus > 1.4 * paper.bonus
    two_articles = updated(ELLASolvent(), dict(PUBLISHED["calibration"]), where="test")
    assert two_articles.resolved(task).bonus == paper.bonus
    assert ELLASolvent(bonus=0.1).resolved(task).bonus == 0.1


def test_several_low_level_tasks_are_one_language():
    task = find("combo-maze")
    low = ELLASolvent(low_level=("opengoto-maze", "pick-maze")).low_level_of(task)
    assert low.num_ids == 24 + 6 + 18
    assert {low.text(number).split()[0] for number in range(low.num_ids)} == {"go", "open", "pick"}
    with pytest.raises(ella.InputError, match="twice"):
        ELLASolvent(low_level=("pick-maze", "pick-maze")).low_level_of(task)
    with pytest.raises(ella.InputError, match="one clause"):
        ELLASolvent(low_level=("sequence-maze",)).low_level_of(task)


@pytest.mark.parametrize(
    ("changes", "warns"),
    [({}, False), ({"false_completions": 2.5}, True), ({"steps_per_episode": 1.0}, True)],
)
def test_bonuses_by_mistake_that_dominate_are_warned_of(changes, warns):
    task, ppo = find("unlock-maze"), PPOSettings()
    method = ELLASolvent(bonus=0.5).resolved(task)
    warning = method.false_alarm_warning(task, ppo, {**COUNTED, **changes})
    assert (warning is not None) == warns
    assert warning is None or "--ella-solvent.termination.false-alarms" in warning
