"""The registry of methods."""

import pytest

from ella.errors import InputError
from ella.experiment import methods
from ella.experiment.config import EllaOptions, Settings
from ella.experiment.methods import METHODS, build_shaper, check_method, ella_bonus, register
from ella.shaping.rnd import RND
from ella.shaping.shaper import NoShaping, Sum
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
    register("curious", lambda context: RND(context.settings.rnd))
    shaper = build_shaper(find("goto-room"), Settings(method="curious+ppo"))
    assert isinstance(shaper.parts["curious"], RND)
    with pytest.raises(InputError, match="exists"):
        register("ppo", lambda context: NoShaping())
    with pytest.raises(InputError, match="cannot be a method's name"):
        register("a+b", lambda context: NoShaping())


def test_the_papers_bonuses():
    found = {spec.name: ella_bonus(spec, Settings()) for spec in all_tasks() if spec.low_level}
    assert found.pop("openpick-maze") == found.pop("sequence-maze") == 0.5
    assert set(found.values()) == {0.25}
    assert ella_bonus(find("combo-maze"), Settings(ella=EllaOptions(bonus=0.1))) == 0.1
