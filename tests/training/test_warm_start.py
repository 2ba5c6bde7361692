"""A run may start from the network of a trained agent."""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from tiny_runs import TINY, settings_file, tiny_run, typed, values

from ella.array_file import named_arrays
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.runs.policies import load_policy
from ella.runs.training_run import train_runs
from ella.training.assembly import build_shaper, make_program, sweeps_of, training_environment
from ella.training.policy import Policy
from ella.training.train import train_settings
from ella.training.warm_start import check_fits, started_from
from ella.world.tasks import find

CLAUSES = replace(TINY.ppo.network, clauses=2)


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Path:
    """The file of a policy, as if trained."""
    network = eqx.filter_jit(lambda key: ActorCritic(TINY.ppo.network, key=key))(jax.random.key(9))
    path = tmp_path_factory.mktemp("agent") / "policy.safetensors"
    Policy(find("goto-small"), network, network.initial_statistics(), 0, 0).save(path)
    return path


def weights(tree) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in named_arrays(tree).items()}


@pytest.mark.thorough
def test_every_seed_starts_from_the_agent(agent):
    policy = load_policy(agent)
    settings = TINY.resolved(find("goto-small"))
    env = training_environment(find("goto-small"), settings)
    shaper = build_shaper(find("goto-small"), settings)
    program = make_program(settings, env, sweeps_of([shaper], [settings.seed_numbers]))
    program.prepare()
    (states,) = started_from(program, program.start(), policy)
    for index in range(2):
        found = weights(jax.tree.map(lambda leaf, i=index: leaf[i], states.network))
        wanted = weights(policy.network)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
        for one, other in zip(
            jax.tree.leaves(states.statistics), jax.tree.leaves(policy.statistics), strict=True
        ):
            np.testing.assert_array_equal(one[index], other)


@pytest.mark.thorough
def test_training_as_a_function_starts_from_an_agent(agent):
    settings = replace(TINY, frames=32)
    started, new = (
        train_settings(find("goto-small"), settings, start_from=policy).metrics["entropy"][0]
        for policy in (load_policy(agent), None)
    )
    assert (started != new).all()


@pytest.mark.thorough
def test_a_run_that_starts_from_an_agent_is_the_same_when_resumed(agent, tmp_path):
    ppo = replace(TINY.ppo, frozen_frames=6 * TINY.ppo.frames_per_iteration)
    whole = tiny_run(tmp_path / "whole", iterations=12, start_from=str(agent), ppo=ppo)
    train_runs([whole])
    first = values(tmp_path / "whole")
    half = tiny_run(tmp_path / "half", iterations=6, start_from=str(agent), ppo=ppo)
    train_runs([half])
    before, frozen = (
        weights(load_policy(agent).network),
        weights(load_policy(half.directory).network),
    )
    same = {name for name in before if np.array_equal(before[name], frozen[name])}
    assert same == {name for name in before if not name.startswith("critic.")}
    longer = tiny_run(tmp_path / "half", iterations=12, start_from=str(agent), ppo=ppo)
    train_runs([longer], resume=True)
    after = weights(load_policy(half.directory).network)
    assert not any(np.array_equal(after[name], frozen[name]) for name in same)
    for name, column in values(tmp_path / "half").items():
        np.testing.assert_array_equal(column, first[name], err_msg=name)


@pytest.mark.thorough
def test_the_command_line_names_the_agent(agent, tmp_path, capsys):
    config = settings_file(tmp_path / "tiny.json", TINY)
    words = ("train", "goto-small", "--config", config, "--frames", 32)
    assert typed(*words, "--start-from", agent, "--out", tmp_path / "run") == 0
    assert f"from {agent}" in capsys.readouterr().err
    assert typed(*words, "--start-from", tmp_path / "no", "--out", tmp_path / "other") == 2
    assert not (tmp_path / "other").exists()
    assert "neither the directory of a run nor a policy file" in capsys.readouterr().err


def test_an_agent_given_by_name_alone_is_not_ignored():
    settings = replace(TINY, start_from="agent:unlock-maze")
    with pytest.raises(InputError, match=r"start_from=ella\.load_policy\('agent:unlock-maze'\)"):
        train_settings(find("goto-small"), settings)


def test_an_agent_of_another_network_is_refused_with_the_option_to_set(agent):
    policy = load_policy(agent)
    with pytest.raises(InputError, match=r"has width 8 instead of 16; set --ppo\.network\.width 8"):
        check_fits(policy, replace(TINY.ppo.network, width=16))
    two = ActorCritic(CLAUSES, key=jax.random.key(0))
    both = Policy(find("goto-small"), two, two.initial_statistics(), 0, 0)
    check_fits(both, CLAUSES)
    with pytest.raises(InputError, match=r"set --ppo\.network\.clauses 2"):
        check_fits(both, TINY.ppo.network)
    with pytest.raises(InputError, match=r"clause_switch\.with_switch, and start from"):
        check_fits(policy, CLAUSES)
