"""Time every custom VJP and every rearrangement against its plain version.

    python benchmarks/network_kernels.py [--in-context] [--only NAME ...] [--json FILE]

The plain version (`plain_kernels.py`) is the same program with the kernel's symbol replaced.
Alone: forward and backward (a random cotangent pulled back to parameters and inputs) at the
shapes of one gradient step of the paper's preset, all seeds under one vmap; what training does
not differentiate, forward only. In context: the symbol is replaced in a whole training iteration
(`run_iteration`: collect, shape, update); this ratio decides. The versions take turns, a time is
the median, and a ratio above 1 means that the hand-written version is faster.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from kernel_cases import KERNELS, Case, Kernel, Scale
from plain_kernels import Patch

from ella.errors import InputError, unknown_name
from ella.methods.ride import RIDE
from ella.networks.actor_critic import ActorCritic
from ella.networks.settings import NetworkSettings
from ella.ppo.iteration import TrainState, init_train_state, run_iteration
from ella.ppo.loss import Sequences
from ella.ppo.settings import MATMUL_PRECISIONS, PPOSettings
from ella.ppo.update import PolicyLearner, gradient_step, make_optimiser
from ella.shaping.ella import ella_shaper
from ella.shaping.relevance import OracleRelevance
from ella.shaping.ride import RideShaper
from ella.shaping.shaper import AbstractRewardShaper, NoShaping
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import make

TASK = "putnext-room"
LEVELS_PER_ENVIRONMENT = 4
"""Size of the pool of levels, as in the paper's preset."""
SECONDS_PER_SAMPLE = 0.01
"""A short program is called repeatedly until a sample takes about this long."""
SECONDS_PER_PROGRAM = 3.0
"""A slow program is timed less often than asked for, but at least `FEWEST_SAMPLES` times."""
FEWEST_SAMPLES = 3
TOLERANCE = {"float32": 0.01, "bfloat16": 0.1}
"""Largest |ours - plain| / |plain| (Euclidean) of any output or gradient. Float32 products may be
TF32. In bfloat16 values in a pooling window are often equal: ours gives the first one the
gradient, JAX's maximum shares it."""
GRADIENT_STEP = "gradient step"
BEGAN = time.perf_counter()


def progress(line: str) -> None:
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {line}", file=sys.stderr, flush=True)


@contextmanager
def replaced(patches: Sequence[Patch]) -> Iterator[None]:
    """With each symbol replaced wherever ella imported it."""
    before: list[Patch] = []
    for owner, name, plain in patches:
        ours = vars(owner)[name]
        holders = [owner]
        if not isinstance(owner, type):
            modules = [module for key, module in sys.modules.items() if key.startswith("ella.")]
            holders = [module for module in modules if vars(module).get(name) is ours]
        for holder in holders:
            before.append((holder, name, ours))
            setattr(holder, name, plain)
    try:
        yield
    finally:
        for holder, name, ours in before:
            setattr(holder, name, ours)


class Programs:
    """Traced one after the other, compiled side by side."""

    def __init__(self, precision: str):
        self._precision = precision
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._compiling: dict[str, Future] = {}
        self._texts: dict[str, str] = {}

    def add(
        self,
        name: str,
        function: Callable,
        arguments: Sequence[PyTree],
        patches: Sequence[Patch] = (),
        unlike: str | None = None,
    ) -> None:
        """Trace `function` under `patches`, which must make it differ from program `unlike`."""
        progress(f"tracing {name}")
        with replaced(patches), jax.default_matmul_precision(self._precision):
            lowered = jax.jit(lambda *a: function(*a)).lower(*arguments)
        self._texts[name] = lowered.as_text()
        if unlike is not None and self._texts[name] == self._texts[unlike]:
            raise RuntimeError(f"{name}: replacing the symbol changes nothing")
        self._compiling[name] = self._pool.submit(lowered.compile)

    def compiled(self) -> dict[str, Callable]:
        done: dict[str, Callable] = {}
        for name, future in self._compiling.items():
            done[name] = future.result()
            progress(f"compiled {name} ({len(done)} of {len(self._compiling)})")
        return done


