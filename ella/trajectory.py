"""What a rollout hands to reward shapers and learners."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Float, Int32, Shaped, UInt32

from ella.world.state import InstructionTable


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """T steps of B environments with automatic resets; time is the first axis.

    Step t: the agent saw `image`, took `action`, was given `reward`, and the world
    then looked like `next_image` (before any reset).
    """

    image: Shaped[Array, "T B ..."]
    """The observation before the action: uint8 [T, B, 7, 7, 3] in our world."""
    direction: Int32[Array, "T B"]
    first: Bool[Array, "T B"]
    """Whether the observation is the first of its episode."""
    instruction_row: Int32[Array, "T B"]
    """Row of the current instruction in `instructions`."""
    action: Int32[Array, "T B"]
    reward: Float[Array, "T B"]
    """The environment's own reward, unscaled."""
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    next_image: Shaped[Array, "T B ..."]
    """The observation after the action and before any reset: at an episode's end, its last one."""
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
