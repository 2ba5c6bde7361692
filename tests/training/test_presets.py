"""Presets with methods given by name and with their settings."""

from dataclasses import replace

import pytest

import ella
from ella.methods.registry import find as find_method
from ella.training import presets
from ella.training.presets import PRESETS, start


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["ppo", "ella", "ella-solvent", "learn", "ella+ride"])
def test_settings_at_their_defaults_are_the_presets(preset, name):
    plain = [find_method(part)() for part in name.split("+")]
    given = sum(plain[1:], plain[0])
    assert start(preset, given) == start(preset, name)


def test_what_is_given_stays_beside_the_preset():
    named = start("laptop", "ella").method
    assert start("laptop", ella.ELLA(bonus=0.25)).method == replace(named, bonus=0.25)
    termination = replace(ella.ELLA().termination, episodes=77)
    found = start("small", ella.ELLA(termination=termination)).method.termination
    expected = presets.find("small", "ella").method.termination
    assert found == replace(expected, episodes=77)
