"""Settings every test shares."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real_browser import Browser
    from tiny_runs import WholeRun

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jax"

# Set before JAX is imported, so that subprocesses share the compiled programs too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# One process per core: further threads of BLAS and PyTorch would only wait, and do so busily.
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
# Rates and classifiers of tests are none of the user's.
os.environ["ELLA_CACHE"] = str(CACHE.with_name("ella"))
# What a terminal or CI sets would change the width and the colours of what commands print.
for display in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
    os.environ.pop(display, None)
# A shell that starts tests in the background has them, and what they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests run each program a few times only: compiling it well costs more than it gains.
QUICK_COMPILATION = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=simplify-while-loops,while-loop-invariant-code-motion"
    ",while-loop-constant-sinking,reshape-mover,simplify-conditional",
)
if not os.environ.get("ELLA_TEST_OPTIMISED"):
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_COMPILATION])

from jaxtyping import install_import_hook  # noqa: E402
from strict_checks import forbid_promotion  # noqa: E402

# Shapes and types in the annotations of what is compiled are checked at every call.
CHECKED = ("world", "trajectory", "measurement", "networks", "shaping", "ppo", "offline")
install_import_hook([f"ella.{room}" for room in CHECKED], "strict_checks.checked")
forbid_promotion()

# Tracing allocates much that stays: looking through it for garbage again and again finds little.
gc.freeze()
gc.set_threshold(100_000, 50, 50)

LONGEST_FIRST = (
    "test_notebooks.py",
    "test_documentation.py",
    "test_cli_mixture.py",
    "test_demo.py",
    "test_cli_ella.py",
    "test_cli_train.py",
    "test_cli_train_refused.py",
    "test_wheel.py",
    "test_relevance.py",
    "test_train.py",
    "test_custom_method.py",
    "test_local_launcher.py",
    "test_multi_host.py",
    "test_ray_launcher.py",
    "test_side_by_side.py",
    "test_recipes.py",
    "test_host_ella.py",
    "test_parity_steps.py",
    "test_level_distribution.py",
    "test_iteration.py",
    "test_page.py",
)
"""Files that take longest are begun first, so that no worker waits long for the other; the wheel's
demonstration long after the other one, whose programs it finds in the cache."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        name = item.path.name
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "WholeRun":
    """A tiny run that nothing interrupted, the same for every worker."""
    from tiny_runs import trained_once

    folder = tmp_path_factory.getbasetemp()
    return trained_once(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """Chromium; tests are skipped where it is not installed."""
    from real_browser import start_browser

    found = start_browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def logs_reach_caplog() -> None:
    """Also after a test has run a command in this process, which logs to standard error alone."""
    logging.getLogger("ella").propagate = True
