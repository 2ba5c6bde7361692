"""D, the online table of decompositions: which low-level instructions every success shared.

One row of bits per high-level instruction id; a row of zeros has not been seen. A success whose
episode completed the low-level instructions S updates its row R to R & S, or to S where the row
is unseen or the intersection is empty; a success that completed none changes nothing.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, PRNGKeyArray, UInt32

WORD = 32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelevanceDataset:
    """The table of one seed."""

    members: UInt32[Array, "num_ids words"]
    """Bit l of word w of a row: low-level instruction 32 w + l is in the decomposition."""
    num_seen: Int32[Array, ""]
    """Rows that are not zero."""
    num_members: Int32[Array, ""]
    """Bits set in the whole table."""


def empty(num_ids: int, num_low_level: int) -> RelevanceDataset:
    """A table in which nothing has been seen."""
    words = -(-num_low_level // WORD)
    return RelevanceDataset(
        members=jnp.zeros((num_ids, words), jnp.uint32),
        num_seen=jnp.zeros((), jnp.int32),
        num_members=jnp.zeros((), jnp.int32),
    )


def pack(bits: Bool[Array, "*batch L"]) -> UInt32[Array, "*batch words"]:
    """Booleans to words of bits."""
    length = bits.shape[-1]
    words = -(-length // WORD)
    padding = [(0, 0)] * (bits.ndim - 1) + [(0, words * WORD - length)]
    padded = jnp.pad(bits, padding).reshape(*bits.shape[:-1], words, WORD)
    values = padded.astype(jnp.uint32) << jnp.arange(WORD, dtype=jnp.uint32)
    return values.sum(-1, dtype=jnp.uint32)


def unpack(words: UInt32[Array, "*batch words"], length: int) -> Bool[Array, "*batch L"]:
    """Words of bits to booleans."""
    bits = words[..., None] >> jnp.arange(WORD, dtype=jnp.uint32) & 1
    return bits.reshape(*words.shape[:-1], words.shape[-1] * WORD)[..., :length].astype(bool)


def decompositions(
    dataset: RelevanceDataset, ids: Int32[Array, "*batch"], num_low_level: int
) -> Bool[Array, "*batch L"]:
    """The rows of some instructions; all False where one has not been seen."""
    return unpack(dataset.members[ids], num_low_level)


def is_seen(dataset: RelevanceDataset, ids: Int32[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether the table holds some instructions."""
    return (dataset.members[ids] != 0).any(-1)


def record(
    dataset: RelevanceDataset,
    ids: Int32[Array, "*batch"],
    found: Bool[Array, "*batch L"],
    success: Bool[Array, "*batch"],
) -> RelevanceDataset:
    """Update with every success, one after the other in the arrays' own (row-major) order: time
    first and environments second for arrays [T, B].

    Where a row and all its successes share something, no intersection on the way is empty and the
    order does not matter. Only the other rows are gone through success by success; different
    instructions do not meet, so the k-th success of each is taken in the same round. The table
    itself is read once and written once, in place where its buffer may be reused.
    """
    num_ids = dataset.members.shape[0]
    found = found.reshape(-1, found.shape[-1])
    sets = pack(found)
    counts = success.reshape(-1) & (sets != 0).any(-1)
    keys = jnp.where(counts, ids.reshape(-1), num_ids)
    order = jnp.argsort(keys, stable=True)
    keys, sets, counts = keys[order], sets[order], counts[order]

    # A run of equal keys is one instruction's successes; its first position stands for its row.
    position = jnp.arange(keys.size, dtype=jnp.int32)
    starts = jnp.concatenate([jnp.ones(1, bool), keys[1:] != keys[:-1]])
    start = jax.lax.cummax(jnp.where(starts, position, 0))
    is_row = starts & counts
    length = jnp.zeros_like(position).at[start].add(1)
    times = jnp.zeros(found.shape, jnp.int32).at[start].add(found[order].astype(jnp.int32))
    in_all = pack(times == length[:, None])

    before = dataset.members[jnp.where(is_row, keys, 0)]
    is_new = is_row & (before == 0).all(-1)
    shared_by_all = jnp.where(is_new[:, None], in_all, in_all & before)
    in_turn = is_row & (shared_by_all == 0).all(-1)
    rounds = jnp.max(jnp.where(in_turn, length, 0))

    def take_round(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        index, rows = carry
        at = jnp.minimum(position + index, keys.size - 1)
        applies = in_turn & (index < length)
        latest = sets[at]
        shared = rows & latest
        updated = jnp.where((shared != 0).any(-1, keepdims=True), shared, latest)
        return index + 1, jnp.where(applies[:, None], updated, rows)

    rows = jnp.where(in_turn[:, None], before, shared_by_all)
    _, after = jax.lax.while_loop(
        lambda carry: carry[0] < rounds, take_round, (jnp.zeros((), jnp.int32), rows)
    )
    written = jnp.where(is_row, keys, num_ids)
    grown = jnp.where(is_row[:, None], _popcount(after) - _popcount(before), 0).sum()
    return RelevanceDataset(
        members=dataset.members.at[written].set(after, mode="drop"),
        num_seen=dataset.num_seen + is_new.sum(dtype=jnp.int32),
        num_members=dataset.num_members + grown.astype(jnp.int32),
    )


def forget(dataset: RelevanceDataset, ids: Int32[Array, " n"]) -> RelevanceDataset:
    """The table without the rows of some instructions, each given once; ids beyond the table are
    passed over."""
    rows = dataset.members.at[ids].get(mode="fill", fill_value=0)
    return RelevanceDataset(
        members=dataset.members.at[ids].set(jnp.zeros((), jnp.uint32), mode="drop"),
        num_seen=dataset.num_seen - (rows != 0).any(-1).sum(dtype=jnp.int32),
        num_members=dataset.num_members - _popcount(rows).sum(dtype=jnp.int32),
    )


def sample_seen(
    dataset: RelevanceDataset, capacity: int, *, key: PRNGKeyArray
) -> tuple[Int32[Array, " capacity"], Bool[Array, " capacity"]]:
    """Up to `capacity` seen instructions: all of them where they fit, otherwise one drawn from
    each of `capacity` equal shares of the table. Returns ids and which entries are in use."""
    seen_so_far = jnp.cumsum((dataset.members != 0).any(-1), dtype=jnp.int32)
    used = jnp.minimum(dataset.num_seen, capacity)
    index = jnp.arange(capacity)
    drawn = index.astype(jnp.float32) + jax.random.uniform(key, (capacity,))
    share = dataset.num_seen / jnp.maximum(used, 1)
    ranks = jnp.where(
        dataset.num_seen <= capacity, index, jnp.floor(drawn * share).astype(jnp.int32)
    )
    ranks = jnp.clip(ranks, 0, jnp.maximum(dataset.num_seen - 1, 0))
    ids = jnp.searchsorted(seen_so_far, ranks + 1)
    return jnp.minimum(ids, dataset.members.shape[0] - 1).astype(jnp.int32), index < used


def _popcount(words: UInt32[Array, "n words"]) -> Int32[Array, "n words"]:
    return jax.lax.population_count(words).astype(jnp.int32)
