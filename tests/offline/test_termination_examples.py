"""Files of labelled examples: good ones are read, bad ones named in one line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import examples_of_tasks
from ella.offline.termination_examples import (
    TerminationExamples,
    expert_split,
    read_examples,
    split_examples,
    with_carried_objects,
    with_locked_room,
)
from ella.offline.train_termination import article_variants
from ella.shaping.low_level import low_level_language
from ella.shaping.termination import AGENT_CELL, visible_termination
from ella.world.encoding import DOOR, EMPTY, LOCKED, MOVABLE_TYPES
from ella.world.state import GOTO, GridObservation
from ella.world.tasks import find

LANGUAGE = find("goto-room").language


def good(count: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, high, (count, 7, 7)) for high in (8, 6, 3)]
    return {
        "images": np.stack(parts, -1).astype(np.uint8),
        "instructions": np.array([LANGUAGE.text(i % LANGUAGE.num_ids) for i in range(count)]),
        "labels": (np.arange(count) % 2).astype(np.uint8),
    }


def test_reads_what_was_written(tmp_path):
    arrays = good()
    np.savez(tmp_path / "examples.npz", **arrays)
    found = read_examples(tmp_path / "examples.npz", LANGUAGE)
    assert found.done_ids.tolist() == [1, 3, 5, 7]
    assert found.undone_ids.tolist() == [0, 2, 4, 6]
    np.testing.assert_array_equal(found.done_images, arrays["images"][1::2])
    assert not found.exclusive


def test_held_out_examples_are_not_trained_on(tmp_path):
    arrays = good(40)
    np.savez(tmp_path / "examples.npz", **arrays)
    examples = read_examples(tmp_path / "examples.npz", LANGUAGE)
    training, validation = split_examples(examples, 0.25, seed=0)
    assert (training.num_done, validation.num_done) == (15, 5)
    assert sorted([*training.done_ids, *validation.done_ids]) == sorted(examples.done_ids)
    assert sorted([*training.undone_ids, *validation.undone_ids]) == sorted(examples.undone_ids)


def broken(name: str, value) -> dict[str, np.ndarray]:
    return {**good(), name: value}


BAD = {
    "a missing array": ({k: v for k, v in good().items() if k != "labels"}, "no array 'labels'"),
    "floating images": (broken("images", good()["images"].astype(float)), "uint8"),
    "small images": (broken("images", good()["images"][:, :5]), r"uint8\[N, 7, 7, 3\]"),
    "an unknown colour": (broken("images", np.full((8, 7, 7, 3), 6, np.uint8)), "colour 6"),
    "too few labels": (broken("labels", np.ones(3, np.uint8)), "one per image"),
    "a label of 2": (broken("labels", np.full(8, 2)), "not 0 or 1"),
    "one label only": (broken("labels", np.ones(8, np.uint8)), "label 0"),
    "numbers for texts": (broken("instructions", np.arange(8)), "strings"),
    "a foreign sentence": (
        broken("instructions", np.array(["go to the red ball"] * 7 + ["dance"])),
        "example 7",
    ),
    "another task's sentence": (
        broken("instructions", np.array(["open the red door"] * 8)),
        "example 0",
    ),
    "pickled objects": (broken("labels", np.array([{}] * 8, dtype=object)), "pickled"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    arrays, message = BAD[case]
    path = tmp_path / "examples.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_examples(path, LANGUAGE)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_unreadable_files_are_refused(tmp_path):
    np.savez(tmp_path / "whole.npz", **good())
    whole = (tmp_path / "whole.npz").read_bytes()
    for name, content in {"cut": whole[: len(whole) // 2], "text": b"hello", "none": b""}.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            read_examples(path, LANGUAGE)
    np.save(tmp_path / "single.npy", np.arange(3))
    for path in (tmp_path / "single.npy", tmp_path / "absent.npz", tmp_path):
        with pytest.raises(InputError):
            read_examples(path, LANGUAGE)


def test_variants_differ_only_in_the_article():
    variants = article_variants(LANGUAGE)
    one, other = LANGUAGE.find("go to the red ball"), LANGUAGE.find("go to a red ball")
    assert variants[one, other]
    assert variants.sum(-1).tolist() == [2] * LANGUAGE.num_ids
    doors = article_variants(find("opengoto-maze").language)
    assert jax.tree.leaves(doors.sum(-1).tolist()).count(1) == 12


def locked_in_view(examples) -> float:
    """Share of the last observations and of the earlier ones that show a locked door."""
    views = np.concatenate([examples.done_images, examples.undone_images])
    return ((views[..., 0] == DOOR) & (views[..., 2] == LOCKED)).any(axis=(1, 2)).mean()


@pytest.mark.thorough
def test_some_episodes_have_a_locked_room_where_the_task_never_locks_one():
    split = expert_split(find("goto-maze"), 64, 32, 0.25, seed=0)
    assert split.training.num_done == 64
    assert len(split.training.undone_ids) == 64
    assert split.training.exclusive
    assert split.held_out.num_done == 32
    assert locked_in_view(split.held_out) == 0
    assert split.held_out_locked is not None
    assert 0 < locked_in_view(split.training) < locked_in_view(split.held_out_locked)


def test_a_room_without_doors_has_none_to_lock():
    assert with_locked_room(find("goto-room")) is None
    assert with_locked_room(find("goto-maze")).lock_probability == 1


def test_some_views_show_something_in_hand_and_nothing_else_changes():
    images, ids = good(400)["images"], np.arange(400) % LANGUAGE.num_ids
    before = TerminationExamples(images, ids, images, ids, exclusive=True)
    after = with_carried_objects(before, 0.25, seed=0)
    for one in (after.done_images, after.undone_images):
        changed = (one != images).any(-1)
        elsewhere = np.ones((7, 7), bool)
        elsewhere[AGENT_CELL] = False
        assert not changed[:, elsewhere].any()
        assert 60 < changed[:, *AGENT_CELL].sum() < 140
        in_hand = one[changed[:, *AGENT_CELL]][:, *AGENT_CELL]
        assert set(in_hand[:, 0]) == set(MOVABLE_TYPES)
        assert set(in_hand[:, 1]) == set(range(6))
        judge = visible_termination(LANGUAGE)
        truth, was = (judge(GridObservation(jnp.asarray(views))) for views in (one, images))
        assert (np.asarray(truth) == np.asarray(was)).all()
    same = with_carried_objects(before, 0.0, seed=0)
    assert (same.done_images == images).all()


@pytest.mark.thorough
def test_only_episodes_of_picking_up_tell_by_what_is_in_hand():
    tasks = find("goto-room"), find("pick-maze")
    settings = TerminationTrainingSettings(
        episodes=128, validation_episodes=8, carried_share=0.5, one_article=True
    )
    language = low_level_language(tasks, one_article=True)
    training, _ = examples_of_tasks(tasks, language, settings)
    kinds = np.array([clause.kind for clause in language.clauses])[training.done_ids]
    in_hand = training.done_images[:, *AGENT_CELL, 0] != EMPTY
    going = kinds == GOTO
    assert going.sum() == (~going).sum() == 64
    assert in_hand[~going].all()
    assert 16 < in_hand[going].sum() < 48
    seen = GridObservation(jnp.asarray(training.done_images))
    truth = np.asarray(visible_termination(language)(seen))
    assert truth[np.arange(len(going)), training.done_ids].all()
