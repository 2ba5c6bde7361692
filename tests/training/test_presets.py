"""Presets with methods given by name and with their settings."""

from dataclasses import replace

import pytest

import ella
from ella.errors import InputError
from ella.methods.method import PRESETS as PRESET_NAMES
from ella.methods.registry import find as find_method
from ella.offline.settings import TerminationTrainingSettings
from ella.training.presets import PRESETS, start


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["ppo", "ella", "ella-solvent", "learn", "ella+ride"])
def test_a_preset_can_be_built_before_it_is_changed(preset, name):
    parts = [find_method(part).preset(preset) for part in name.split("+")]
    assert start(preset, sum(parts[1:], parts[0])) == start(preset, name)


def test_every_preset_has_a_name_that_methods_know():
    assert tuple(PRESETS) == PRESET_NAMES
    with pytest.raises(InputError, match="unknown preset 'smal'; did you mean small"):
        ella.ELLA.preset("smal")


def test_an_explicit_setting_wins_over_the_preset():
    """Also one that is the default."""
    named = start("laptop", "ella").method
    assert named.bonus == 0.5
    assert ella.ELLA.preset("laptop", bonus=None) == replace(named, bonus=None)
    termination = TerminationTrainingSettings(episodes=15_000)
    chosen = ella.ELLA.preset("small", termination=termination)
    assert chosen == replace(start("small", "ella").method, termination=termination)
    for method in (chosen, ella.ELLA(termination=termination), ella.ELLA() + ella.RIDE()):
        assert start("small", method).method == method
