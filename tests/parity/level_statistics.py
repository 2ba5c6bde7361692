"""Two-sample tests between levels made by minigrid and levels made here."""

import contextlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from minigrid_reference import reference_environment
from scipy import stats

from ella.world import levels
from ella.world.encoding import DIRECTION_VECTORS, DOOR, KEY, decode_cells
from ella.world.state import PUT_NEXT
from ella.world.tasks import TaskSpec

MIN_EXPECTED = 5
"""Categories expected less often than this in the smaller sample are put together."""


@dataclass(frozen=True)
class Levels:
    """A sample of initial levels, and how many attempts it took to get them."""

    spec: TaskSpec
    grids: np.ndarray
    """uint8[N, W, H, 3] in minigrid's encoding, without the agent."""
    agent_pos: np.ndarray
    agent_dir: np.ndarray
    instruction_ids: np.ndarray
    max_steps: np.ndarray
    attempts: int

    def __len__(self) -> int:
        return len(self.grids)

    @property
    def types(self) -> np.ndarray:
        return self.grids[..., 0]

    @cached_property
    def is_object(self) -> np.ndarray:
        """bool[N, W, H]: a key, ball or box."""
        return self.types >= KEY

    @cached_property
    def is_door(self) -> np.ndarray:
        return self.types == DOOR

    @cached_property
    def classes(self) -> np.ndarray:
        """int[N, W, H]: 6 * type + colour of doors and objects, else -1."""
        code = 6 * self.grids[..., 0].astype(int) + self.grids[..., 1]
        return np.where(self.is_object | self.is_door, code, -1)

    @cached_property
    def class_counts(self) -> np.ndarray:
        """int[N, 24]: how many objects of each class there are, doors first."""
        values = range(6 * DOOR, 6 * DOOR + 24)
        return np.stack([(self.classes == value).sum((1, 2)) for value in values], axis=1)

    @cached_property
    def instruction(self) -> Any:
        return jax.device_get(jax.jit(self.spec.language.decode)(self.instruction_ids))

    @cached_property
    def rooms(self) -> np.ndarray:
        """int[N, R]: objects per room."""
        step = self.spec.room_size - 1
        parts = [
            self.is_object[:, i * step : (i + 1) * step, j * step : (j + 1) * step].sum((1, 2))
            for j in range(self.spec.rows)
            for i in range(self.spec.cols)
        ]
        return np.stack(parts, axis=1)

    @cached_property
    def agent_room(self) -> np.ndarray:
        i, j = (self.agent_pos // (self.spec.room_size - 1)).T
        return j * self.spec.cols + i


def minigrid_levels(spec: TaskSpec, count: int, seed: int) -> Levels:
    """`count` levels of minigrid's; its printed lines tell the attempts it threw away."""
    env = reference_environment(spec)
    rows = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        env.reset(seed=seed)
        printed.truncate(0)
        printed.seek(0)
        for _ in range(count):
            env.reset()
            rows.append(
                (env.grid.encode(), env.agent_pos, env.agent_dir, env.mission, env.max_steps)
            )
    grids, positions, directions, missions, horizons = zip(*rows, strict=True)
    ids = {text: spec.language.find(text) for text in set(missions)}
    return Levels(
        spec,
        np.stack(grids),
        np.array(positions),
        np.array(directions),
        np.array([ids[text] for text in missions], np.int32),
        np.array(horizons),
        attempts=count + printed.getvalue().count("\n"),
    )


def ella_levels(spec: TaskSpec, attempts: int, seed: int) -> Levels:
    """The accepted ones among `attempts` attempts made here."""
    keys = jax.random.split(jax.random.key(seed), attempts)
    state, accepted = jax.jit(jax.vmap(partial(levels.attempt, spec)))(keys)
    accepted = np.asarray(accepted)
    return Levels(
        spec,
        np.asarray(jax.jit(decode_cells)(state.cells))[accepted],
        np.asarray(state.agent_pos)[accepted],
        np.asarray(state.agent_dir)[accepted],
        np.asarray(state.instruction_id)[accepted],
        np.asarray(state.max_steps)[accepted],
        attempts,
    )


def category_features(sample: Levels) -> Iterator[tuple[str, np.ndarray]]:
    """(name, int[N]) per level: features compared by a chi-square test."""
    spec, instruction = sample.spec, sample.instruction
    row = np.arange(len(sample))
    x, y = sample.agent_pos.T
    yield "agent cell", x * spec.height + y
    yield "agent direction", sample.agent_dir
    fx, fy = (sample.agent_pos + DIRECTION_VECTORS[sample.agent_dir]).T
    yield "agent room and type before it", 16 * sample.agent_room + sample.types[row, fx, fy]
    yield "objects in the agent's room", sample.rooms[row, sample.agent_room]
    yield "objects in the first room", sample.rooms[:, 0]
    yield "distinct classes", (sample.class_counts[:, 6:] > 0).sum(1)
    yield "most of one class", sample.class_counts[:, 6:].max(1)
    yield "adjacent objects", _adjacent_pairs(sample.is_object)
    yield "horizon", sample.max_steps

    yield (
        "form and kinds",
        (instruction.form * 5 + instruction.kinds[:, 0]) * 5 + (instruction.kinds[:, 1]),
    )
    yield "articles", instruction.articles.reshape(-1, 4) @ (1, 2, 4, 8)
    for clause in range(2):
        for place in range(2):
            named = instruction.objects[:, clause, place].astype(int)
            yield f"class {place} of clause {clause}", named
            code = _class_of(named)
            multiplicity = (sample.classes == code[:, None, None]).sum((1, 2))
            yield f"matches of class {place} of clause {clause}", multiplicity
            nearest = _nearest(sample, code)
            yield f"distance to class {place} of clause {clause}", nearest
    yield "instruction, coarsely", sample.instruction_ids * 48 // spec.language.num_ids
    yield "instruction modulo 37", sample.instruction_ids % 37
    is_put = instruction.kinds[:, 0] == PUT_NEXT
    yield "put type next to type", np.where(is_put, instruction.objects[:, 0] % 16 @ (1, 16), 0)
    yield "put next to what it touches", is_put & _touching(sample, instruction.objects[:, 0])

    if spec.num_doors > 0:
        states = np.where(sample.is_door, sample.grids[..., 2], 0)
        locked = (states == 2).any((1, 2))
        yield "doors", sample.is_door.sum((1, 2)) * 2 + locked
        one = np.argmax(states.reshape(len(sample), -1) * sample.is_door.reshape(row.size, -1), 1)
        yield "place of the locked, else the first door", one * 2 + locked
        yield (
            "first door's colour",
            sample.grids[..., 1].reshape(row.size, -1)[row, one] * 2 + (locked),
        )
        yield "agent room under a lock", sample.agent_room * 2 + locked


def vector_features(sample: Levels) -> Iterator[tuple[str, np.ndarray]]:
    """(name, [N, D]) per level: features whose means are compared by Hotelling's test."""
    yield "cells of objects", sample.is_object.reshape(len(sample), -1)
    yield "cells of keys", (sample.types == KEY).reshape(len(sample), -1)
    yield "objects per class", sample.class_counts
    yield "objects per room", sample.rooms
    step = sample.spec.room_size - 1
    walls = [sample.is_door[:, k].sum(1) for k in range(0, sample.spec.width, step)]
    walls += [sample.is_door[:, :, k].sum(1) for k in range(0, sample.spec.height, step)]
    yield "doors per wall line", np.stack(walls, axis=1)
    if sample.spec.num_doors > 0:
        yield "cells of doors", sample.is_door.reshape(len(sample), -1)
        closed = sample.is_door & (sample.grids[..., 2] == 1)
        yield "cells of closed doors", closed.reshape(len(sample), -1)


def compare(first: Levels, second: Levels) -> dict[str, float]:
    """p-values under the hypothesis that both samples come from one distribution."""
    found = {"acceptance": _chi_square_counts(_acceptance(first), _acceptance(second))}
    for (name, a), (_, b) in _pairs(category_features(first), category_features(second)):
        found[name] = chi_square(a, b)
    for (name, a), (_, b) in _pairs(vector_features(first), vector_features(second)):
        found[name] = hotelling(a, b)
    return found


def chi_square(first: np.ndarray, second: np.ndarray) -> float:
    """Homogeneity of two categorical samples; rare categories are put together."""
    values, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts = [
        np.bincount(part, minlength=len(values))
        for part in (codes[: len(first)], codes[len(first) :])
    ]
    smaller = min(len(first), len(second)) / (len(first) + len(second))
    rare = (counts[0] + counts[1]) * smaller < MIN_EXPECTED
    counts = [np.append(part[~rare], part[rare].sum()) for part in counts]
    return _chi_square_counts(*counts)


def hotelling(first: np.ndarray, second: np.ndarray) -> float:
    """Equality of two samples' mean vectors, by Hotelling's two-sample test.

    The parts of one level's vector depend on each other (objects exclude one another), which the
    pooled covariance accounts for.
    """
    first, second = first.astype(float), second.astype(float)
    n, m = len(first), len(second)
    centred = [part - part.mean(0) for part in (first, second)]
    covariance = sum(part.T @ part for part in centred) / (n + m - 2)
    scale, axes = np.linalg.eigh(covariance)
    kept = scale > 1e-9 * max(scale.max(), 1e-9)
    difference = axes.T @ (first.mean(0) - second.mean(0))
    if np.abs(difference[~kept]).max(initial=0.0) > 1e-6:
        return 0.0
    rank = int(kept.sum())
    if rank == 0:
        return 1.0
    t_squared = n * m / (n + m) * (difference[kept] ** 2 / scale[kept]).sum()
    statistic = t_squared * (n + m - rank - 1) / ((n + m - 2) * rank)
    return float(stats.f.sf(statistic, rank, n + m - rank - 1))


def _pairs(first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
    return zip(first, second, strict=True)


def _acceptance(sample: Levels) -> np.ndarray:
    return np.array([len(sample), sample.attempts - len(sample)])


def _chi_square_counts(first: np.ndarray, second: np.ndarray) -> float:
    table = np.stack([first, second])
    table = table[:, table.sum(0) > 0]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def _adjacent_pairs(occupied: np.ndarray) -> np.ndarray:
    across = (occupied[:, 1:] & occupied[:, :-1]).sum((1, 2))
    return across + (occupied[:, :, 1:] & occupied[:, :, :-1]).sum((1, 2))


def _class_of(cell: np.ndarray) -> np.ndarray:
    return 6 * (cell & 15) + (cell >> 4)


def _touching(sample: Levels, pair: np.ndarray) -> np.ndarray:
    """bool[N]: whether objects of the two classes pair[N, 2] lie next to each other."""
    codes = _class_of(pair.astype(int))[..., None, None]
    a, b = sample.classes == codes[:, 0], sample.classes == codes[:, 1]
    across = (a[:, 1:] & b[:, :-1]) | (b[:, 1:] & a[:, :-1])
    along = (a[:, :, 1:] & b[:, :, :-1]) | (b[:, :, 1:] & a[:, :, :-1])
    return across.any((1, 2)) | along.any((1, 2))


def _nearest(sample: Levels, code: np.ndarray) -> np.ndarray:
    """Manhattan distance from the agent to the nearest object of a class; -1 where none."""
    cells = np.indices(sample.types.shape[1:]).transpose(1, 2, 0)
    distance = np.abs(cells - sample.agent_pos[:, None, None]).sum(-1)
    far = np.iinfo(distance.dtype).max
    nearest = np.where(sample.classes == code[:, None, None], distance, far).min((1, 2))
    return np.where(nearest == far, -1, nearest)
