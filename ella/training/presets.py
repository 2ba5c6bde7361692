"""Named settings to start from."""

from dataclasses import replace

from ella.errors import unknown_name
from ella.networks.settings import SMALL_NETWORK, NetworkSettings
from ella.ppo.settings import PPOSettings
from ella.training.settings import LogSettings, Settings

PRESETS = {
    "paper": Settings(),
    "onehot": Settings(ppo=PPOSettings(network=NetworkSettings(variant="onehot"))),
    "small": Settings(
        frames=400_000,
        ppo=PPOSettings(
            network=SMALL_NETWORK,
            num_envs=32,
            rollout_length=20,
            bptt_length=10,
            minibatch_frames=320,
            learning_rate=1e-3,
            pool_size=128,
        ),
        log=LogSettings(every=20, checkpoint_every=200),
    ),
}
"""By name."""


def find(name: str) -> Settings:
    """The preset of that name, or an error with the nearest names."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]


DEMO = replace(PRESETS["small"], frames=250_000)
"""A run that learns `goto-small` within minutes on two cores."""
