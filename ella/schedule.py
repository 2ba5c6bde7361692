"""Schedules count frames: environment steps of one seed, the same in every preset."""

LARGEST_COUNT = 2**31 - 1
"""Steps are counted in int32, and stay at this number."""


def steps_of(frames: int, num_envs: int) -> int:
    """The steps of each environment that hold so many frames; one that they begin counts."""
    return min(-(-frames // num_envs), LARGEST_COUNT)


def whole_iterations(frames: int, frames_per_iteration: int) -> int:
    """The number of iterations nearest to that many frames, at least 1; halves round up."""
    return max(1, (2 * frames + frames_per_iteration) // (2 * frames_per_iteration))
