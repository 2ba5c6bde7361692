"""Programs that run once are compiled with less optimisation, and compute the same."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, numpy as np
from ella.compilation import jit_for_one_call
from ella.networks.actor_critic import ActorCritic
from ella.networks.settings import NetworkSettings

settings = NetworkSettings(
    variant="onehot", width=8, instruction_width=8, memory_width=8, head_width=8, blocks=1
)
draw = lambda key: ActorCritic(settings, key=key)
once, plain = (one(draw)(jax.random.key(0)) for one in (jit_for_one_call, jax.jit))
for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(plain), strict=True):
    assert np.array_equal(a, b)
print(len(jax.tree.leaves(once)))
"""


@pytest.mark.thorough
def test_networks_start_bit_identical_to_those_of_full_optimisation() -> None:
    """In a process of its own, since the tests' own flags choose a level."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
