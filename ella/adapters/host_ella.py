"""ELLA for environments and trainers that step on the host, whatever their observations are."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree
from safetensors import SafetensorError, safe_open

from ella.adapters.sentences import Sentences
from ella.durable_files import replace_durably
from ella.errors import InputError
from ella.measurement import Measurements
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaSettings, EllaShaper, EllaState, EpisodeLedger
from ella.shaping.free_text_relevance import FreeTextRelevance
from ella.shaping.relevance import RelevanceSettings
from ella.shaping.termination import ToldTermination
from ella.trajectory import InstructionTable, Trajectory

Judge = Callable[[Any], np.ndarray]
"""Observations of B environments, as the environments return them, to bool[B, L]: which of the L
low-level instructions each observation shows carried out."""
FORMAT_VERSION = 1


class HostElla:
    """Bonuses for low-level instructions that turn out to matter, one step of B environments at a
    time. Wrappers for Gymnasium and Stable-Baselines3 call it; a trainer of your own can too.

    Args:
        low_level: The L low-level instructions, in words.
        judge: Says which of them an observation shows carried out.
        settings: The bonus, in units of the reward as the learner gets it, and the learner's
            discount; `last_state` where the last action of a solution may carry out a low-level
            instruction (which the default allows for).
        relevance: The relevance classifier; its `update_every` is not used.
        update_every: Steps, of all environments together, between updates of the classifier.
        max_instructions: The most high-level instructions there may be.
        max_words: The most words an instruction may have.
        vocabulary: Two more than the most different words there may be.
        seed: Of the classifier.
    """

    def __init__(
        self,
        low_level: Sequence[str],
        judge: Judge,
        *,
        settings: EllaSettings | None = None,
        relevance: RelevanceSettings | None = None,
        update_every: int = 128_000,
        max_instructions: int = 4096,
        max_words: int = 16,
        vocabulary: int = 256,
        seed: int = 0,
    ) -> None:
        if isinstance(low_level, str) or not low_level:
            raise InputError("low_level must be a list of at least one instruction")
        if update_every < 1:
            raise InputError(f"update_every must be positive, not {update_every}")
        self.low_level = tuple(low_level)
        self.update_every = update_every
        self._judge = judge
        self._sentences = Sentences(max_instructions, max_words, vocabulary)
        low_tokens = self._sentences.encoded(self.low_level)
        if len(np.unique(low_tokens, axis=0)) < len(self.low_level):
            raise InputError("two low-level instructions have the same words")
        self._relevance = FreeTextRelevance(
            settings=replace(relevance or RelevanceSettings(), update_every=1),
            vocabulary=vocabulary,
            num_low_level=len(self.low_level),
            low_tokens=jnp.asarray(low_tokens),
            sentences=jnp.asarray(self._sentences.tokens),
            num_sentences=jnp.zeros((), jnp.int32),
        )
        self._shaper = EllaShaper(
            termination=ToldTermination(),
            relevance=self._relevance,
            settings=settings or EllaSettings(last_state=True),
            num_ids=max_instructions,
        )
        start_key, self._key = jax.random.split(jax.random.key(seed))
        self._state: EllaState = eqx.filter_jit(self._shaper.init)(0, key=start_key)
        self._owner: object = None
        self._steps = 0
        self._updates = 0
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
        idle: np.ndarray | None = None,
        last_observations: Any = None,
        owner: object = None,
    ) -> np.ndarray:
        """The bonus float32[B] of one step of every environment.

        Args:
            observations: Those before the action.
            missions: The B high-level instructions they were given with.
            first: bool[B], whether the observation is its episode's first.
            success: bool[B], whether the action ended the episode with the task solved.
            done: bool[B], whether it ended the episode at all.
            idle: bool[B], environments that only reset in this step; they get 0.
            last_observations: Those after the action and before any reset. Needed where `success`
                holds, if the settings have `last_state`.
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
        judged = self._judged(observations, count)
        idle = np.zeros(count, bool) if idle is None else np.asarray(idle, bool)
        first = np.asarray(first, bool) | idle
        success, done = np.asarray(success, bool) & ~idle, np.asarray(done, bool) & ~idle
        known = len(self._sentences)
        ids = np.array([self._sentences.id_of(text) for text in missions], np.int32)
        if self._updates and len(self._sentences) > known:
            self._state = _meet(self._relevance, self._state, ids, self._sentences.tokens[ids])
        shown = np.zeros_like(judged)
        if self._shaper.settings.last_state and success.any():
            if last_observations is None:
                raise InputError("with last_state, a success needs last_observations")
            shown = self._judged(last_observations, count)
        self._state, bonus, measured = _shape(
            self._shaper, self._state, judged & ~idle[:, None], shown, ids, first, success, done
        )
        self._add(jax.device_get(measured))
        before = self._steps
        self._steps += int(count - idle.sum())
        if before // self.update_every != self._steps // self.update_every:
            self._learn()
        return np.array(bonus)

    def relevance(self, instruction: str) -> dict[str, float]:
        """The probability that each low-level instruction matters for a high-level one, the
        highest first; above one half it is paid for. All are 1 before the first update, and as
        long as the instruction has words that have not been learned from."""
        tokens = jnp.asarray(self._sentences.asked(instruction))[None]
        chances = self._relevance.probability_of(self._state.relevance, tokens)[0]
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
        `decomposition_size` and `instructions_seen`; those without a case are left out."""
        means = {
            name: float(total / count) for name, (total, count) in self._sums.items() if count > 0
        }
        # What was counted before its episode has ended counts later.
        self._sums = {name: pair for name, pair in self._sums.items() if pair[1] == 0}
        return means

    def save(self, path: Path | str) -> None:
        """Write everything learned to one safetensors file."""
        table = {
            "format_version": FORMAT_VERSION,
            "low_level": self.low_level,
            "words": self._sentences.words,
            "instructions": self._sentences.texts,
            "steps": self._steps,
            "updates": self._updates,
        }
        content = safetensors.numpy.save(
            {name: np.asarray(leaf) for name, leaf in _named(self._lasting()).items()},
            metadata={"ella": json.dumps(table)},
        )
        try:
            replace_durably(Path(path), content)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error

    def load(self, path: Path | str) -> None:
        """Take what another one with the same low-level instructions and sizes has saved. Its
        episodes are not among it: call `start` (wrappers do when they are reset)."""
        try:
            with safe_open(str(path), framework="numpy") as file:
                table = json.loads((file.metadata() or {})["ella"])
                arrays = {name: file.get_tensor(name) for name in list(file.keys())}
            version, low_level = table["format_version"], tuple(table["low_level"])
            words, instructions = map(str, table["words"]), map(str, table["instructions"])
            steps, updates = int(table["steps"]), int(table["updates"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a file that HostElla.save wrote ({error})") from error
        if version != FORMAT_VERSION:
            raise InputError(
                f"{path} has format version {version}, this program reads version {FORMAT_VERSION}"
            )
        if low_level != self.low_level:
            raise InputError(f"{path} was saved with other low-level instructions")
        expected = _named(self._lasting())
        if {name: array.shape for name, array in arrays.items()} != {
            name: leaf.shape for name, leaf in expected.items()
        }:
            raise InputError(
                f"{path} was saved with other sizes (max_instructions, max_words, vocabulary or "
                "the relevance network)"
            )
        capacity, max_words = self._sentences.tokens.shape
        sentences = Sentences(capacity, max_words, self._relevance.vocabulary)
        sentences.restore(list(words), list(instructions))
        self._sentences = sentences
        leaves = [jnp.asarray(arrays[name]) for name in expected]
        lasting = jax.tree.unflatten(jax.tree.structure(self._lasting()), leaves)
        self._state = replace(
            self._state,
            steps=lasting["steps"],
            dataset=lasting["dataset"],
            relevance=lasting["relevance"],
        )
        self._key = jax.random.wrap_key_data(lasting["key"])
        self._steps, self._updates = steps, updates

    def _judged(self, observations: Any, count: int) -> np.ndarray:
        judged = np.asarray(self._judge(observations))
        if judged.shape != (count, len(self.low_level)) or judged.dtype != bool:
            raise InputError(
                f"the judge must answer bool[{count}, {len(self.low_level)}], one column for each "
                f"low-level instruction, not {judged.dtype}{list(judged.shape)}"
            )
        return judged

    def _lasting(self) -> dict[str, PyTree]:
        """What outlives episodes."""
        state = self._state
        return {
            "steps": state.steps,
            "dataset": state.dataset,
            "relevance": state.relevance,
            "key": jax.random.key_data(self._key),
        }

    def _learn(self) -> None:
        self._key, key = jax.random.split(self._key)
        # Of the same shapes, so nothing is compiled again.
        self._relevance = replace(
            self._relevance,
            sentences=jnp.asarray(self._sentences.tokens),
            num_sentences=jnp.asarray(len(self._sentences), jnp.int32),
        )
        self._state = _learn(self._relevance, self._state, key)
        self._updates += 1

    def _add(self, measured: Measurements) -> None:
        for name, mean in measured.items():
            pair = np.array([mean.total, mean.count], np.float64)
            self._sums[name] = self._sums.get(name, 0) + pair


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
) -> tuple[EllaState, Float[Array, " B"], Measurements]:
    """One step. ELLA looks at judgements, first steps and successes only."""
    solved, ended = jnp.asarray(success), jnp.asarray(done)
    not_looked_at = jnp.zeros((1, ids.size), jnp.int32)
    trajectory = Trajectory(
        image=jnp.asarray(judged)[None],
        direction=not_looked_at,
        first=jnp.asarray(first)[None],
        instruction_row=jnp.arange(ids.size, dtype=jnp.int32)[None],
        action=not_looked_at,
        reward=solved[None].astype(jnp.float32),
        terminated=solved[None],
        truncated=(ended & ~solved)[None],
        next_image=jnp.asarray(judged_after)[None],
        instructions=InstructionTable(ids=jnp.asarray(ids), tokens=not_looked_at.T),
    )
    state, bonus, measurements = shaper.shape(state, trajectory)
    return state, bonus[0], measurements


@eqx.filter_jit
def _meet(
    relevance: FreeTextRelevance,
    state: EllaState,
    ids: Int32[np.ndarray, " B"],
    tokens: Int32[np.ndarray, "B n"],
) -> EllaState:
    instructions = InstructionTable(ids=jnp.asarray(ids), tokens=jnp.asarray(tokens))
    met = relevance.meet(state.relevance, instructions)
    return replace(state, relevance=met)


@eqx.filter_jit
def _learn(relevance: FreeTextRelevance, state: EllaState, key: PRNGKeyArray) -> EllaState:
    learned, _ = relevance.fit(state.relevance, state.dataset, jnp.zeros((), jnp.int32), key=key)
    return replace(state, relevance=learned)


def _named(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
