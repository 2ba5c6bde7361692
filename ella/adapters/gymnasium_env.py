"""One environment for Gymnasium."""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import PRNGKeyArray

from ella.errors import InputError, unknown_name
from ella.world import Observation, State, TaskSpec, Timestep, compiled, describe, make
from ella.world.encoding import NUM_ACTIONS, NUM_COLOURS, NUM_STATES, NUM_TYPES, VIEW_SIZE
from ella.world.grammar import CONNECTORS, VOCABULARY_SIZE
from ella.world.language import AbstractLanguage
from ella.world.render import TILE_SIZE, frame, text_frame

MISSIONS = ("tokens", "text")
RENDER_MODES = ("rgb_array", "ansi")
FRAMES_PER_SECOND = 5
TEXT_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"


class EllaEnv(gymnasium.Env[dict[str, Any], Any]):
    """A task of the world; `gymnasium.make("ELLA/PutNext-Room-v0")`.

    Observations: `image` uint8[7, 7, 3] in minigrid's encoding, `direction` (0..3) and `mission`,
    the instruction's token ids int32[L] (0 is padding). With `mission="text"` there is also
    `mission_text`, the sentence itself. `info` always has the sentence as `mission` and its
    number as `instruction_id`.

    Actions: 0 left, 1 right, 2 forward, 3 pick up, 4 drop, 5 toggle, 6 done. The horizon belongs
    to the level, so no `TimeLimit` is needed.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  Gymnasium declares it so
        "render_modes": list(RENDER_MODES),
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self,
        task: str | TaskSpec,
        *,
        mission: str = "tokens",
        render_mode: str | None = None,
        tile_size: int = TILE_SIZE,
    ) -> None:
        check_render_mode(render_mode, RENDER_MODES)
        self.world = make(task)
        self._mission_form = mission
        self.render_mode = render_mode
        self.tile_size = tile_size
        self.observation_space = observation_space(self.world.language, mission)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self._state: State | None = None
        self._view = np.zeros((VIEW_SIZE, VIEW_SIZE, 3), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode on a fresh level; the same seed gives the same levels."""
        super().reset(seed=seed)
        timestep = compiled.reset(self.world, draw_key(self.np_random))
        return self._take(timestep)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one action."""
        if not self.action_space.contains(action):
            raise InputError(f"an action is an integer from 0 to {NUM_ACTIONS - 1}, got {action!r}")
        timestep = compiled.step(self.world, self._current_state(), np.int32(action))
        observation, info = self._take(timestep)
        outcome = jax.device_get((timestep.reward, timestep.terminated, timestep.truncated))
        reward, terminated, truncated = (value.item() for value in outcome)
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """The level as uint8[H, W, 3] or coloured text, with the cells in view highlighted."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode, such as 'rgb_array', in make()")
            return None
        description = describe(self._current_state())
        if self.render_mode == "ansi":
            return f"{text_frame(description, view=self._view)}\n{description['mission']}"
        return frame(description, view=self._view, tile_size=self.tile_size)

    def _current_state(self) -> State:
        if self._state is None:
            raise InputError("the environment has no level yet; call reset() first")
        return self._state

    def _take(self, timestep: Timestep) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keep the state and hand out its observation and info."""
        self._state = timestep.state
        observation: Observation = jax.device_get(timestep.observation)
        self._view = np.array(observation.image)
        instruction_id = int(observation.instruction_id)
        text = self.world.language.text(instruction_id)
        values = {
            "image": self._view.copy(),
            "direction": int(observation.direction),
            "mission": np.array(observation.mission),
        }
        if self._mission_form == "text":
            values["mission_text"] = text
        return values, {"mission": text, "instruction_id": instruction_id}


def observation_space(language: AbstractLanguage, mission: str) -> spaces.Dict:
    """The space of one environment's observations.

    The image's bounds are those of its numbers, not 0..255: libraries that look for pictures to
    shrink and convolve then leave these seven by seven symbols alone.
    """
    if mission not in MISSIONS:
        raise unknown_name("kind of mission", mission, MISSIONS)
    highest = np.array([NUM_TYPES - 1, NUM_COLOURS - 1, NUM_STATES - 1], np.uint8)
    parts: dict[str, spaces.Space[Any]] = {
        "image": spaces.Box(
            np.zeros((VIEW_SIZE, VIEW_SIZE, 3), np.uint8),
            np.tile(highest, (VIEW_SIZE, VIEW_SIZE, 1)),
            dtype=np.uint8,
        ),
        "direction": spaces.Discrete(4),
        "mission": spaces.Box(0, VOCABULARY_SIZE - 1, (language.max_tokens,), np.int32),
    }
    if mission == "text":
        clause = max(len(clause.text) for clause in language.clauses)
        longest = 2 * clause + max(map(len, CONNECTORS.values()))
        parts["mission_text"] = spaces.Text(longest, charset=TEXT_CHARACTERS)
    return spaces.Dict(parts)


def check_render_mode(render_mode: str | None, known: tuple[str, ...]) -> None:
    if render_mode is not None and render_mode not in known:
        raise unknown_name("render mode", render_mode, known)


def draw_key(generator: np.random.Generator) -> PRNGKeyArray:
    """A JAX key from Gymnasium's generator."""
    return jax.random.key(int(generator.integers(2**31)))
