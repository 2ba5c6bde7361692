"""One environment for Gymnasium."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from jaxtyping import PRNGKeyArray

from ella.errors import InputError, unknown_name
from ella.world import Observation, State, TaskSpec, Timestep, compiled, describe, make
from ella.world.encoding import NUM_ACTIONS, NUM_COLOURS, NUM_STATES, NUM_TYPES, VIEW_SIZE
from ella.world.grammar import CONNECTORS, VOCABULARY_SIZE
from ella.world.instructed_levels import begin, levels_with_instruction
from ella.world.language import AbstractLanguage
from ella.world.render import TILE_SIZE, frame, text_frame

MISSIONS = ("tokens", "text")
RENDER_MODES = ("rgb_array", "ansi")
FRAMES_PER_SECOND = 5
TEXT_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"
RESET_OPTIONS = ("mission", "level")


class EllaEnv(gymnasium.Env[dict[str, Any], Any]):
    """A task of the world; `gymnasium.make("ELLA/PutNext-Room-v0")`.

    Observations: `image` uint8[7, 7, 3] in minigrid's encoding, `direction` (0..3) and `mission`,
    the instruction's token ids int32[L] (0 is padding). With `mission="text"` there is also
    `mission_text`, the sentence itself. `info` always has the sentence as `mission` and its
    number as `instruction_id`.

    `levels` makes resets draw, uniformly, from a fixed set: each number is the seed of a level, the
    one that `reset(seed=number)` starts in an environment without `levels`.

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
        levels: int | Sequence[int] | None = None,
        render_mode: str | None = None,
        tile_size: int = TILE_SIZE,
    ) -> None:
        check_render_mode(render_mode, RENDER_MODES)
        self.world = make(task)
        self._levels = level_seeds(levels)
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
        """Start an episode on a fresh level; the same seed gives the same levels.

        `options` may have
            mission: The instruction of the level, one that the task's levels can have.
            level: The seed of the level: what `reset(seed=level)` would start, but later resets
                stay as they would have been.
        """
        super().reset(seed=seed)
        given = check_options(options, RESET_OPTIONS)
        level, mission = given.get("level"), given.get("mission")
        if level is None and self._levels:
            if mission is not None:
                raise fixed_levels_error()
            level = self._levels[self.np_random.integers(len(self._levels))]
        generator = self.np_random if level is None else level_generator(level)
        key = draw_key(generator)
        if mission is None:
            return self._take(compiled.reset(self.world, key))
        started = begin(self.world, levels_with_instruction(self.world, mission, key))
        return self._take(jax.tree.map(lambda leaf: leaf[0], started))

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

    @property
    def mission(self) -> str:
        """The current episode's instruction, as minigrid's environments have it."""
        return self.world.language.text(int(self._current_state().instruction_id))

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


def check_options(options: Mapping[str, Any] | None, known: Collection[str]) -> Mapping[str, Any]:
    """The options of a reset, if all are known."""
    options = options or {}
    for name in options:
        if name not in known:
            raise unknown_name("option of reset", str(name), known)
    mission = options.get("mission")
    if mission is not None and not isinstance(mission, str):
        raise InputError(f"the option mission must be an instruction, got {mission!r}")
    return options


def level_seeds(levels: int | Sequence[int] | None) -> tuple[int, ...]:
    """The argument `levels` as a tuple; empty for fresh levels at every reset."""
    if levels is None:
        return ()
    seeds = tuple(levels) if isinstance(levels, Sequence | np.ndarray) else (levels,)
    if not seeds:
        raise InputError("levels must have at least one seed, or be None for fresh levels")
    for seed in seeds:
        level_generator(seed)
    return seeds


def level_generator(level: int) -> np.random.Generator:
    """The generator of `reset(seed=level)`."""
    if isinstance(level, bool) or not isinstance(level, int | np.integer) or level < 0:
        raise InputError(f"a level is given by its seed, an integer >= 0, got {level!r}")
    return np_random(int(level))[0]


def fixed_levels_error() -> InputError:
    return InputError(
        "the environment has fixed levels, so a mission cannot be chosen; leave out levels=, or "
        "give the option level as well"
    )
