"""The trained agents that come with the package."""

import errno
import json
import shutil
import tempfile

import jax
import numpy as np
import pytest

import ella
from ella import agents
from ella.array_file import load_arrays
from ella.cli import main
from ella.errors import InputError
from ella.intervals import Interval
from ella.runs.agent_export import export_agent
from ella.runs.relevance_file import FORMAT_VERSION, KIND, RELEVANCE_FILE, SEEN, TABLE
from ella.runs.restore import has_ella, learned_ella, newest_policy
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


@pytest.mark.thorough
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
    assert "in minigrid: the same levels" in said


@pytest.mark.parametrize("seed_index", [1, -1])
def test_an_agent_has_one_seed_however_many_its_run_had(seed_index, capsys):
    folder, said = agents.FOLDER / "unlock-maze", f"seed index {seed_index} is outside 0..0"
    for read in (newest_policy, learned_ella):
        with pytest.raises(InputError, match=f"^{said}$"):
            read(folder, seed_index)
    words = ["explain", "agent:unlock-maze", "open the red door", "--seed-index", str(seed_index)]
    assert main(words) == 2
    assert capsys.readouterr().err == f"ella: {said}\n"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("folder", "{place} is a folder; name a file for the heat map"),
        ("folder.png", "{place} is a folder; name a file for the heat map"),
        ("new", "cannot draw {place}: a heat map's name ends in one of "),
        ("new.txt", "cannot draw {place}: a heat map's name ends in one of "),
        ("file/new.png", "cannot draw {place}: {place.parent} is a file; choose another folder"),
    ],
)
def test_a_heat_map_is_drawn_to_the_file_that_is_named_or_not_at_all(
    name, complaint, tmp_path, capsys
):
    place = tmp_path / name
    if name.startswith("folder"):
        place.mkdir()
    elif name.startswith("file"):
        place.parent.write_text("")
    before = list(tmp_path.iterdir())
    words = ["explain", "agent:unlock-maze", "open the red door", "--heatmap", str(place)]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint.format(place=place) in line
    assert list(tmp_path.iterdir()) == before


def test_an_agent_is_not_exported_again(tmp_path, capsys):
    folder = shutil.copytree(agents.FOLDER / "unlock-maze", tmp_path / "agent")
    for run, place in ((folder, folder), ("agent:unlock-maze", agents.FOLDER / "unlock-maze")):
        assert main(["export", str(run), "--out", str(tmp_path / "again")]) == 2
        said = f"ella: {place} is an exported agent already; copy the folder\n"
        assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == [folder]


@pytest.fixture
def run(tmp_path):
    """A run with a policy and without ELLA."""
    left_out = shutil.ignore_patterns(agents.CARD_FILE, RELEVANCE_FILE)
    return shutil.copytree(agents.FOLDER / "unlock-maze", tmp_path / "run", ignore=left_out)


def play_nothing(policy):
    raise AssertionError("levels are played")


@pytest.mark.parametrize("place", ["file", "link", "file/agent", "file/new/agent"])
def test_a_place_that_is_taken_is_found_before_levels_are_played(run, place, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before, out = set(tmp_path.iterdir()), tmp_path / place
    is_taken = "/" not in place
    complaint = f"{out} exists" if is_taken else f"cannot write {out}: {tmp_path}/file is a file"
    with pytest.raises(InputError, match=f"^{complaint}; choose another folder$"):
        export_agent(run, out, play_nothing)
    assert set(tmp_path.iterdir()) == before


def test_a_place_that_may_not_be_written_is_found_before_levels_are_played(
    run, tmp_path, monkeypatch
):
    def refuse(*arguments, **_):
        raise PermissionError(errno.EACCES, "Permission denied")

    # Not by the folder's mode, which the system administrator may ignore.
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    out = tmp_path / "new" / "agent"
    with pytest.raises(InputError, match=f"^cannot write {out}: Permission denied; choose"):
        export_agent(run, out, play_nothing)
    assert list(tmp_path.iterdir()) == [run]


def test_a_damaged_relevance_file_is_one_line(tmp_path, capsys):
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