def pulled_back(scale: Scale, case: Case) -> tuple[Callable, tuple[PyTree, ...]]:
    """Forward and backward of a case for all seeds, and its arguments."""

    def forward(learned: tuple, data: tuple, shared: tuple) -> PyTree:
        return case.call(*learned, *data, *shared)

    def both(learned: tuple, data: tuple, shared: tuple, cotangent: PyTree) -> PyTree:
        outputs, back = jax.vjp(lambda *parts: forward(parts, data, shared), *learned)
        return outputs, back(cotangent)

    arguments = (case.learned, case.data, case.shared)
    all_seeds = jax.vmap(forward, in_axes=(0, 0, None))
    if not case.learned:
        return all_seeds, arguments
    cotangent = jax.tree.map(
        lambda leaf: scale.normal(*leaf.shape[1:], dtype=leaf.dtype),
        jax.eval_shape(all_seeds, *arguments),
    )
    return jax.vmap(both, in_axes=(0, 0, None, 0)), (*arguments, cotangent)


def seconds_per_call(program: Callable, arguments: Sequence[PyTree], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        outputs = program(*arguments)
    jax.block_until_ready(outputs)
    return (time.perf_counter() - began) / calls


def medians(
    programs: dict[str, tuple[Callable, Sequence[PyTree]]], repeats: int
) -> dict[str, float]:
    """Milliseconds of every program. They take turns, so a ratio is not one of two moments."""
    calls, samples = {}, {}
    for name, (program, arguments) in programs.items():
        jax.block_until_ready(program(*arguments))
        once = seconds_per_call(program, arguments, 1)
        calls[name] = max(1, round(SECONDS_PER_SAMPLE / once))
        affordable = round(SECONDS_PER_PROGRAM / max(once, SECONDS_PER_SAMPLE))
        samples[name] = min(repeats, max(FEWEST_SAMPLES, affordable))
    spent: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in range(repeats):
        for name, (program, arguments) in programs.items():
            if repeat < samples[name]:
                spent[name].append(seconds_per_call(program, arguments, calls[name]))
    return {name: 1000 * statistics.median(times) for name, times in spent.items()}


def difference(ours: PyTree, plain: PyTree) -> float:
    """The largest relative distance of two corresponding arrays, for the last seed."""

    def distance(one: Array, other: Array) -> float:
        a, b = (np.asarray(leaf)[-1].astype(np.float64) for leaf in (one, other))
        return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(distance, ours, plain)))


def gradient_step_case(s: Scale) -> Case:
    network = s.filled(lambda: ActorCritic(s.ppo.network, key=jax.random.key(0)))
    shape = (s.steps, s.rows)
    sequences = Sequences(
        image=s.images(*shape),
        first=s.chance(0.05, *shape),
        instruction_row=s.integers(s.instructions, *shape),
        action=s.integers(NUM_ACTIONS, *shape),
        log_prob=s.normal(*shape),
        value=s.normal(*shape),
        advantage=s.normal(*shape),
        returns=s.normal(*shape),
        memory=s.filled(lambda: network.initial_memory(s.rows)),
    )
    optimiser, statistics = jax.jit(
        jax.vmap(lambda one: (make_optimiser(s.ppo).init(one), one.initial_statistics()))
    )(network)
    learner = PolicyLearner(network, optimiser, statistics)
    return Case(partial(gradient_step, s.ppo), data=(learner, s.tokens(), sequences))


