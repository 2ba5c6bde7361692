"""Method names and the shapers they stand for.

`register` adds a method: every command then knows it, also in sums such as `ella+mine`. An
installed package adds one by an entry point of the group `ella.methods` that names a builder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

import jax

from ella.errors import InputError, unknown_name
from ella.offline.termination import termination_classifier, untrained_termination
from ella.offline.train_action_frequency import (
    ActionFrequencyProgress,
    action_frequency_classifier,
    empty_model,
)
from ella.offline.train_termination import Progress
from ella.shaping.bound import task_bound
from ella.shaping.ella import EllaSettings, EllaShaper
from ella.shaping.learn import LearnSettings, LearnShaper
from ella.shaping.noveld import NoveldShaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import AbstractRelevance, LearnedRelevance, OracleRelevance
from ella.shaping.ride import RideShaper
from ella.shaping.rnd import RndShaper
from ella.shaping.shaper import AbstractRewardShaper, NoShaping, Sum
from ella.training.settings import Settings
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class MethodContext:
    """What a method is built from."""

    task: TaskSpec
    settings: Settings
    say: Callable[[str], None]
    """Takes remarks, for example that an offline stage is under way."""
    trained: bool = True
    """Off where weights will be put in the place of the shaper's own, those of a run that is
    restored: no offline stage is needed then."""


Builder = Callable[[MethodContext], AbstractRewardShaper]


PLUGINS = "ella.methods"
"""The group of entry points in which packages offer builders."""
PAPER_BONUS = {"openpick-maze": 0.5, "sequence-maze": 0.5}
"""The paper's lambda where it is not `DEFAULT_BONUS`."""
DEFAULT_BONUS = 0.25
PAPER_STEPS = {"putnext-room": 40, "putnext-maze": 40, "unlock-maze": 40, "combo-maze": 40}
"""The most steps of an optimal solution that the paper's lambda of 0.25 rests on, as it states for
putnext-room. No number of steps allows its 0.5 on the other tasks."""


def _ppo(context: MethodContext) -> AbstractRewardShaper:
    return NoShaping()


def _ella(context: MethodContext) -> AbstractRewardShaper:
    relevance = LearnedRelevance(context.task, context.settings.ella.relevance)
    return _ella_with(context, relevance)


def _ella_oracle(context: MethodContext) -> AbstractRewardShaper:
    return _ella_with(context, OracleRelevance(context.task, context.settings.ella.oracle))


def _ella_with(context: MethodContext, relevance: AbstractRelevance) -> AbstractRewardShaper:
    task, settings = context.task, context.settings
    low_level = low_level_of(task)
    bonus = ella_bonus(task, settings)
    if warning := bonus_warning(task, settings):
        context.say(f"warning: {warning}")
    say_tenths = _tenths(context.say)

    def tell(progress: Progress) -> None:
        say_tenths(
            progress.step,
            progress.steps,
            f"step {progress.step} of {progress.steps}: balanced accuracy "
            f"{progress.accuracy:.2%}, best {progress.best:.2%}",
        )

    termination = (
        termination_classifier(
            low_level,
            settings.ella.termination,
            examples=settings.ella.examples,
            say=context.say,
            progress=tell,
        )
        if context.trained
        else untrained_termination(low_level, settings.ella.termination)
    )
    if context.trained:
        context.say(
            f"termination classifier of {low_level.name}: {termination.record['accuracy']:.1%} "
            "balanced accuracy on what was held out"
        )
    return EllaShaper(
        termination=termination.prepared(settings.ppo.network.compute_dtype),
        relevance=relevance,
        settings=EllaSettings(
            bonus=bonus,
            discount=settings.ppo.discount,
            reward_scale=settings.ppo.reward_scale,
            recheck=settings.ella.recheck,
            neutralise=settings.ella.neutralise,
            last_state=settings.ella.last_state,
        ),
        num_ids=task.language.num_ids,
    )


