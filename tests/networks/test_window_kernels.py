"""Where the kernels of the first convolution are used; what they compute is in the other files."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from ella.networks.window_kernels import MOST_WINDOWS, WIDTH, can_run


@pytest.mark.parametrize(
    ("backend", "capability", "rows", "width", "dtype", "expected"),
    [
        ("gpu", "9.0", 64, WIDTH, "bfloat16", True),
        ("cpu", "9.0", 64, WIDTH, "bfloat16", False),
        ("gpu", "8.0", 64, WIDTH, "bfloat16", False),
        ("gpu", "gfx942", 64, WIDTH, "bfloat16", False),
        ("gpu", "9.0", 63, WIDTH, "bfloat16", False),
        ("gpu", "9.0", MOST_WINDOWS // 8, WIDTH, "bfloat16", False),
        ("gpu", "9.0", 64, 2 * WIDTH, "bfloat16", False),
        ("gpu", "9.0", 64, WIDTH, "float32", False),
    ],
)
def test_kernels_are_used_where_they_were_tried(
    backend, capability, rows, width, dtype, expected, monkeypatch
):
    cells, matrix = jnp.zeros((1, rows, 16, 4, 4), jnp.uint32), jnp.zeros((80, width), dtype)
    device = SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert can_run(cells, matrix) is expected
