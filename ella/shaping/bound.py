"""How large the bonus may be before it can pay to fail."""

import math

from ella.errors import InputError
from ella.shaping.oracle import low_level_of
from ella.world.mixtures import Task


def task_bound(
    task: Task,
    discount: float = 0.99,
    reward_scale: float = 20.0,
    steps: int | None = None,
    max_completions: int | None = None,
    num_low_level: int | None = None,
) -> float:
    """`largest_bonus` for every episode of a task: the least over its horizons.

    Missions of a task may have different horizons, and all pay the same bonus. A success in M
    steps is worth the less the shorter its horizon is, so with `steps` given the shortest horizon
    binds; solutions take min(steps, H) steps where H is shorter. Without, they take all H steps of
    each horizon, and the longest binds. `num_low_level` low-level instructions count instead of
    those of the task's low-level task.
    """
    longest = max(task.horizons)
    if steps is not None and not 1 <= steps <= longest:
        raise InputError(f"steps must lie between 1 and the horizon {longest}, got {steps}")
    if num_low_level is None:
        num_low_level = low_level_of(task).language.num_instructions
    return min(
        largest_bonus(
            horizon,
            num_low_level,
            discount,
            reward_scale,
            horizon if steps is None else min(steps, horizon),
            max_completions,
        )
        for horizon in task.horizons
    )


def largest_bonus(
    horizon: int,
    num_low_level: int,
    discount: float = 0.99,
    reward_scale: float = 20.0,
    steps: int | None = None,
    max_completions: int | None = None,
) -> float:
    """The bonus, in units of the scaled reward, below which no failure returns as much as an
    optimal success.

    An episode that fails collects at most one bonus per low-level instruction. A success in M
    steps returns discount^M r_M, where r_M = reward_scale (1 - 0.9 M / horizon). So the bonus
    stays below discount^M r_M / num_low_level.

    Optimal policies then stay optimal in a deterministic world that the agent sees whole; with
    `steps` below the horizon from the start of an episode only. See docs/solvency.md.

    Args:
        horizon: H, the steps after which an episode is cut off.
        num_low_level: How many low-level instructions there are.
        discount: The discount factor of the return.
        reward_scale: What the environment's reward is multiplied by.
        steps: M, the most steps an optimal solution needs, where that is known; H otherwise.
        max_completions: The most low-level instructions that can be completed in one episode,
            where that is known; all of them otherwise.
    """
    steps = horizon if steps is None else steps
    completions = num_low_level if max_completions is None else max_completions
    if horizon < 1:
        raise InputError(f"horizon must be >= 1, got {horizon}")
    if not 1 <= steps <= horizon:
        raise InputError(f"steps must lie between 1 and the horizon {horizon}, got {steps}")
    if not 1 <= completions <= num_low_level:
        raise InputError(
            f"completions must lie between 1 and the {num_low_level} low-level instructions, "
            f"got {completions}"
        )
    if not 0.0 < discount <= 1.0 or not 0 < reward_scale < math.inf:
        raise InputError(
            "the discount must lie in (0, 1] and the reward scale must be > 0 and finite, "
            f"got {discount:g} and {reward_scale:g}"
        )
    reward = reward_scale * (1.0 - 0.9 * steps / horizon)
    return discount**steps * reward / completions
