"""Named settings to start from. A method's own part of a preset is in the method's file."""

from collections.abc import Sequence
from dataclasses import replace

from ella.errors import InputError, unknown_name
from ella.methods.method import PAPER as PAPER
from ella.methods.method import Method
from ella.networks.settings import SMALL_NETWORK, NetworkSettings
from ella.ppo.settings import PPOSettings
from ella.training.settings import LogSettings, TrainingSettings, with_method

DEFAULT_METHOD = "ppo"
SMALL_PPO = PPOSettings(
    network=SMALL_NETWORK,
    num_envs=32,
    rollout_length=20,
    bptt_length=10,
    minibatch_frames=320,
    learning_rate=1e-3,
    pool_size=128,
)
LAPTOP_PPO = replace(
    SMALL_PPO,
    network=NetworkSettings(
        variant="onehot", width=8, instruction_width=8, memory_width=32, head_width=16, blocks=1
    ),
    num_envs=64,
    pool_size=64,
    unroll=1,
)
"""For tasks of small rooms with few objects; compiled in less time than others."""
SMALL_LOG = LogSettings(every=12_800, checkpoint_every=128_000)
WIDE_PPO = PPOSettings(
    network=NetworkSettings(variant="onehot", compute_dtype="bfloat16"),
    num_envs=2048,
    minibatch_frames=10_240,
    learning_rate=3e-4,
    pool_size=0,
    unroll=20,
)
"""Many environments for one agent (results/wide has what was tried)."""

PRESETS = {
    PAPER: TrainingSettings(),
    "released": TrainingSettings(),
    "onehot": TrainingSettings(
        ppo=PPOSettings(network=NetworkSettings(variant="onehot"), unroll=20)
    ),
    "wide": TrainingSettings(
        frames=40_000_000,
        ppo=WIDE_PPO,
        log=LogSettings(every=409_600, checkpoint_every=8_192_000),
    ),
    "wide-8gb": TrainingSettings(
        frames=40_000_000,
        ppo=replace(WIDE_PPO, num_envs=512, minibatch_frames=2_560),
        log=LogSettings(every=409_600, checkpoint_every=8_192_000),
    ),
    "small": TrainingSettings(frames=400_000, ppo=SMALL_PPO, log=SMALL_LOG),
    "laptop": TrainingSettings(
        frames=115_200, ppo=LAPTOP_PPO, log=LogSettings(every=6_400, checkpoint_every=57_600)
    ),
    "smoke": TrainingSettings(
        frames=2_560,
        ppo=replace(LAPTOP_PPO, num_envs=16, minibatch_frames=160, pool_size=16),
        log=LogSettings(every=1_280, checkpoint_every=128_000),
    ),
}
"""By name, with plain PPO."""


def find(name: str, method: str = DEFAULT_METHOD) -> TrainingSettings:
    """A preset with a method, or an error with the nearest names."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return with_method(PRESETS[name], method, name)


def start(
    preset: str,
    method: str | Method,
    *,
    frames: int | None = None,
    until: float | None = None,
    ppo: PPOSettings | None = None,
    log_every: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    also: Sequence[str] = (),
) -> TrainingSettings:
    """A preset with a method, and what else is given. A method given by name has the preset's
    settings; one given with its settings is taken as it is (`Method.preset` begins with the
    preset's)."""
    if isinstance(method, type):
        raise InputError(f"method is the class {method.__name__}; give {method.__name__}()")
    if isinstance(method, str):
        settings = find(preset, method)
    else:
        settings = replace(find(preset), method=method)
    return replace(
        settings,
        frames=settings.frames if frames is None else frames,
        until=until,
        ppo=ppo or settings.ppo,
        log=settings.log if log_every is None else LogSettings(every=log_every),
        seeds=seeds,
        seed=seed,
        also=tuple(also) or settings.also,
    )
