"""The expert beside minigrid's own bot, on the same levels, both stepped by minigrid."""

from typing import Any

import jax
import numpy as np
import pytest
from minigrid.utils.baby_ai_bot import BabyAIBot
from minigrid_reference import reference_environment, start_level, without_output

import ella
from ella.world.expert import solve
from ella.world.tasks import TASKS

SOLVED, COMPARED = 300, 16
"""Levels per task: for the expert alone, and for both."""


def bot_length(env: Any) -> int:
    """Steps the bot takes to the end of a level that was just started."""
    bot = BabyAIBot(env)
    for length in range(1, env.max_steps + 1):
        _, reward, terminated, _, _ = env.step(bot.replan())
        if terminated:
            assert reward > 0
            return length
    raise AssertionError(f"the bot did not solve '{env.mission}'")


def expert_length(env: Any, actions: np.ndarray) -> int:
    """Steps minigrid takes to call the expert's actions a success, on a level just started."""
    for length, action in enumerate(actions, start=1):
        _, reward, terminated, _, _ = env.step(env.actions(int(action)))
        if terminated:
            assert reward > 0
            return length
    raise AssertionError(f"the expert did not solve '{env.mission}'")


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_expert_solves_all_and_takes_no_longer_than_the_bot(task: str) -> None:
    env = ella.make(task)
    levels = env.generate(jax.random.key(7), SOLVED)
    found = jax.device_get(solve(env, levels))
    assert found.success.all()
    reference = reference_environment(env.spec)
    expert_lengths, bot_lengths = [], []
    with without_output():
        reference.reset(seed=0)
        for index in range(COMPARED):
            level = ella.world.describe(jax.tree.map(lambda leaf: leaf[index], levels))  # noqa: B023
            actions = found.actions[index, : found.lengths[index]]
            start_level(reference, level)
            expert_lengths.append(expert_length(reference, actions))
            start_level(reference, level)
            bot_lengths.append(bot_length(reference))
    np.testing.assert_array_equal(expert_lengths, found.lengths[:COMPARED])
    assert env.spec.quick_episode < np.mean(expert_lengths) <= np.mean(bot_lengths)
