"""Marks in videos: when low-level instructions were completed, and when ELLA paid for them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

from ella.compilation import jit_for_few_calls
from ella.episodes.episode import Marker
from ella.episodes.video import Mark
from ella.shaping.ella import EllaShaper, EllaState, EpisodeLedger
from ella.shaping.oracle import low_level_of
from ella.trajectory import InstructionTable, Trajectory
from ella.world.state import GridObservation, Timestep
from ella.world.tasks import TaskSpec


def payment_marker(spec: TaskSpec, shaper: EllaShaper, state: EllaState) -> Marker:
    """Marks of an episode, by the classifiers of one seed of a run."""
    low = shaper.low_level or low_level_of(spec).language

    def mark(timesteps: Sequence[Timestep], actions: Sequence[int]) -> list[list[Mark]]:
        trajectory = episode_trajectory(timesteps, actions)
        begun = replace(state, ledger=empty_ledger(shaper, low.num_ids))
        completed, earned = (np.asarray(part)[:, 0] for part in _account(shaper, begun, trajectory))
        new = completed & ~np.concatenate([np.zeros_like(completed[:1]), completed[:-1]])
        marks: list[list[Mark]] = []
        for step in range(len(actions)):
            here = [
                Mark("termination", low.text(int(i)))
                for i in np.flatnonzero(new[step] & ~earned[step])
            ]
            paid_for = " / ".join(low.text(int(i)) for i in np.flatnonzero(earned[step]))
            if paid_for:
                here.append(Mark("bonus", f"+{float(shaper.bonus):g} {paid_for}"))
            marks.append(here)
        return [*marks, []]

    return mark


@jit_for_few_calls
def _account(
    shaper: EllaShaper, state: EllaState, trajectory: Trajectory
) -> tuple[Bool[Array, "T 1 L"], Bool[Array, "T 1 L"]]:
    """What had been completed at every step of an episode, and what the step was paid for."""
    _, account = shaper.account(state, trajectory)
    return account.completed, account.earned


def empty_ledger(shaper: EllaShaper, num_low_level: int) -> EpisodeLedger:
    """Of one environment, before an episode."""
    shape = (1, num_low_level)
    nothing, owed = jax.device_put((np.zeros(shape, bool), np.zeros(1, np.float32)))
    return EpisodeLedger(nothing, nothing, owed)


def episode_trajectory(timesteps: Sequence[Timestep], actions: Sequence[int]) -> Trajectory:
    """One whole episode [T, 1] of a reset's timestep and those after each of T actions."""
    before, after = timesteps[:-1], timesteps[1:]
    observation = timesteps[0].observation

    def column(values: Sequence[object]) -> Any:
        return np.stack([np.asarray(value) for value in values])[:, None]

    def seen(timesteps: Sequence[Timestep]) -> GridObservation:
        views = [timestep.observation.without_instruction for timestep in timesteps]
        return jax.tree.map(lambda *leaves: column(leaves), *views)

    found = Trajectory(
        observation=seen(before),
        first=column([step == 0 for step in range(len(actions))]),
        instruction_row=column([np.int32(0)] * len(actions)),
        action=column([np.int32(action) for action in actions]),
        reward=column([timestep.reward for timestep in after]),
        terminated=column([timestep.terminated for timestep in after]),
        truncated=column([timestep.truncated for timestep in after]),
        next_observation=seen(after),
        instructions=InstructionTable(
            ids=column([observation.instruction_id])[0],
            tokens=column([observation.mission])[0],
        ),
    )
    # Arrays of NumPy, moved as they are: making them with JAX compiles a program for each shape.
    return jax.device_put(found)
