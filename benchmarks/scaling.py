"""Frames a second and memory of training, against environments of one agent and against seeds.

    python benchmarks/scaling.py --environments 64 256 1024 --seeds 1 8 32 --out scaling.json \\
        --figure scaling.png

Points over environments are one seed of the preset `wide`, with minibatches of half a rollout but
at most 10,240 frames, or with those of `--minibatches`, one for each; points over seeds are the
preset `onehot` in bfloat16 with 64 environments each. Every point is a process of its own:
processes compile side by side, then take turns on the device, so that no compilation disturbs a
measurement. ELLA's termination classifier is left untrained, which changes nothing about the work.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from ella.durable_files import write_durably
from ella.training import presets
from ella.training.settings import TrainingSettings

LABELS = {"ppo": "PPO", "ella": "ELLA"}
REPEATS = 3
LARGEST_MINIBATCH = 10_240


@dataclass(frozen=True)
class Point:
    """What is measured in one process."""

    task: str
    method: str
    environments: int
    seeds: int
    over: str
    """environments or seeds: the axis it lies on."""
    minibatch: int | None = None
    """Frames of one, where they are not what the axis says."""

    def settings(self, preset: str | None) -> TrainingSettings:
        """What it trains with; a preset replaces the axis's own."""
        wide = self.over == "environments"
        found = presets.find(preset or ("wide" if wide else "onehot"), self.method)
        rollout = self.environments * found.ppo.rollout_length
        usual = min(LARGEST_MINIBATCH, rollout // 2) if wide else found.ppo.minibatch_frames
        network = replace(found.ppo.network, compute_dtype="bfloat16")
        ppo = replace(
            found.ppo,
            num_envs=self.environments,
            minibatch_frames=self.minibatch or usual,
            network=found.ppo.network if preset else network,
        )
        return replace(found, seeds=self.seeds, ppo=ppo)


def main() -> None:
    arguments = _arguments()
    if arguments.point is not None:
        _measure(Point(**arguments.point), arguments.preset, arguments.seconds)
        return
    minibatches = arguments.minibatches or [None] * len(arguments.environments)
    if len(minibatches) != len(arguments.environments):
        sys.exit("name as many --minibatches as --environments")
    points = [
        Point(arguments.task, method, environments, 1, "environments", minibatch)
        for environments, minibatch in zip(arguments.environments, minibatches, strict=True)
        for method in arguments.methods
    ] + [
        Point(arguments.task, method, 64, seeds, "seeds")
        for seeds in arguments.seeds
        for method in arguments.methods
    ]
    if not points:
        sys.exit("name --environments or --seeds to measure")
    rows: list[dict[str, Any]] = []
    for begin in range(0, len(points), arguments.at_once):
        for row in _batch(points[begin : begin + arguments.at_once], arguments):
            print(json.dumps(row), flush=True)
            rows.append(row)
            _write(arguments, rows)
    if arguments.figure is not None:
        draw(rows, arguments.figure)


def _write(arguments: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    """After every point, so that what was measured is not lost."""
    result = {
        "command": "python benchmarks/scaling.py " + " ".join(sys.argv[1:]),
        "what": f"frames a second of training, median of {REPEATS} repeats of about "
        f"{arguments.seconds:g} s, and memory the program takes",
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    write_durably(arguments.out, json.dumps(result, indent=1) + "\n")


def _batch(points: Sequence[Point], arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The rows of points that compile side by side."""
    preset = [] if arguments.preset is None else ["--preset", arguments.preset]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, __file__, "--point", json.dumps(vars(point))),
                *("--seconds", str(arguments.seconds), *preset),
            ],
            # Together they must not take more memory than there is.
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for point in points
    ]
    for process in processes:
        _pipe(process.stdout).readline()
    for point, process in zip(points, processes, strict=True):
        try:
            said, _ = process.communicate("go\n")
        except BrokenPipeError:
            said = ""
        found = json.loads(said) if said else {"failed": process.wait()}
        yield {**vars(point), **found}


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _measure(point: Point, preset: str | None, seconds: float) -> None:
    """Compile, say so, wait for the turn, and print what was measured."""
    import jax

    from ella.training.throughput import TimedTraining, rate_of
    from ella.world.tasks import find

    settings = point.settings(preset)
    training = TimedTraining(find(point.task), settings, 1, trained=False)
    print("ready", flush=True)
    sys.stdin.readline()
    training()
    began = time.perf_counter()
    training()
    calls = max(1, round(seconds / (time.perf_counter() - began)))
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(calls):
            training()
        spent.append(time.perf_counter() - began)
    frames = calls * settings.ppo.frames_per_iteration * settings.seeds
    rate = rate_of("training", frames, spent, training)
    found = {
        "frames_per_second": round(rate.frames_per_second),
        "lowest": round(rate.lowest),
        "highest": round(rate.highest),
        "compile_seconds": round(training.compile_seconds, 1),
        "memory_bytes": training.memory_bytes,
        "minibatch_frames": settings.ppo.minibatch_frames,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(found), flush=True)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Frames a second above, memory below; environments on the left, seeds on the right."""
    from matplotlib.figure import Figure

    axis_names = {"environments": "environments of one agent", "seeds": "seeds of 64 environments"}
    used = [over for over in axis_names if any(row["over"] == over for row in rows)]
    figure = Figure(figsize=(4.2 * len(used), 5.6), layout="constrained")
    axes = figure.subplots(2, len(used), squeeze=False, sharex="col")
    for column, over in enumerate(used):
        for method in sorted({row["method"] for row in rows}, reverse=True):
            of_method = [
                row
                for row in rows
                if (row["over"], row["method"]) == (over, method) and "failed" not in row
            ]
            own = [row[over] for row in of_method]
            label = LABELS.get(method, method)
            rates = [row["frames_per_second"] / 1e3 for row in of_method]
            memory = [row["memory_bytes"] / 1e9 for row in of_method]
            axes[0][column].plot(own, rates, marker="o", label=label)
            axes[1][column].plot(own, memory, marker="o", label=label)
        places = sorted({row[over] for row in rows if row["over"] == over})
        for line, label in enumerate(("thousand frames a second", "memory, GB")):
            axes[line][column].set_xscale("log", base=2)
            axes[line][column].set_ylim(bottom=0)
            axes[line][column].set_ylabel(label if column == 0 else "")
            axes[line][column].grid(alpha=0.3)
        axes[1][column].set_xlabel(axis_names[over])
        axes[1][column].set_xticks(places, [f"{place:,}" for place in places], rotation=45)
        axes[0][column].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="unlock-maze")
    parser.add_argument("--methods", nargs="+", default=["ppo", "ella"])
    parser.add_argument("--environments", nargs="*", type=int, default=[])
    parser.add_argument("--minibatches", nargs="*", type=int, default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[])
    parser.add_argument("--seconds", type=float, default=2.0, help="of one repeat, about")
    parser.add_argument("--at-once", type=int, default=8, help="processes that compile together")
    parser.add_argument("--preset", help="in place of the axes' own, for a try on a CPU")
    parser.add_argument("--out", type=Path, default=Path("scaling.json"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
