"""The trained agents that come with the package."""

import json

import jax
import numpy as np
import pytest

import ella
from ella import agents
from ella.array_file import load_arrays
from ella.cli import main
from ella.intervals import Interval
from ella.runs.relevance_file import FORMAT_VERSION, KIND, RELEVANCE_FILE, SEEN, TABLE
from ella.runs.restore import has_ella, learned_ella
from ella.shaping import relevance
from ella.training.evaluation import evaluate

MAX_BYTES = 15_000_000
MOST_PROGRAMS = 10
"""Compiled before an episode is filmed; each takes at least 0.02 s."""
COMPILED = "/jax/core/compile/backend_compile_duration"


def test_every_agent_is_what_its_card_says():
    assert agents.names()
    for name in agents.names():
        policy = ella.load_policy(f"agent:{name}")
        card = json.loads((agents.FOLDER / name / agents.CARD_FILE).read_text())
        assert policy.spec.name == card["task"]
        assert (policy.frames, policy.seed) == (card["frames"], card["seed"])
        assert f"ella train {card['task']}" in card["command"]
        for backend in ("ella", "minigrid"):
            for mode in ("greedy", "sampled"):
                interval = Interval(**card["success"][backend][mode])
                assert interval.low <= interval.value <= interval.high


def test_the_agents_are_small():
    files = [path for path in agents.FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES


def test_an_agent_reaches_its_cards_success():
    card = json.loads((agents.FOLDER / "unlock-maze" / agents.CARD_FILE).read_text())
    found = evaluate(ella.load_policy("agent:unlock-maze"), 64, mode="sampled", seed=1)
    assert found.success_rate.overlaps(Interval(**card["success"]["ella"]["sampled"]))
    assert found.success.mean() > 0.9


def test_an_agent_is_explained_by_its_relevance_classifier(capsys):
    assert main(["explain", "agent:unlock-maze", "open the green door", "--json"]) == 0
    judgements = json.loads(capsys.readouterr().out)["judgements"]
    probability = {one["text"]: one["probability"] for one in judgements}
    assert judgements[0]["text"] == "pick up the green key"
    keys = [text for text in probability if "key" in text and "green" not in text]
    assert probability["pick up the green key"] > 0.5
    assert np.max([probability[text] for text in keys]) < 0.5


def test_an_agent_brings_every_decomposition_it_learned():
    for name in agents.names():
        saved = load_arrays(
            agents.FOLDER / name / RELEVANCE_FILE, kind=KIND, version=FORMAT_VERSION
        )
        seen, rows = saved.arrays[SEEN], saved.arrays[TABLE]
        assert len(seen) == len(rows) == saved.arrays["dataset.num_seen"] > 0
        assert rows.any(axis=-1).all()
    learned = learned_ella(agents.FOLDER / "unlock-maze").state.dataset
    assert np.asarray(learned.members).any(axis=-1).sum() == learned.num_seen == 6


def test_what_an_agent_learned_is_read_without_drawing_levels(monkeypatch):
    def draw(*arguments):
        raise AssertionError("levels are drawn")

    monkeypatch.setattr(relevance, "instructions_of_levels", draw)
    for name in agents.names():
        assert has_ella(agents.FOLDER / name)
        learned_ella(agents.FOLDER / name)


@pytest.fixture
def compiled():
    """The seconds of every compilation, in a process that has compiled nothing before."""
    jax.clear_caches()
    seconds = []

    def listen(event, duration, **_):
        if event == COMPILED:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seconds
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.thorough
def test_an_episode_of_an_agent_shows_what_was_paid(tmp_path, capsys, compiled):
    assert main(["show", "agent:unlock-maze", "--out", str(tmp_path)]) == 0
    assert 0 < len(compiled) <= MOST_PROGRAMS
    said = capsys.readouterr().out
    assert "open the" in said
    assert "done" in said
    assert len(list(tmp_path.glob("*.gif"))) == 1


def test_an_unknown_agent_is_one_line(capsys):
    assert main(["eval", "agent:unlok-maze"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "unlock-maze" in error


def test_the_list_has_every_agent(capsys):
    assert main(["agents"]) == 0
    said = capsys.readouterr().out
    assert all(f"agent:{name}" in said for name in agents.names())


def test_a_damaged_relevance_file_is_one_line(tmp_path, capsys):
    import shutil

    folder = tmp_path / "agent"
    shutil.copytree(agents.FOLDER / "unlock-maze", folder)
    content = bytearray((folder / RELEVANCE_FILE).read_bytes())
    content[-1] ^= 1
    (folder / RELEVANCE_FILE).write_bytes(bytes(content))
    assert main(["explain", str(folder), "open the red door"]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("ella: ")
    assert "damaged" in error


@pytest.mark.thorough
def test_an_agent_reaches_its_cards_success_in_minigrid():
    card = json.loads((agents.FOLDER / "unlock-maze" / agents.CARD_FILE).read_text())
    policy = ella.load_policy("agent:unlock-maze")
    found = evaluate(policy, 32, mode="sampled", backend="minigrid", seed=1)
    assert found.success_rate.overlaps(Interval(**card["success"]["minigrid"]["sampled"]))
    assert found.success.mean() > 0.8


def test_an_agent_that_was_trained_on_is_told_apart(capsys):
    assert main(["agents"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert " 0.2 more " in lines["agent:sequence-maze"]
    assert "more" not in lines["agent:unlock-maze"]
