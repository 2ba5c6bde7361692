"""The shaper of a run: built once, with its offline stage, and stored in the run's directory."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

from ella.runs import directory as run_directory
from ella.runs.stores import shaper_store
from ella.shaping.shaper import AbstractRewardShaper
from ella.training import multi_host
from ella.training.assembly import build_shaper
from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec


def run_shaper(directory: Path, spec: TaskSpec, settings: TrainingSettings) -> AbstractRewardShaper:
    """The shaper of the run in `directory`. Its arrays are stored there once it is first built, so
    that a resumed run uses the very same offline networks, on another machine too."""
    store = shaper_store(directory, spec, settings)
    if store.paths():
        arrays, static = eqx.partition(build_shaper(spec, settings, trained=False), eqx.is_array)
        found = store.restore_newest(arrays)
        if found is not None:
            arrays = jax.tree.map(jnp.asarray, found.state)
    else:
        arrays, static = eqx.partition(build_shaper(spec, settings), eqx.is_array)
        if jax.tree.leaves(arrays) and multi_host.is_main_process():
            with run_directory.writing("the shaper", store.directory):
                store.save(arrays, 0)
    return eqx.combine(multi_host.from_main_process(arrays), static)
