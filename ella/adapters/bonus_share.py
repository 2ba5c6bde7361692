"""How large the bonus may be, as a share of the reward of a success, on any environment."""

from ella.errors import InputError


def largest_share(
    max_completions: int,
    discount: float = 0.99,
    solution_steps: int | None = None,
    solvency: float | None = None,
) -> float:
    """The share of a success's reward below which nothing returns as much as a success in
    M = `solution_steps` steps that is paid no bonus: discount^M of its reward, or all of it if M is
    not given.

    An episode is paid at most one bonus for each of `max_completions` low-level instructions. A
    failure keeps them: the bonus stays below discount^M / max_completions of that reward. With
    `solvency`, a success that owes more than this share kappa of its reward keeps the rest, and
    returns less than 1 / kappa of its bonuses: the bonus stays below kappa times as much
    (docs/solvency.md). `ella.shaping.bound` has the same bound for BabyAI's rewards.
    """
    if max_completions < 1:
        raise InputError(f"max_completions must be >= 1, got {max_completions}")
    if solution_steps is not None and solution_steps < 1:
        raise InputError(f"solution_steps must be >= 1, got {solution_steps}")
    kappa = 1.0 if solvency is None else solvency
    return kappa * discount ** (solution_steps or 0) / max_completions


def excess_warning(
    share: float,
    max_completions: int,
    discount: float,
    solution_steps: int | None,
    solvency: float | None,
) -> str | None:
    """One line if a bonus of this share can make collecting bonuses pay, None otherwise."""
    bound = largest_share(max_completions, discount, solution_steps, solvency)
    if share <= bound:
        return None
    return (
        f"bonus_share {share:g} is beyond {bound:.3g}: an episode with {max_completions} "
        "completions can be worth more than a direct success; lower bonus_share, or give "
        "max_completions and solution_steps if that many completions are impossible"
    )
