"""Settings every test shares."""

import os
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jax"

# Set before JAX is imported, so that subprocesses share the compiled programs too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# Tests run each program a few times only: compiling it well costs more than it gains.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