def _tenths(say: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Takes (steps done, steps in all, a line), and passes on one line for each tenth done."""
    told = 0

    def say_some(done: int, total: int, line: str) -> None:
        nonlocal told
        if 10 * done // total > told:
            told = 10 * done // total
            say(line)

    return say_some


def ella_bonus(task: TaskSpec, settings: Settings) -> float:
    """Lambda: what the settings say, or the paper's for the task."""
    if settings.ella.bonus is not None:
        return settings.ella.bonus
    return paper_bonus(task.name)


def paper_bonus(task: str) -> float:
    """The paper's lambda, which settings without one of their own mean."""
    return PAPER_BONUS.get(task, DEFAULT_BONUS)


def assumed_steps(task: TaskSpec, settings: Settings) -> int:
    """The most steps an optimal solution needs: what the settings say, or what the paper's lambda
    for the task rests on, or the longest horizon."""
    if settings.ella.optimal_steps is not None:
        return settings.ella.optimal_steps
    return min(PAPER_STEPS.get(task.name, max(task.horizons)), max(task.horizons))


def bonus_bound(task: TaskSpec, settings: Settings, steps: int) -> float:
    """The largest lambda if optimal solutions need at most that many steps."""
    return task_bound(
        task,
        settings.ppo.discount,
        settings.ppo.reward_scale,
        steps,
        settings.ella.max_completions,
    )


def bonus_warning(task: TaskSpec, settings: Settings) -> str | None:
    """One line if lambda exceeds what the assumptions in the settings allow."""
    bonus, steps = ella_bonus(task, settings), assumed_steps(task, settings)
    bound, at_best = (bonus_bound(task, settings, most) for most in (steps, 1))
    if bonus <= bound:
        return None
    assumed = f"{steps} steps" + " (the longest horizon)" * (steps == max(task.horizons))
    remedy = (
        "--ella.optimal-steps assumes another number"
        if bonus <= at_best
        else f"no number of steps allows it (1 step: {at_best:.3g}), only fewer low-level "
        "completions an episode (--ella.max-completions)"
    )
    return (
        f"the bonus {bonus:g} exceeds {bound:.3g}, up to which optimal policies surely stay "
        f"optimal if solutions take at most {assumed}; {remedy}"
    )


def _learn(context: MethodContext) -> AbstractRewardShaper:
    settings, low_level = context.settings, low_level_of(context.task)
    shaping = LearnSettings(settings.learn.coefficient, settings.ppo.discount)
    if not context.trained:
        return LearnShaper(
            empty_model(settings.learn.training.network, key=jax.random.key(0)), shaping
        )
    say_tenths = _tenths(context.say)

    def tell(progress: ActionFrequencyProgress) -> None:
        say_tenths(
            progress.epoch,
            progress.epochs,
            f"epoch {progress.epoch} of {progress.epochs}: loss {progress.loss:.4f}, "
            f"held-out accuracy {progress.accuracy:.1%}",
        )

    trained = action_frequency_classifier(
        low_level, settings.learn.training, say=context.say, progress=tell
    )
    context.say(
        f"action frequency classifier of {trained.task.name}: "
        f"{trained.record['accuracy']:.1%} accuracy on held-out episodes"
    )
    return LearnShaper(trained.model, shaping)


def _ride(context: MethodContext) -> AbstractRewardShaper:
    return RideShaper(context.settings.ride, max(context.task.horizons))


def _rnd(context: MethodContext) -> AbstractRewardShaper:
    return RndShaper(context.settings.rnd)


def _noveld(context: MethodContext) -> AbstractRewardShaper:
    return NoveldShaper(context.settings.noveld, max(context.task.horizons))


METHODS: dict[str, Builder] = {
    "ppo": _ppo,
    "ella": _ella,
    "ella-oracle": _ella_oracle,
    "learn": _learn,
    "ride": _ride,
    "rnd": _rnd,
    "noveld": _noveld,
}
"""By name."""


def register(name: str, builder: Builder) -> None:
    """Make a method known by name; '+' joins names and cannot be part of one."""
    if "+" in name or not name:
        raise InputError(f"'{name}' cannot be a method's name")
    if name in METHODS:
        raise InputError(f"a method named '{name}' exists; choose another name")
    METHODS[name] = builder


def check_method(method: str) -> tuple[str, ...]:
    """The names in a method, or an error with the nearest known ones."""
    names = tuple(method.split("+"))
    for name in names:
        if name not in METHODS:
            METHODS.update(
                (point.name, point.load()) for point in entry_points(group=PLUGINS, name=name)
            )
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
    if len(set(names)) < len(names):
        raise InputError(f"method '{method}' names a part twice")
    return names


def build_shaper(
    task: TaskSpec,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda line: None,
    trained: bool = True,
) -> AbstractRewardShaper:
    """The shaper of the settings' method, its offline stage run or taken from the cache; or, not
    `trained`, one of the same shape whose weights are yet to be put in."""
    context = MethodContext(task, settings, say, trained)
    parts = {name: METHODS[name](context) for name in check_method(settings.method)}
    return next(iter(parts.values())) if len(parts) == 1 else Sum(parts)
