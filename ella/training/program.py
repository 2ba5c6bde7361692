"""Training as one compiled program: many iterations of many seeds on one or more devices."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PRNGKeyArray, PyTree

from ella.compilation import jit_for_one_call, training_options
from ella.garbage_collection import rarely_collected
from ella.measurement import Measurements
from ella.random_streams import Stream, stream_key

SEED_AXIS = "seed"

Initialise = Callable[[PyTree, PRNGKeyArray], PyTree]
"""One seed's train state of its shaper and its key."""
States = tuple[PyTree, ...]
"""Train states, one PyTree per group of seeds; every array has the seed axis first."""
ShapesOf = Callable[[PyTree], PyTree]
"""What `Initialise` makes of a shaper, as shapes."""
Numbers = Mapping[str, np.ndarray]
"""Numeric fields of a group's shaper that differ from seed to seed: per name [seeds]."""
Iterate = Callable[..., tuple[States, tuple[Measurements, ...]]]
"""(shapers, train states, iteration, numbers) to the next train states and their measurements."""


def seed_mesh(group_sizes: Sequence[int], devices: list[jax.Device]) -> Mesh:
    """As many of the devices as divide the seeds of every group evenly, in a row."""
    seeds = math.gcd(*group_sizes)
    count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
    return Mesh(np.array(devices[:count]), (SEED_AXIS,))


