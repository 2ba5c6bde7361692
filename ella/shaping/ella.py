"""ELLA: a bonus whenever a relevant low-level instruction is completed for the first time."""

from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.measurement import Mean, Measurements, mean_of
from ella.schedule import LARGEST_COUNT
from ella.shaping import relevance_dataset
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import AbstractRelevance, EpisodeEnds, LearnedRelevance
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.shaper import AbstractRewardShaper, Number
from ella.shaping.termination import AbstractTermination
from ella.trajectory import Trajectory
from ella.world.language import Language
from ella.world.mixtures import Task

LARGEST_DEBT = 1e30
"""In bonuses. Long after a bonus its compounded debt would be infinite, and a product with 0 no
number."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpisodeLedger:
    """What each environment's running episode has completed and been paid; survives rollouts."""

    completed: Bool[Array, "B L"]
    """Low-level instructions that have terminated so far."""
    settled: Bool[Array, "B L"]
    """Those that can no longer earn a bonus in this episode."""
    owed: Float[Array, " B"]
    """Bonuses paid so far, each compounded to the current step: sum of c_t discount^(t - now), at
    most `LARGEST_DEBT`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EllaState:
    """What changes while one seed trains."""

    ledger: EpisodeLedger
    steps: Int32[Array, ""]
    """Steps of each environment so far, at most `LARGEST_COUNT`."""
    dataset: RelevanceDataset
    relevance: PyTree
    """The relevance judge's own state."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Account:
    """What happened at each step of a rollout."""

    paid: Bool[Array, "*T B"]
    """Whether the step earned the bonus."""
    earned: Bool[Array, "*T B L"]
    """The low-level instructions it was earned for."""
    completed: Bool[Array, "*T B L"]
    """Everything the episode has completed up to and including the step's observation."""
    bonus: Float[Array, "*T B"]
    """The bonus, neutralisation included."""
    insolvent: Bool[Array, "*T B"]
    """Whether the step is a success that owes more than it may be charged."""


