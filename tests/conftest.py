"""Settings every test shares."""

import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tiny_runs import WholeRun

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jax"

# Set before JAX is imported, so that subprocesses share the compiled programs too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# Rates and classifiers of tests are none of the user's.
os.environ["ELLA_CACHE"] = str(CACHE.with_name("ella"))
# Tests run each program a few times only: compiling it well costs more than it gains.
QUICK_COMPILATION = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_COMPILATION])

# Tracing allocates much that stays: looking through it for garbage again and again finds little.
gc.freeze()
gc.set_threshold(100_000, 50, 50)


LONGEST_FIRST = (
    ("test_cli_train.py",),
    ("test_parity_steps.py", "test_expert_against_bot.py", "test_expert.py", "test_levels.py"),
    ("test_hosts.py",),
    ("test_host_ella.py",),
    ("test_cli_ella.py",),
    ("test_level_distribution.py",),
    ("test_launch.py",),
    ("test_ray_launcher.py",),
)
"""What takes half a minute and more is begun first, so that no worker waits long for the other.
Files of one row go to one worker, which traces and compiles what they share once."""


_RANKS = {name: rank for rank, names in enumerate(LONGEST_FIRST) for name in names}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _RANKS.get(item.path.name, len(_RANKS)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class WholeFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0].rpartition("/")[2]
            return str(_RANKS.get(name, name))

    config.option.loadscopereorder = False
    return WholeFiles(config, log)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "WholeRun":
    """A tiny run that nothing interrupted, the same for every worker."""
    from tiny_runs import trained_once

    folder = tmp_path_factory.getbasetemp()
    return trained_once(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture(autouse=True)
def logs_reach_caplog() -> None:
    """Also after a test has run a command in this process, which logs to standard error alone."""
    logging.getLogger("ella").propagate = True
