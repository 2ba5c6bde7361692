"""Schedules count frames: environment steps of one seed, the same in every preset."""


def whole_iterations(frames: int, frames_per_iteration: int) -> int:
    """The number of iterations nearest to that many frames, at least 1; halves round up."""
    return max(1, (2 * frames + frames_per_iteration) // (2 * frames_per_iteration))