class Alone:
    """Every kernel by itself, and for scale a whole gradient step."""

    def __init__(self, scale: Scale, kernels: dict[str, Kernel], programs: Programs):
        self._kernels = kernels
        self._arguments = {}
        for name, kernel in kernels.items():
            if kernel.case is not None:
                function, arguments = pulled_back(scale, kernel.case(scale))
                ours, plain = f"{name}, ours", f"{name}, plain"
                programs.add(ours, function, arguments)
                programs.add(plain, function, arguments, kernel.patches, unlike=ours)
                self._arguments[name] = arguments
        function, self._step_arguments = pulled_back(scale, gradient_step_case(scale))
        programs.add(GRADIENT_STEP, function, self._step_arguments)

    def measure(
        self, compiled: dict[str, Callable], repeats: int
    ) -> tuple[dict[str, dict[str, Any]], float]:
        """What was measured, by kernel; and the milliseconds of a gradient step."""
        progress(f"timing {GRADIENT_STEP}")
        step = {GRADIENT_STEP: (compiled[GRADIENT_STEP], self._step_arguments)}
        step_ms = medians(step, repeats)[GRADIENT_STEP]
        rows = {}
        for name, arguments in self._arguments.items():
            progress(f"timing {name}")
            ours, plain = compiled[f"{name}, ours"], compiled[f"{name}, plain"]
            apart = difference(ours(*arguments), plain(*arguments))
            found = medians({"ours": (ours, arguments), "plain": (plain, arguments)}, repeats)
            share = self._kernels[name].per_step * found["ours"] / step_ms
            rows[name] = {
                "ours_ms": found["ours"],
                "plain_ms": found["plain"],
                "ratio": found["plain"] / found["ours"],
                "share_of_gradient_step": share or None,
                "difference": apart,
            }
        return rows, step_ms


def shaper_of(method: str, scale: Scale) -> AbstractRewardShaper:
    task = scale.env.spec
    if method == "ella":
        return ella_shaper(task, scale.termination, OracleRelevance(task))
    if method == "ride":
        return RideShaper(horizon=max(task.horizons), **RIDE().values())
    return NoShaping()


class InContext:
    """Whole iterations, with all kernels and with one of them replaced."""

    def __init__(self, scale: Scale, kernels: dict[str, Kernel], programs: Programs):
        env, ppo, self._kernels = scale.env, scale.ppo, kernels
        self._keys = jax.random.split(jax.random.key(0), scale.seeds)
        self._shapers = {
            method: shaper_of(method, scale)
            for method in sorted({kernel.method for kernel in kernels.values()})
        }

        def iterate(shaper: AbstractRewardShaper, state: TrainState) -> PyTree:
            return run_iteration(env, ppo, [shaper], [state], jnp.zeros((), jnp.int32))

        arguments = {}
        for method, shaper in self._shapers.items():
            begin = partial(init_train_state, env, ppo, shaper)
            start = jax.vmap(lambda key, begin=begin: begin(key=key))
            programs.add(f"start of {method}", start, (self._keys,))
            arguments[method] = (shaper, jax.eval_shape(start, self._keys))
            programs.add(self._name(method), iterate, arguments[method])
        for name, kernel in kernels.items():
            programs.add(
                self._name(kernel.method, name),
                iterate,
                arguments[kernel.method],
                kernel.patches,
                unlike=self._name(kernel.method),
            )

    @staticmethod
    def _name(method: str, kernel: str | None = None) -> str:
        return f"iteration of {method}" + (f", plain {kernel}" if kernel else "")

    def measure(
        self, compiled: dict[str, Callable], repeats: int
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]]]:
        """What was measured, by kernel; and the milliseconds of each method's iteration, timed
        twice to show the noise."""
        rows, iterations = {}, {}
        for method, shaper in self._shapers.items():
            progress(f"timing {self._name(method)}")
            arguments = (shaper, compiled[f"start of {method}"](self._keys))
            names = [name for name, kernel in self._kernels.items() if kernel.method == method]
            ours = compiled[self._name(method)]
            turns = {
                "ours_ms": (ours, arguments),
                **{name: (compiled[self._name(method, name)], arguments) for name in names},
                "ours_again_ms": (ours, arguments),
            }
            found = medians(turns, repeats)
            iterations[method] = {key: found[key] for key in ("ours_ms", "ours_again_ms")}
            mine = statistics.mean(iterations[method].values())
            for name in names:
                rows[name] = {"plain_ms": found[name], "ratio": found[name] / mine}
        return rows, iterations


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--environments", type=int, default=64, help="per seed")
    parser.add_argument("--dtype", choices=sorted(TOLERANCE), default="bfloat16")
    parser.add_argument("--width", type=int, default=128, help="of all layers but the heads")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(KERNELS))
    parser.add_argument("--in-context", action="store_true", help="time whole iterations too")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    return parser.parse_args(arguments)


