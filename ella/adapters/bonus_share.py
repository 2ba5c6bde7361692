"""How large the bonus may be, as a share of the reward of a success, on any environment."""

from ella.errors import InputError


def largest_share(
    max_completions: int, discount: float = 0.99, solution_steps: int | None = None
) -> float:
    """The share of a success's reward below which no failure returns as much as a success.

    An episode that fails keeps at most one bonus for each of `max_completions` low-level
    instructions. A success in M = `solution_steps` steps returns discount^M of its reward (of all
    of it if M is not given) and no bonuses. So the bonus stays below discount^M / max_completions
    of that reward. `ella.shaping.bound` has the same bound for BabyAI's rewards.
    """
    if max_completions < 1:
        raise InputError(f"max_completions must be >= 1, got {max_completions}")
    if solution_steps is not None and solution_steps < 1:
        raise InputError(f"solution_steps must be >= 1, got {solution_steps}")
    return discount ** (solution_steps or 0) / max_completions


def excess_warning(
    share: float, max_completions: int, discount: float, solution_steps: int | None
) -> str | None:
    """One line if a bonus of this share can make failing pay, None otherwise."""
    bound = largest_share(max_completions, discount, solution_steps)
    if share <= bound:
        return None
    return (
        f"bonus_share {share:g} is beyond {bound:.3g}: {max_completions} completions in an episode "
        "that fails can be worth more than a success; lower bonus_share, or give max_completions "
        "and solution_steps if that many completions are impossible"
    )
