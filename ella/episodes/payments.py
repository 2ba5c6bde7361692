"""Marks in videos: when low-level instructions were completed, and when ELLA paid for them."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

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
        nothing = jnp.zeros((1, low.num_ids), bool)
        never = jnp.zeros((1, low.num_ids), jnp.int32) if shaper.in_order else None
        ledger = EpisodeLedger(nothing, nothing, jnp.zeros(1), never)
        trajectory = episode_trajectory(timesteps, actions)
        _, account = eqx.filter_jit(shaper.account)(replace(state, ledger=ledger), trajectory)
        completed, earned = np.asarray(account.completed[:, 0]), np.asarray(account.earned[:, 0])
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


def episode_trajectory(timesteps: Sequence[Timestep], actions: Sequence[int]) -> Trajectory:
    """One whole episode [T, 1] of a reset's timestep and those after each of T actions."""
    before, after = timesteps[:-1], timesteps[1:]
    observation = timesteps[0].observation

    def column(values: Sequence[object]) -> jnp.ndarray:
        return jnp.asarray(np.stack([np.asarray(value) for value in values])[:, None])

    def seen(timesteps: Sequence[Timestep]) -> GridObservation:
        views = [timestep.observation.without_instruction for timestep in timesteps]
        return jax.tree.map(lambda *leaves: column(leaves), *views)

    return Trajectory(
        observation=seen(before),
        first=column([step == 0 for step in range(len(actions))]),
        instruction_row=jnp.zeros((len(actions), 1), jnp.int32),
        action=column([np.int32(action) for action in actions]),
        reward=column([timestep.reward for timestep in after]),
        terminated=column([timestep.terminated for timestep in after]),
        truncated=column([timestep.truncated for timestep in after]),
        next_observation=seen(after),
        instructions=InstructionTable(
            ids=jnp.asarray(observation.instruction_id)[None],
            tokens=jnp.asarray(observation.mission)[None],
        ),
    )