def scale_of(options: argparse.Namespace) -> Scale:
    """The paper's preset but for the sizes asked for."""
    for name in ("seeds", "environments", "width", "repeats"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name} must be >= 1, got {getattr(options, name)}")
    network = NetworkSettings(
        width=options.width,
        instruction_width=options.width,
        memory_width=options.width,
        compute_dtype=options.dtype,
    )
    ppo = PPOSettings(
        network=network,
        num_envs=options.environments,
        minibatch_frames=options.environments * PPOSettings().bptt_length,
        pool_size=options.environments * LEVELS_PER_ENVIRONMENT,
    )
    return Scale(make(TASK), options.seeds, ppo)


def table(report: dict[str, Any]) -> str:
    """One row a kernel."""
    header = ("kernel", "alone: ours", "plain", "ratio", "of step", "differs", "in context")
    lines = ["{:24}{:>12}{:>10}{:>8}{:>9}{:>10}{:>12}  symbol; plain version".format(*header)]

    def cell(row: dict[str, Any], key: str, form: str) -> str:
        return form.format(row[key]) if row.get(key) is not None else "-"

    for name, kernel in report["kernels"].items():
        alone, context = kernel.get("alone", {}), kernel.get("in_context", {})
        lines.append(
            f"{name:24}{cell(alone, 'ours_ms', '{:.3f} ms'):>12}"
            f"{cell(alone, 'plain_ms', '{:.3f}'):>10}{cell(alone, 'ratio', '{:.2f}'):>8}"
            f"{cell(alone, 'share_of_gradient_step', '{:.1%}'):>9}"
            f"{cell(alone, 'difference', '{:.1e}'):>10}{cell(context, 'ratio', '{:.3f}'):>12}"
            f"  {kernel['symbol']}; {kernel['plain']}"
        )
    lines.append(f"{GRADIENT_STEP:24}{report['gradient_step_ms']:9.3f} ms")
    for method, found in report.get("iterations", {}).items():
        first, again = found.values()
        lines.append(f"{'iteration of ' + method:24}{first:9.3f} ms, again {again:.3f} ms")
    return "\n".join(lines)


def main() -> int:
    options = parsed()
    for name in options.only or ():
        if name not in KERNELS:
            raise unknown_name("kernel", name, KERNELS)
    scale = scale_of(options)
    kernels = {name: KERNELS[name] for name in options.only or KERNELS}
    device = jax.devices()[0]
    progress(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}")
    programs = Programs(MATMUL_PRECISIONS[scale.ppo.matmul_precision])
    alone = Alone(scale, kernels, programs)
    context = InContext(scale, kernels, programs) if options.in_context else None
    compiled = programs.compiled()
    found, step_ms = alone.measure(compiled, options.repeats)
    report: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "device": f"{device.device_kind} ({device.platform})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "task": TASK,
        "kernels": {
            name: {"symbol": kernel.symbol, "plain": kernel.plain, "method": kernel.method}
            for name, kernel in kernels.items()
        },
        "gradient_step_ms": step_ms,
    }
    for name, row in found.items():
        report["kernels"][name]["alone"] = row
    if context is not None:
        rows, report["iterations"] = context.measure(compiled, options.repeats)
        for name, row in rows.items():
            report["kernels"][name]["in_context"] = row
    report["seconds"] = round(time.perf_counter() - BEGAN, 1)
    print(table(report))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    wrong = [name for name, row in found.items() if row["difference"] > TOLERANCE[scale.dtype]]
    if wrong:
        progress(f"ours and plain differ by more than rounding: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
