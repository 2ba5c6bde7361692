"""Settings that fit together, and those that do not."""

import pytest

from ella.errors import InputError
from ella.ppo.settings import PPOSettings


def test_defaults_are_two_minibatches_of_64_sequences() -> None:
    config = PPOSettings()
    assert config.frames_per_iteration == 2560
    assert config.num_sequences == 128
    assert config.minibatch_sequences == 64


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"bptt_length": 30}, "bptt_length"),
        ({"minibatch_frames": 1290}, "minibatch_frames"),
        ({"minibatch_frames": 1000}, "minibatch_frames"),
        ({"num_envs": 0}, "num_envs"),
        ({"pool_size": -1}, "pool_size"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"entropy_coefficient": -0.1}, "entropy_coefficient"),
        ({"discount": 1.5}, "discount"),
        ({"matmul_precision": "float8"}, "matmul_precision"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        PPOSettings(**wrong)
