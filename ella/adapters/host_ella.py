"""ELLA for environments and trainers that step on the host, whatever their observations are."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.adapters.bonus_share import excess_warning
from ella.adapters.saved_sizes import with_room
from ella.adapters.sentences import Sentences
from ella.adapters.update_schedule import UpdateSchedule
from ella.array_file import (
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.errors import InputError, writing_to
from ella.measurement import Measurements, mean_of
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper, EllaState, EpisodeLedger
from ella.shaping.free_text_relevance import STARTED, FreeTextLearner, FreeTextRelevance
from ella.shaping.relevance import START_PROBLEM
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.settings import RelevanceSettings
from ella.shaping.termination import JudgedObservation, JudgedTermination
from ella.trajectory import InstructionTable, Trajectory

logger = logging.getLogger(__name__)

Judge = Callable[[Any], np.ndarray]
"""Observations of B environments, as the environments return them, to bool[B, L]: which of the L
low-level instructions each observation shows carried out."""
KIND = "HostElla"
FORMAT_VERSION = 4
LEAST_WORTH = float(np.finfo(np.float32).tiny)
"""Of a success: the shaper sees one where a reward is above 0, and less than this is 0 in
float32."""
IN_NO_TABLE = int(np.iinfo(np.int32).max)
NEED_REWARDS = ("insolvent_successes", "success_net_reward")
"""Measurements that are left out where a trainer tells successes, but not their rewards."""


class HostElla:
    """Bonuses for low-level instructions that turn out to matter, one step of B environments at a
    time. Wrappers for Gymnasium and Stable-Baselines3 call it; a trainer of your own can too.

    Args:
        low_level: The L low-level instructions, in words.
        judge: Returns which of them an observation shows carried out.
        bonus_share: Lambda, as a share of `success_reward`. A warning is logged if bonuses of this
            size can make a failure worth more than a success (`ella.adapters.bonus_share`).
        success_reward: The reward of a success, as the environment gives it; the least one if
            successes differ. Where a success brings 0 or less, as where every step costs 1 until
            the goal is reached, what it is worth.
        solution_steps: The most steps a solution takes, for that warning; discounting is left out
            of it if not given.
        max_completions: The most low-level instructions one episode can complete, for that
            warning; all of them if not given.
        discount: The learner's.
        recheck: Whether an instruction that was not relevant when first completed can still be
            paid for once it is.
        neutralise: Whether a success takes the episode's bonuses back with its last reward.
        solvency: The most a success is charged, as a share of its reward, or of `success_reward`
            where its reward is not positive. None for no limit, as in the paper: a success long
            after its bonuses can then owe more than it brings, 30 steps later 1.35 times the bonus
            with a discount of 0.99, 300 steps later 20 times.
        last_state: Whether what a success's last action completed counts among what it completed.
        relevance: The relevance classifier. Its `update_every` is not used, and its `labels` are
            intersections. To an instruction that has never succeeded everything is relevant.
        first_update: Steps, of all environments together, before the classifier is updated for the
            first time. Later intervals are half the steps so far.
        update_every: The longest interval. Every update waits for a new success.
        max_instructions: The most high-level instructions that are remembered, at least one for
            each environment. Where there are more, the least recently used one is forgotten, with
            what its successes showed: it counts as never solved. What the classifier learned from
            them stays.
        max_words: The most words of an instruction that are learned from; further ones are left
            out, with a warning.
        vocabulary: Two more than the most different words that are learned from. To instructions
            with further words everything stays relevant, with a warning.
        seed: Of the classifier.
    """

    def __init__(
        self,
        low_level: Sequence[str],
        judge: Judge,
        *,
        bonus_share: float = 0.02,
        success_reward: float = 1.0,
        solution_steps: int | None = None,
        max_completions: int | None = None,
        discount: float = 0.99,
        recheck: bool = True,
        neutralise: bool = True,
        solvency: float | None = 0.5,
        last_state: bool = True,
        relevance: RelevanceSettings | None = None,
        first_update: int = 2_000,
        update_every: int = 128_000,
        max_instructions: int = 4096,
        max_words: int = 16,
        vocabulary: int = 256,
        seed: int = 0,
    ) -> None:
        if isinstance(low_level, str) or not low_level:
            raise InputError("low_level must be a list of at least one instruction")
        if not 0 <= bonus_share < math.inf:
            raise InputError(f"bonus_share must be >= 0, got {bonus_share:g}")
        if not 0 < success_reward < math.inf:
            raise InputError(f"success_reward must be > 0, got {success_reward:g}")
        if not 0 < discount <= 1:
            raise InputError(f"discount must lie in (0, 1], got {discount:g}")
        if solvency is not None and not 0 <= solvency <= 1:
            raise InputError(f"solvency must lie in [0, 1], got {solvency:g}")
        if relevance is not None and relevance.labels != "intersections":
            raise InputError(
                f"HostElla learns relevance from intersections, not from {relevance.labels}; leave "
                "labels out of its RelevanceSettings"
            )
        completions = len(low_level) if max_completions is None else max_completions
        charged = solvency if neutralise else None
        if warning := excess_warning(bonus_share, completions, discount, solution_steps, charged):
            logger.warning(warning)
        self.low_level = tuple(low_level)
        self.discount = discount
        self._success_reward = success_reward
        self._schedule = UpdateSchedule(first_update, update_every)
        self._judge = judge
        self._sentences = Sentences(max_instructions, max_words, vocabulary)
        low_tokens = self._sentences.encoded(self.low_level)
        if len(np.unique(low_tokens, axis=0)) < len(self.low_level):
            raise InputError("two low-level instructions have the same words")
        self._relevance = FreeTextRelevance(
            settings=replace(relevance or RelevanceSettings(), update_every=1),
            vocabulary=vocabulary,
            num_ids=max_instructions,
            num_low_level=len(self.low_level),
            low_tokens=jnp.asarray(low_tokens),
        )
        self._shaper = EllaShaper(
            termination=JudgedTermination(),
            relevance=self._relevance,
            bonus=bonus_share * success_reward,
            discount=discount,
            reward_scale=1.0,
            recheck=recheck,
            neutralise=neutralise,
            solvency=solvency,
            last_state=last_state,
            num_ids=max_instructions,
        )
        start_key, self._key = jax.random.split(jax.random.key(seed))
        self._state: EllaState = _start(self._shaper, start_key)
        self._owner: object = None
        self._updates = 0
        self._warned = False
        self._warned_of_insolvency = False
        self._sums: dict[str, np.ndarray] = {}

    @property
    def updates(self) -> int:
        """How often the relevance classifier has learned."""
        return self._updates

    def start(self, num_envs: int, *, owner: object = None) -> None:
        """New episodes in all of `num_envs` environments; what was learned stays.

        Steps of another `owner` are refused: the episodes of two sets of environments must not
        be mixed up.
        """
        self._owner = owner
        nothing = jnp.zeros((num_envs, len(self.low_level)), bool)
        ledger = EpisodeLedger(nothing, nothing, jnp.zeros(num_envs))
        self._state = replace(self._state, ledger=ledger)

    def shape(
        self,
        observations: Any,
        missions: Sequence[str],
        first: np.ndarray,
        success: np.ndarray,
        done: np.ndarray,
        *,
        rewards: np.ndarray | None = None,
        idle: np.ndarray | None = None,
        last_observations: Any = None,
        owner: object = None,
    ) -> np.ndarray:
        """The bonus float32[B] of one step of every environment, in units of its reward.

        Args:
            observations: Those before the action.
            missions: The B high-level instructions they were given with.
            first: bool[B], whether the observation is its episode's first.
            success: bool[B], whether the action ended the episode with the task solved.
            done: bool[B], whether it ended the episode at all.
            rewards: float[B], what the environments gave for the action. Needed where `success`
                holds, with `solvency`, and for what `measurements` tells of successes' rewards.
            idle: bool[B], environments that only reset in this step; they get 0.
            last_observations: Those after the action and before any reset. Needed where `success`
                holds, with `last_state`.
            owner: As given to `start`.
        """
        count = len(missions)
        if owner is not self._owner:
            raise InputError(
                "other environments have been reset with this HostElla; it serves one wrapper (a "
                "vector of environments for several, and unshaped ones for evaluation)"
            )
        if self._state.ledger.owed.shape != (count,):
            raise InputError(f"start({count}) must come before steps of {count} environments")
        given = {"first": first, "success": success, "done": done, "rewards": rewards, "idle": idle}
        for name, values in given.items():
            if values is not None and np.shape(values) != (count,):
                raise InputError(
                    f"{name} must have one value for each of the {count} environments, "
                    f"got the shape {np.shape(values)}"
                )
        judged = self._judged(observations, count)
        idle = np.zeros(count, bool) if idle is None else np.asarray(idle, bool)
        first = np.asarray(first, bool) | idle
        success, done = np.asarray(success, bool) & ~idle, np.asarray(done, bool) & ~idle
        if (success & ~done).any():
            raise InputError("a success ends its episode: done must hold wherever success does")
        ids, new, rows = self._sentences.use(missions)
        if new:
            # As many rows whatever is new, so that the program is compiled once.
            missing = count - len(new)
            new_ids = np.pad(np.array(new, np.int32), (0, missing), constant_values=IN_NO_TABLE)
            tokens = np.pad(rows, ((0, missing), (0, 0)))
            self._state = _meet(self._relevance, self._state, new_ids, tokens)
        if rewards is None and self._shaper.solvency is not None and success.any():
            raise InputError(
                "a success needs rewards: solvency limits its charge to a share of them (None sets "
                "no limit)"
            )
        shown = np.zeros_like(judged)
        if self._shaper.last_state and success.any():
            if last_observations is None:
                raise InputError("with last_state, a success needs last_observations")
            shown = self._judged(last_observations, count)
        brought = np.zeros(count) if rewards is None else np.asarray(rewards, np.float64)
        worth = np.where(brought > 0, brought, self._success_reward)
        self._state, paid, measured = _shape(
            self._shaper, self._state, judged & ~idle[:, None], shown, ids, first, success, done,
            worth.astype(np.float32), brought.astype(np.float32),
        )  # fmt: skip
        self._add(jax.device_get(measured), with_rewards=rewards is not None)
        bonus = np.array(paid)
        if self._shaper.solvency is None:
            self._warn_of_insolvency(-bonus, worth, success)
        if self._schedule.due(int(count - idle.sum()), int(success.sum())):
            self._learn()
        return bonus

    def relevance(self, instruction: str) -> dict[str, float]:
        """The probability that each low-level instruction matters for a high-level one, the
        highest first; above one half it is paid for. All are 1 until the instruction has succeeded
        and the classifier has been updated."""
        index = self._sentences.find(instruction)
        if index is None:
            return dict.fromkeys(self.low_level, 1.0)
        chances = self._relevance.probability(self._state.relevance, jnp.array([index]))[0]
        found = zip(self.low_level, np.asarray(chances).tolist(), strict=True)
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def solved(self) -> dict[str, set[str]]:
        """Of every instruction that has been carried out, the low-level instructions that its
        successes had in common."""
        texts = self._sentences.texts
        ids = jnp.arange(len(texts), dtype=jnp.int32)
        rows = relevance_dataset.decompositions(self._state.dataset, ids, len(self.low_level))
        return {
            text: {self.low_level[index] for index in np.flatnonzero(row)}
            for text, row in zip(texts, np.asarray(rows), strict=True)
            if row.any()
        }

    def measurements(self) -> dict[str, float]:
        """Means since the last call: `bonus_per_episode`, `low_level_completions` per episode,
        `success_charge`, `decomposition_size` and `instructions_seen`, and of successes whose
        rewards are given `success_net_reward` and the share of `insolvent_successes`, which owe
        more than they may be charged; those without a case are left out."""
        means = {
            name: float(total / count) for name, (total, count) in self._sums.items() if count > 0
        }
        # What was counted before its episode has ended counts later.
        self._sums = {name: pair for name, pair in self._sums.items() if pair[1] == 0}
        return means

    def warn_if_not_updated(self) -> None:
        """Log, once, that every completion was paid for alike because the classifier has learned
        nothing. For the end of training: `save`, wrappers that are closed and `EllaLog` call it."""
        schedule = self._schedule
        if self._updates or self._warned or not schedule.steps:
            return
        self._warned = True
        why = (
            f"the first update comes after {schedule.first_update} (first_update)"
            if schedule.new_successes
            else "no episode succeeded"
        )
        logger.warning(
            "ELLA's relevance classifier was never updated in %d steps: %s; every low-level "
            "instruction was paid for",
            schedule.steps,
            why,
        )

    def _warn_of_insolvency(
        self, charges: np.ndarray, worth: np.ndarray, success: np.ndarray
    ) -> None:
        insolvent = success & (charges > worth)
        if self._warned_of_insolvency or not insolvent.any():
            return
        self._warned_of_insolvency = True
        worst = int(np.where(insolvent, charges / worth, 0.0).argmax())
        logger.warning(
            "a success worth %g was charged %.3g for the bonuses of its episode: they are taken "
            "back compounded, by 1 / %g a step; HostElla(solvency=0.5) never charges more than "
            "half of what a success brings",
            worth[worst],
            charges[worst],
            self.discount,
        )

    def save(self, path: Path | str) -> None:
        """Write everything learned to one array file (safetensors)."""
        self.warn_if_not_updated()
        table = {
            "low_level": self.low_level,
            "words": self._sentences.words,
            "instructions": self._sentences.texts,
            "order_of_use": self._sentences.order_of_use,
            "schedule": self._schedule.counts(),
            "updates": self._updates,
            "sizes": self._sentences.sizes,
        }
        with writing_to(Path(path)):
            save_arrays(
                Path(path),
                named_arrays(self._lasting()),
                kind=KIND,
                version=FORMAT_VERSION,
                table=table,
            )

    def load(self, path: Path | str) -> None:
        """Take what another one with the same low-level instructions has saved. `vocabulary`,
        `max_words` and `max_instructions` may be larger than they were. Its episodes are not among
        it: call `start` (wrappers do when they are reset)."""
        try:
            found = load_arrays(Path(path), kind=KIND, version=FORMAT_VERSION)
            table = found.table
            low_level, words, instructions = (
                [str(text) for text in table[name]]
                for name in ("low_level", "words", "instructions")
            )
            order = [int(index) for index in table["order_of_use"]]
            if sorted(order) != list(range(len(instructions))):
                raise ValueError("order_of_use does not name every instruction once")
            updates = int(table["updates"])
            schedule = self._schedule.restored(table["schedule"])
            sizes = {name: int(table["sizes"][name]) for name in self._sentences.sizes}
        except InputError:
            raise
        except (DamagedFileError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a file that HostElla.save wrote ({error})") from error
        if tuple(low_level) != self.low_level:
            raise InputError(f"{path} was saved with other low-level instructions")
        given, lasting = self._sentences.sizes, self._lasting()
        longest = max((len(text.split()) for text in instructions), default=1)
        needed = sizes | {"max_words": min(sizes["max_words"], longest)}
        if small := [name for name in given if given[name] < needed[name]]:
            least = ", ".join(f"{name}={needed[name]}" for name in small)
            raise InputError(f"{path} was saved with larger sizes; give HostElla at least {least}")
        try:
            enlarged = with_room(
                found.arrays, named_arrays(lasting), sizes["vocabulary"], given["vocabulary"]
            )
            lasting = replace_arrays(lasting, enlarged)
        except MismatchedArraysError as error:
            raise InputError(
                f"{path} was saved with another relevance network ({error}); give HostElla the "
                "RelevanceSettings it was saved with"
            ) from error
        sentences = Sentences(**given)
        tokens = sentences.restore(words, instructions, order)
        self._sentences = sentences
        lasting = jax.tree.map(jnp.asarray, lasting)
        # Sentences that are read otherwise, since there is room for more of their words, are new.
        was = lasting["relevance"].sentences[: len(tokens)]
        changed = np.flatnonzero((tokens != was).any(-1)).astype(np.int32)
        relevance = self._relevance.meet(
            lasting["relevance"], jnp.asarray(changed), jnp.asarray(tokens[changed])
        )
        self._state = replace(
            self._state,
            steps=lasting["steps"],
            dataset=lasting["dataset"],
            relevance=relevance,
        )
        self._key = lasting["key"]
        self._schedule = schedule
        self._updates = updates

    def _judged(self, observations: Any, count: int) -> np.ndarray:
        judged = np.asarray(self._judge(observations))
        if judged.shape != (count, len(self.low_level)) or judged.dtype != bool:
            raise InputError(
                f"the judge must return bool[{count}, {len(self.low_level)}], one column for each "
                f"low-level instruction, got {judged.dtype}{list(judged.shape)}"
            )
        return judged

    def _lasting(self) -> dict[str, PyTree]:
        """What outlives episodes."""
        state = self._state
        return {
            "steps": state.steps,
            "dataset": state.dataset,
            "relevance": state.relevance,
            "key": self._key,
        }

    def _learn(self) -> None:
        self._key, key = jax.random.split(self._key)
        state = self._state
        learned, measured = _learn(self._relevance, state.relevance, state.dataset, key)
        if float(measured[STARTED].total) < float(measured[STARTED].count):
            raise InputError(START_PROBLEM)
        self._state = replace(state, relevance=learned)
        self._updates += 1

    def _add(self, measured: Measurements, *, with_rewards: bool) -> None:
        for name, mean in measured.items():
            if name in NEED_REWARDS and not with_rewards:
                continue
            pair = np.array([mean.total, mean.count], np.float64)
            self._sums[name] = self._sums.get(name, 0) + pair


@eqx.filter_jit
def _start(shaper: EllaShaper, key: PRNGKeyArray) -> EllaState:
    return shaper.init(0, key=key)


@eqx.filter_jit
def _shape(
    shaper: EllaShaper,
    state: EllaState,
    judged: Bool[np.ndarray, "B L"],
    judged_after: Bool[np.ndarray, "B L"],
    ids: Int32[np.ndarray, " B"],
    first: Bool[np.ndarray, " B"],
    success: Bool[np.ndarray, " B"],
    done: Bool[np.ndarray, " B"],
    worth: Float[np.ndarray, " B"],
    rewards: Float[np.ndarray, " B"],
) -> tuple[EllaState, Float[Array, " B"], Measurements]:
    """One step. ELLA reads judgements, instructions' ids, first steps, successes and what these
    are worth: to the shaper a success is a reward above 0."""
    solved, ended = jnp.asarray(success), jnp.asarray(done)
    unused = jnp.zeros((1, ids.size), jnp.int32)
    trajectory = Trajectory(
        observation=JudgedObservation(jnp.asarray(judged)[None]),
        first=jnp.asarray(first)[None],
        instruction_row=jnp.arange(ids.size, dtype=jnp.int32)[None],
        action=unused,
        reward=jnp.where(solved, jnp.maximum(worth, LEAST_WORTH), 0.0)[None],
        terminated=solved[None],
        truncated=(ended & ~solved)[None],
        next_observation=JudgedObservation(jnp.asarray(judged_after)[None]),
        instructions=InstructionTable(ids=jnp.asarray(ids), tokens=unused.T),
    )
    state, bonus, measurements = shaper.shape(state, trajectory)
    net = mean_of(jnp.where(solved, rewards + bonus[0], 0.0), solved)
    return state, bonus[0], measurements | {"success_net_reward": net}


@eqx.filter_jit
def _meet(
    relevance: FreeTextRelevance,
    state: EllaState,
    ids: Int32[np.ndarray, " B"],
    tokens: Int32[np.ndarray, "B n"],
) -> EllaState:
    """With new sentences; nothing is known any longer of those that had their ids before."""
    new = jnp.asarray(ids)
    return replace(
        state,
        dataset=relevance_dataset.forget(state.dataset, new),
        relevance=relevance.meet(state.relevance, new, jnp.asarray(tokens)),
    )


@eqx.filter_jit
def _learn(
    relevance: FreeTextRelevance,
    state: FreeTextLearner,
    dataset: RelevanceDataset,
    key: PRNGKeyArray,
) -> tuple[FreeTextLearner, Measurements]:
    """Independent of the number of environments, so that it is compiled once."""
    start = jnp.zeros((), jnp.int32)
    return relevance.fit(state, dataset, start, frames_per_iteration=1, key=key)
