"""Programs that run once or a few times are optimised less, and compute the same."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from ella.compilation import TRITON_PRODUCTS, jit_for_few_calls, training_options

PROGRAM = """
import jax, numpy as np
from ella.compilation import jit_for_one_call
from ella.networks.relevance import relevance_classifier
from ella.networks.settings import RelevanceNetworkSettings

settings = RelevanceNetworkSettings(hidden_size=16, output_size=8)
draw = lambda key: relevance_classifier(settings, key=key)
once, plain = (one(draw)(jax.random.key(0)) for one in (jit_for_one_call, jax.jit))
for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(plain), strict=True):
    assert np.array_equal(a, b)
print(len(jax.tree.leaves(once)))
"""
QUICK_PROGRAM = """
import jax, numpy as np
import ella
from ella.episodes import trained
from ella.world import compiled

policy = ella.load_policy("agent:unlock-maze")
env, key = ella.make(policy.spec), jax.random.key(0)

def played(optimised):
    made = (lambda one, *static: jax.jit(one.__wrapped__, static_argnums=static)) if optimised \\
        else (lambda one, *static: one)
    reset, step = made(compiled.reset, 0), made(compiled.step, 0)
    begin, decide = made(trained._begin), made(trained._decide, 0)
    now = reset(env, key)
    network, modulations, memory = begin(policy.network, now.observation.mission)
    seen, chance = [now], key
    for _ in range(12):
        action, memory, chance = decide(
            "sampled", network, policy.statistics, now.observation, memory, modulations, chance
        )
        now = step(env, now.state, action)
        seen.append(now)
    return jax.device_get((seen, memory))

(quick, quick_memory), (full, memory) = played(False), played(True)
for a, b in zip(jax.tree.leaves(quick), jax.tree.leaves(full), strict=True):
    assert np.array_equal(a, b)
np.testing.assert_allclose(quick_memory.hidden, memory.hidden, atol=1e-5)
print(len(jax.tree.leaves(quick)))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("program", [PROGRAM, QUICK_PROGRAM], ids=["networks", "episode"])
def test_less_optimised_programs_compute_the_same(program: str) -> None:
    """In a process of its own, since the tests' own flags choose a level."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_a_quickly_compiled_function_may_be_part_of_a_program() -> None:
    double = jit_for_few_calls(lambda x: 2 * x)
    assert int(double(jnp.int32(3))) == 6
    assert int(jax.jit(lambda x: double(x) + 1)(jnp.int32(3))) == 7
    assert jax.vmap(double)(jnp.arange(3)).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("backend", "seeds", "flags", "expected"),
    [
        ("gpu", [1], "", {TRITON_PRODUCTS: False}),
        ("gpu", [8], "", {TRITON_PRODUCTS: False}),
        ("gpu", [32], "", {}),
        ("gpu", [32, 32], "", {TRITON_PRODUCTS: False}),
        ("gpu", [1], f"--{TRITON_PRODUCTS}=true", {}),
        ("cpu", [1], "", {}),
    ],
)
def test_only_many_seeds_of_one_run_are_compiled_with_triton_unless_told(
    backend, seeds, flags, expected, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert training_options(seeds) == expected
