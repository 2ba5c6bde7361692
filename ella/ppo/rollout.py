"""Collecting a rollout: act for T steps in B environments."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray, PyTree

from ella.networks.actor_critic import ActorCritic, Memory
from ella.ppo.settings import PPOSettings
from ella.trajectory import Trajectory, image_of
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import Environment, VectorState
from ella.world.mixtures import Mixture


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rollout:
    """A trajectory, and the policy's log-probabilities, values and memories at each step."""

    trajectory: Trajectory
    log_prob: Float[Array, "T B"]
    """Of the action taken."""
    value: Float[Array, "T B"]
    """Of the observation before the action."""
    memory: Memory
    """[T, B, M] before each step, not yet cleared where an episode begins."""
    last_value: Float[Array, " B"]
    """Of the observation after the last step; of a new episode's first one if that step ended
    one, in which case it must not be used."""
    cut_value: Float[Array, "T B"] | None
    """Of the observation after the action and before any reset; None unless truncated episodes
    are bootstrapped."""
    episode_length: Int32[Array, "T B"]
    """Steps of the current episode, the one taken included."""
    levels_reused: Int32[Array, ""]
    """Resets to a level that had been played before."""


def start_environments(env: Environment, config: PPOSettings, *, key: PRNGKeyArray) -> VectorState:
    """The environments of one seed, and its levels."""
    return env.start(key, config.num_envs, pool_capacity(env, config))


def environment_shapes(env: Environment, config: PPOSettings) -> VectorState:
    """What `start_environments` makes, as shapes."""
    return env.start_shapes(config.num_envs, pool_capacity(env, config))


def fresh_levels(
    env: Environment,
    config: PPOSettings,
    vector: VectorState,
    *,
    weights: Float[Array, " parts"] | None = None,
    key: PRNGKeyArray,
) -> VectorState:
    """The environments with new levels in place of played ones; those of a mixture are drawn with
    `weights`."""
    if config.pool_size and not isinstance(env.spec, Mixture):
        return env.refill(vector, key)
    return env.replenish(vector, key, weights)


def pool_capacity(env: Environment, config: PPOSettings) -> int:
    """Levels kept for resets: the setting, or as many as quick episodes need in one rollout."""
    if config.pool_size:
        return config.pool_size
    mean = config.num_envs * config.rollout_length / env.spec.quick_episode
    return math.ceil(mean + 4 * math.sqrt(config.num_envs))


def embeds_whole_language(env: Environment, config: PPOSettings) -> bool:
    """Whether rollouts embed every instruction there is: where the pool (`pool_size` 0, sized for
    the quickest episodes) and the running episodes hold at least as many levels."""
    return not config.pool_size and env.language.num_ids <= (
        pool_capacity(env, config) + config.num_envs
    )


def minibatch_capacity(env: Environment, config: PPOSettings) -> int | None:
    """The most instructions that the quickest episodes of one minibatch can have, where a rollout
    has more and `pool_size` is 0; None where a minibatch reads the whole table."""
    if config.pool_size:
        return None
    table = pool_capacity(env, config) + config.num_envs
    sequences = config.minibatch_sequences
    resets = sequences * config.bptt_length / env.spec.quick_episode
    capacity = math.ceil(sequences + resets + 4 * math.sqrt(sequences))
    return capacity if capacity < min(table, env.language.num_ids) else None


def collect(
    env: Environment,
    config: PPOSettings,
    network: ActorCritic,
    vector: VectorState,
    memory: Memory,
    *,
    weights: Float[Array, " parts"] | None = None,
    key: PRNGKeyArray,
) -> tuple[VectorState, Memory, Rollout]:
    """Act for `rollout_length` steps, normalising with the statistics of each step's rows.

    Instructions are embedded once, noise is drawn once, and values and probabilities are computed
    after the loop: a step holds only what the next one needs. New levels of a mixture are drawn
    with `weights`.
    """
    refill_key, noise_key = jax.random.split(key)
    vector = fresh_levels(env, config, vector, weights=weights, key=refill_key)
    # A short language is embedded as a whole, which costs less than the pool's own instructions.
    whole = embeds_whole_language(env, config)
    instructions = env.whole_language() if whole else env.instruction_table(vector)
    network = network.ready_to_act()
    modulations = network.instruct(instructions.tokens)
    noise = jax.random.gumbel(noise_key, (config.rollout_length, config.num_envs, NUM_ACTIONS))

    def row_of(vector: VectorState) -> Int32[Array, " B"]:
        return vector.states.instruction_id if whole else vector.instruction_row

    def step(
        carry: tuple[VectorState, Memory], noise: Float[Array, "B A"]
    ) -> tuple[tuple[VectorState, Memory], dict[str, PyTree]]:
        vector, memory = carry
        row = row_of(vector)
        seen, _ = network.see(vector.observation.image[None], modulations[row][None])
        memory = network.remember(seen[0], memory, vector.first)
        action = jnp.argmax(network.logits(memory.hidden) + noise, axis=-1).astype(jnp.int32)
        stepped, transition = env.step_vector(vector, action)
        return (stepped, memory), {
            "observation": vector.observation.without_instruction,
            "first": vector.first,
            "instruction_row": row,
            "episode_length": vector.states.step_count + 1,
            "action": action,
            "reward": transition.reward,
            "terminated": transition.terminated,
            "truncated": transition.truncated,
            "next_observation": transition.next_observation.without_instruction,
            "fingerprint": transition.fingerprint,
            "reused": transition.reused,
            "memory": memory,
        }

    (last_vector, last_memory), steps = jax.lax.scan(step, (vector, memory), noise)
    after = steps.pop("memory")
    reused, episode_length = steps.pop("reused"), steps.pop("episode_length")
    trajectory = Trajectory(instructions=instructions, **steps)
    log_probs = jax.nn.log_softmax(network.logits(after.hidden))
    seen, _ = network.see(
        last_vector.observation.image[None], modulations[row_of(last_vector)][None]
    )
    next_memory = network.remember(seen[0], last_memory, last_vector.first)
    return (
        last_vector,
        last_memory,
        Rollout(
            trajectory=trajectory,
            log_prob=gather_log_prob(log_probs, trajectory.action),
            value=network.value(after.hidden),
            memory=jax.tree.map(
                lambda start, later: jnp.concatenate([start[None], later[:-1]]), memory, after
            ),
            last_value=network.value(next_memory.hidden),
            cut_value=(
                _values_before_reset(network, trajectory, modulations, after)
                if config.bootstrap_truncation
                else None
            ),
            episode_length=episode_length,
            levels_reused=reused.sum(),
        ),
    )


def gather_log_prob(
    log_probs: Float[Array, "*T A"], action: Int32[Array, "*T"]
) -> Float[Array, "*T"]:
    """The log-probability of the actions taken."""
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


def _values_before_reset(
    network: ActorCritic,
    trajectory: Trajectory,
    modulations: Float[Array, "R *K N 2 C"],
    memory: Memory,
) -> Float[Array, "T B"]:
    """Values of the observations after each action, `memory` being that after each step."""
    seen, _ = network.see(
        image_of(trajectory.next_observation), modulations[trajectory.instruction_row]
    )
    nowhere = jnp.zeros_like(trajectory.first)
    return network.value(network.remember(seen, memory, nowhere).hidden)