class EllaShaper(AbstractRewardShaper):
    """Exploration through learned language abstraction.

    The observation before each action is tested against every low-level instruction. The state
    after an episode's last action is never tested, or with `last_state` for D alone: nothing is
    paid for it, since a success would be charged for it at once.
    """

    termination: AbstractTermination
    relevance: AbstractRelevance
    bonus: Number
    """Lambda, in units of the scaled reward."""
    discount: Number
    """Must be the learner's discount, or successes are not neutralised exactly."""
    reward_scale: Number
    """What the learner multiplies the environment's reward by. Bonuses do not depend on it, only
    the measurements of successes do."""
    recheck: bool = eqx.field(static=True)
    """Whether a low-level instruction that was not relevant when first completed can still be
    paid for when it holds again and has become relevant (the released code). False checks its
    relevance only at its first completion (the paper's text)."""
    neutralise: bool = eqx.field(static=True)
    """Whether a success takes the episode's bonuses back with its last reward."""
    last_state: bool = eqx.field(static=True)
    """Whether what a success's last action completed counts among what the success completed. The
    released code never looks at the state after an episode's last action."""
    num_ids: int = eqx.field(static=True)
    """Size of the high-level language's id space."""
    solvency: Number | None = None
    """The most a success is charged, as a share of its scaled reward; None for no limit (the
    paper's). See docs/solvency.md."""
    low_level: Language | None = eqx.field(static=True, default=None)
    """The low-level instructions; None where they are no language of the world."""
    num_envs: int | None = eqx.field(static=True, default=None)
    """Environments among which the learner's frames are counted, also where its state judges a
    single episode; None for those of the trajectory."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> EllaState:
        return self._before_episodes(num_envs, self.relevance.init(key=key))

    def state_shapes(self, num_envs: int) -> PyTree:
        relevance = self.relevance.state_shapes()
        return jax.eval_shape(partial(self._before_episodes, num_envs), relevance)

    def _before_episodes(self, num_envs: int, relevance: PyTree) -> EllaState:
        num_low_level = self.relevance.num_low_level
        return EllaState(
            ledger=EpisodeLedger(
                completed=jnp.zeros((num_envs, num_low_level), bool),
                settled=jnp.zeros((num_envs, num_low_level), bool),
                owed=jnp.zeros(num_envs),
            ),
            steps=jnp.zeros((), jnp.int32),
            dataset=relevance_dataset.empty(self.num_ids, num_low_level),
            relevance=relevance,
        )

    def start_problems(self, state: EllaState) -> dict[str, Bool[Array, ""]]:
        return self.relevance.start_problems(state.relevance)

    def shape(
        self, state: EllaState, trajectory: Trajectory
    ) -> tuple[EllaState, Float[Array, "T B"], Measurements]:
        state, account = self.account(state, trajectory)
        done = trajectory.done.astype(jnp.float32)
        episodes = done.sum()
        completions = account.completed.sum(-1, dtype=jnp.float32)
        seen = state.dataset.num_seen.astype(jnp.float32)
        is_seen = jnp.minimum(seen, 1.0)
        size = state.dataset.num_members.astype(jnp.float32) / jnp.maximum(seen, 1.0)
        measurements = {
            "bonus_per_episode": Mean(self.bonus * account.paid.sum(dtype=jnp.float32), episodes),
            "low_level_completions": Mean((completions * done).sum(), episodes),
            "decomposition_size": Mean(size * is_seen, is_seen),
            "instructions_seen": Mean(seen, jnp.ones(())),
            **self.success_measurements(trajectory, account),
        }
        return state, account.bonus, measurements

    def account(self, state: EllaState, trajectory: Trajectory) -> tuple[EllaState, Account]:
        """`shape` in full: every completion and payment, for videos and explanations."""
        T, B = trajectory.reward.shape
        terminated = self.termination.of_rollout(trajectory.observation)
        steps = _counted_on(state.steps, jnp.arange(T, dtype=jnp.int32))
        by_row = self.relevance.relevant(state.relevance, trajectory.instructions)
        relevant = by_row[trajectory.instruction_row]
        relevant |= self.relevance.pays_everything(steps, self.num_envs or B)[:, None, None]

        ledger, account = self.keep_account(state.ledger, trajectory, terminated, relevant)
        completed = account.completed
        if self.last_state:
            completed = completed | self.termination.of_few(
                trajectory.next_observation, trajectory.success
            )
        ends = EpisodeEnds(
            trajectory.instruction_id, completed, trajectory.success, trajectory.done
        )
        state = EllaState(
            ledger=ledger,
            steps=_counted_on(state.steps, T),
            dataset=relevance_dataset.record(state.dataset, ends.ids, completed, ends.success),
            relevance=self.relevance.observe(state.relevance, ends),
        )
        return state, account

    def fit(
        self,
        state: EllaState,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[EllaState, Measurements]:
        relevance, measurements = self.relevance.fit(
            state.relevance,
            state.dataset,
            iteration,
            frames_per_iteration=trajectory.reward.size,
            key=key,
        )
        return replace(state, relevance=relevance), measurements

    def success_measurements(self, trajectory: Trajectory, account: Account) -> Measurements:
        """What successes are charged for the bonuses of their episodes, and what they keep.

        The last step of a success earns the scaled reward and is charged for the bonuses that steps
        before it were paid, compounded (its own bonus is paid and taken back at once). A success
        that owes more than it may be charged, its own bonus included, is insolvent. Without
        `solvency` the limit is the scaled reward, but it is charged all the same: its last step
        brings less than failing there.
        """
        success = trajectory.success
        earned = self.reward_scale * trajectory.reward
        return {
            "success_charge": mean_of(jnp.maximum(-account.bonus, 0.0), success),
            "insolvent_successes": mean_of(account.insolvent, success),
            "success_net_reward": mean_of(earned + account.bonus, success),
        }

    def keep_account(
        self,
        ledger: EpisodeLedger,
        trajectory: Trajectory,
        terminated: Bool[Array, "T B L"],
        relevant: Bool[Array, "T B L"],
    ) -> tuple[EpisodeLedger, Account]:
        """Bonuses of a rollout, given what terminated before each action and what is relevant.

        A step earns lambda once however many instructions it completes. A success at step N is
        charged lambda times the sum of discount^(t - N) over the episode's paid steps t, N
        included, so that its discounted return is that of the unshaped reward; with `solvency`, no
        more than that share of its scaled reward, so that it keeps at least the rest over what
        failing at N is paid.
        """

        def step(
            ledger: EpisodeLedger, inputs: tuple[Array, Array, Array, Array]
        ) -> tuple[EpisodeLedger, Account]:
            first, success, terminates, is_relevant = inputs
            continues = ~first[:, None]
            completed, settled = ledger.completed & continues, ledger.settled & continues
            earned = terminates & is_relevant & ~settled
            completed = completed | terminates
            settled = settled | (earned if self.recheck else terminates)
            paid = earned.any(-1)
            price = paid.astype(jnp.float32)
            owed = jnp.where(first, 0.0, ledger.owed / self.discount) + price
            owed = jnp.minimum(owed, LARGEST_DEBT)
            charged = jnp.where(success, owed, 0.0) if self.neutralise else 0.0
            bonus = self.bonus * (price - charged)
            account = Account(paid, earned, completed, bonus, jnp.zeros_like(paid))
            return EpisodeLedger(completed, settled, owed), account

        inputs = (trajectory.first, trajectory.success, terminated, relevant)
        ledger, account = jax.lax.scan(step, ledger, inputs, unroll=8)
        return ledger, self._solvent(trajectory, account)

    def _solvent(self, trajectory: Trajectory, account: Account) -> Account:
        """The account with insolvent successes marked and charged what they may be."""
        share = 1.0 if self.solvency is None else self.solvency
        own = self.bonus * account.paid.astype(jnp.float32)
        least = own - share * self.reward_scale * trajectory.reward
        insolvent = trajectory.success & (account.bonus < least)
        bonus = account.bonus
        if self.solvency is not None:
            bonus = jnp.where(insolvent, least, bonus)
        return replace(account, bonus=bonus, insolvent=insolvent)


def _counted_on(
    steps: Int32[Array, ""], more: int | Int32[Array, "*more"]
) -> Int32[Array, "*more"]:
    """The sum, at most `LARGEST_COUNT`."""
    return steps + jnp.minimum(more, LARGEST_COUNT - steps)


def ella_shaper(
    task: Task,
    termination: AbstractTermination,
    relevance: AbstractRelevance | None = None,
    *,
    bonus: Number = 0.25,
    discount: Number = 0.99,
    reward_scale: Number = 20.0,
    recheck: bool = True,
    neutralise: bool = True,
    last_state: bool = False,
    solvency: Number | None = None,
    low_level: Language | None = None,
    num_envs: int | None = None,
) -> EllaShaper:
    """ELLA for a high-level task; relevance is learned unless another judge is given.

    `termination` must judge the instructions of `low_level`, by default those of
    `low_level_of(task)`, in the order of their ids. The other arguments are the fields of
    `EllaShaper`.
    """
    low = low_level or low_level_of(task).language
    return EllaShaper(
        termination=termination,
        relevance=relevance or LearnedRelevance(task, low_level=low).ready_to_learn(),
        bonus=bonus,
        discount=discount,
        reward_scale=reward_scale,
        recheck=recheck,
        neutralise=neutralise,
        last_state=last_state,
        num_ids=task.language.num_ids,
        solvency=solvency,
        low_level=low,
        num_envs=num_envs,
    )