class SeedProgram:
    """The compiled training of groups of seeds, one shaper per group. Each device holds whole
    seeds of every group, so devices never wait for one another. Seeds of a group may differ in
    numeric fields of their shaper: a sweep over lambda is one group."""

    def __init__(
        self,
        initialise: Initialise,
        iterate: Iterate,
        shapers: Sequence[PyTree],
        seeds: Sequence[Sequence[int]],
        mesh: Mesh,
        numbers: Sequence[Numbers] | None = None,
        shapes_of: ShapesOf | None = None,
    ) -> None:
        """`shapes_of` is for an initialisation that takes long to trace: its shapes are all that
        the loop needs of it."""
        self.mesh = mesh
        self._initialise, self._iterate = initialise, iterate
        self._shapes_of = shapes_of or self._traced_shapes
        self.set_shapers(shapers)
        self._seeds = self.place(tuple(np.asarray(group, np.uint32) for group in seeds))
        self._numbers = self.place(tuple(dict(one) for one in numbers or [{} for _ in shapers]))
        self._start = jit_for_one_call(self._sharded_start())
        self._advance = jax.jit(self._sharded_advance(), donate_argnums=(2,))
        self._lowered: Any = None
        self._compiling_start: Future[Any] | None = None
        self._compiling: Future[Any] | None = None

    def set_shapers(self, shapers: Sequence[PyTree]) -> None:
        """Train with these shapers from now on. A program that is prepared takes only those that
        differ from its own in the values of arrays."""
        arrays, self._shaper_static = eqx.partition(tuple(shapers), eqx.is_array)
        # Weights read from a file are strongly typed, those of a new network need not be: without
        # this a resumed run would be another program, compiled anew.
        arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), arrays)
        self._shaper_arrays = jax.device_put(arrays, self._shared)

    def prepare(self) -> tuple[tuple[str, ...], ...]:
        """Trace the loop, unless that is done; the names of the measurements of every group."""
        if self._lowered is None:
            with rarely_collected():
                self._lowered = self._advance.lower(
                    self._shaper_arrays, self._numbers, self.shapes, *self._counters(0, 1)
                )
        _, measured = self._lowered.out_info
        return tuple(tuple(group) for group in measured)

    @cached_property
    def shapes(self) -> States:
        """Shapes and dtypes of the train states."""

        def of_seeds(count: int, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            shape = (count, *leaf.shape)
            return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=self._per_seed)

        return tuple(
            jax.tree.map(partial(of_seeds, seeds.size), self._shapes_of(shaper))
            for shaper, seeds in zip(self.shapers, self._seeds, strict=True)
        )

    def _traced_shapes(self, shaper: PyTree) -> PyTree:
        return jax.eval_shape(lambda: self._initialise(shaper, training_key(jnp.uint32(0))))

    def compile_in_background(self) -> None:
        """Compile the initialisation and the loop of the prepared program at the same time, in
        threads; whoever needs one of them first waits for it."""
        threads = ThreadPoolExecutor(2, "compilation")
        self._compiling = threads.submit(self._compiled)
        self._compiling_start = threads.submit(self._compiled_start)
        threads.shutdown(wait=False)

    def compile_in_turn(self) -> None:
        """Compile the loop of the prepared program and then its initialisation, unless they are
        compiled in the background. The initialisation is traced while the loop compiles, but not
        compiled: kernels are chosen by timing them, which that would disturb."""
        if self._compiling_start is not None:
            return
        thread = ThreadPoolExecutor(1, "compilation")
        if self._compiling is None:
            self._compiling = thread.submit(self._compiled)
        thread.shutdown(wait=False)
        lowered = self._lowered_start()
        self._compiling.result()
        self._compiling_start = _done(lowered.compile())

    @property
    def is_compiled(self) -> bool:
        """Whether the training loop is compiled."""
        return self._compiling is not None and self._compiling.done()

    def compile(self) -> None:
        """Compile the training loop of the prepared program, or wait until that is done."""
        if self._compiling is None:
            self._compiling = _done(self._compiled())
        self._compiling.result()

    def _compiled(self) -> jax.stages.Compiled:
        options = training_options([group.size for group in self._seeds])
        return self._lowered.compile(compiler_options=options)

    def _compiled_start(self) -> jax.stages.Compiled:
        return self._lowered_start().compile()

    def _lowered_start(self) -> jax.stages.Lowered:
        return self._start.lower(self._shaper_arrays, self._seeds)

    @property
    def memory_bytes(self) -> int:
        """What the compiled loop takes of each device: its arguments and results, and what it works
        with."""
        assert self._compiling is not None
        found = self._compiling.result().memory_analysis()
        passed = found.argument_size_in_bytes + found.output_size_in_bytes
        return int(passed - found.alias_size_in_bytes + found.temp_size_in_bytes)

    def start(self) -> States:
        """Train states of every group's seeds before the first iteration."""
        if self._compiling_start is None:
            self._compiling_start = _done(self._compiled_start())
        start = self._compiling_start.result()
        return jax.block_until_ready(start(self._shaper_arrays, self._seeds))

    @property
    def shapers(self) -> tuple[PyTree, ...]:
        """The groups' shapers, their arrays on every device."""
        return eqx.combine(self._shaper_arrays, self._shaper_static)

    def place(self, states: States) -> States:
        """Host arrays on the devices."""
        return jax.tree.map(partial(_placed, self._per_seed), states)

    def advance(
        self, states: States, iteration: int, count: int
    ) -> tuple[States, tuple[Measurements, ...]]:
        """`count` iterations in one call, the first of them numbered `iteration`. `states` is given
        up; the measurements are sums over the iterations, with the seed axis."""
        self.compile()
        assert self._compiling is not None
        return self._compiling.result()(
            self._shaper_arrays, self._numbers, states, *self._counters(iteration, count)
        )

    @property
    def _per_seed(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(SEED_AXIS))

    @property
    def _shared(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def _counters(self, iteration: int, count: int) -> tuple[jax.Array, jax.Array]:
        return (
            jax.device_put(jnp.asarray(iteration, jnp.int32), self._shared),
            jax.device_put(jnp.asarray(count, jnp.int32), self._shared),
        )

    def _sharded_start(self) -> Callable[..., States]:
        def start(shaper_arrays: PyTree, seeds: tuple[jax.Array, ...]) -> States:
            shapers = eqx.combine(shaper_arrays, self._shaper_static)
            keys = [jax.vmap(training_key)(group) for group in seeds]
            return tuple(
                jax.vmap(partial(self._initialise, shaper))(group)
                for shaper, group in zip(shapers, keys, strict=True)
            )

        per_seed, shared = PartitionSpec(SEED_AXIS), PartitionSpec()
        return jax.shard_map(
            start, mesh=self.mesh, in_specs=(shared, per_seed), out_specs=per_seed, check_vma=False
        )

    def _sharded_advance(self) -> Callable[..., tuple[States, tuple[Measurements, ...]]]:
        def advance(
            shaper_arrays: PyTree,
            numbers: tuple[Mapping[str, jax.Array], ...],
            states: States,
            iteration: jax.Array,
            count: jax.Array,
        ) -> tuple[States, tuple[Measurements, ...]]:
            shapers = eqx.combine(shaper_arrays, self._shaper_static)
            # Compiled within the program, so that its shapes and its loop share one trace.
            iterate = jax.jit(partial(self._iterate, shapers, numbers=numbers))
            _, shapes = jax.eval_shape(iterate, states, iteration)
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

            def one(index: jax.Array, carry: PyTree) -> PyTree:
                states, sums = carry
                states, measured = iterate(states, iteration + index)
                return states, jax.tree.map(jnp.add, sums, measured)

            return jax.lax.fori_loop(0, count, one, (states, nothing))

        per_seed, shared = PartitionSpec(SEED_AXIS), PartitionSpec()
        return jax.shard_map(
            advance,
            mesh=self.mesh,
            in_specs=(shared, per_seed, per_seed, shared, shared),
            out_specs=per_seed,
            check_vma=False,
        )


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _placed(sharding: NamedSharding, leaf: Any) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        numbers = np.asarray(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(jax.device_put(numbers, sharding))
    return jax.device_put(np.asarray(leaf), sharding)


def training_key(seed: jax.Array) -> PRNGKeyArray:
    """The random stream a seed trains with."""
    return stream_key(seed, Stream.TRAINING)


def held_out_key(seed: int) -> PRNGKeyArray:
    """A random stream that nothing else of any seed draws from: levels for evaluation."""
    return stream_key(np.uint32(seed), Stream.EVALUATION)
