"""What a rollout hands to reward shapers and learners."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Float, Int32, PyTree, UInt8, UInt32

from ella.errors import InputError
from ella.world.state import InstructionTable


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """T steps of B environments with automatic resets; time is the first axis.

    Step t: the agent saw `observation`, took `action`, was given `reward`, and then saw
    `next_observation`, before any reset. Where the step did not end its episode, that is the
    `observation` of step t + 1.

    Observations are PyTrees of arrays [T, B, ...]. Trajectories of ELLA's own world hold
    `ella.world.state.GridObservation`; a shaper that reads something else works for any world
    whose trajectories hold that.
    """

    observation: PyTree
    """[T, B, ...], before the action."""
    first: Bool[Array, "T B"]
    """Whether the observation is the first of its episode."""
    instruction_row: Int32[Array, "T B"]
    """Row of the current instruction in `instructions`."""
    action: Int32[Array, "T B"]
    reward: Float[Array, "T B"]
    """The environment's own reward, unscaled."""
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    next_observation: PyTree
    """[T, B, ...], after the action and before any reset: at an episode's end, its last one. Of
    the same structure as `observation`."""
    instructions: InstructionTable
    fingerprint: UInt32[Array, "T B"] | None = None
    """A hash of the whole state after the action and before any reset, where the world tells it;
    for counting visits."""

    @property
    def done(self) -> Bool[Array, "T B"]:
        """Whether the action ended its episode."""
        return self.terminated | self.truncated

    @property
    def success(self) -> Bool[Array, "T B"]:
        """Whether the action ended its episode with the task solved."""
        return self.terminated & (self.reward > 0)

    @property
    def instruction_id(self) -> Int32[Array, "T B"]:
        return self.instructions.ids[self.instruction_row]


def image_of(observation: PyTree) -> UInt8[Array, "*batch 7 7 3"]:
    """The image of an observation, for methods that read the agent's view and nothing else."""
    image: Array | None = getattr(observation, "image", None)
    if image is None:
        raise InputError(
            "this method reads images: observations need an attribute 'image', which "
            f"{type(observation).__name__} does not have"
        )
    return image
