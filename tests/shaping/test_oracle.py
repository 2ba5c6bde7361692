"""Oracle labels of the six high-level tasks, spelled out."""

import numpy as np
import pytest

from ella.errors import InputError
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.world.tasks import TaskSpec, all_tasks, find

CASES = [
    (
        "putnext-room", "put the red ball next to the blue box",
        {"go to the red ball", "go to a red ball"},
    ),
    (
        "putnext-maze", "put a grey key next to the green door",
        {"go to the grey key", "go to a grey key"},
    ),
    ("unlock-maze", "open the yellow door", {"pick up the yellow key", "pick up a yellow key"}),
    (
        "openpick-maze", "open the red door and pick up a purple box",
        {"go to the red door", "open the red door", "go to the purple box", "go to a purple box"},
    ),
    ("combo-maze", "open the blue door", {"go to the blue door"}),
    ("combo-maze", "pick up a green ball", {"go to the green ball", "go to a green ball"}),
    (
        "combo-maze", "put the red key next to a blue box",
        {"go to the red key", "go to a red key"},
    ),
    (
        "sequence-maze", "pick up a red ball after you open the grey door",
        {"go to the red ball", "go to a red ball", "go to the grey door"},
    ),
    (
        "sequence-maze",
        "put the red key next to the green ball, then put a blue box next to the red key",
        {"go to the red key", "go to a red key", "go to the blue box", "go to a blue box"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("task", "text", "expected"), CASES)
def test_labels(task, text, expected):
    spec = find(task)
    low = low_level_of(spec).language
    bits = np.asarray(oracle_relevance(spec, np.array(spec.language.find(text))))
    assert {low.text(i) for i in np.flatnonzero(bits)} == expected


def test_every_instruction_has_something_relevant_and_something_not():
    for spec in all_tasks():
        if spec.low_level is None:
            continue
        ids = np.random.default_rng(0).integers(0, spec.language.num_ids, 300, dtype=np.int32)
        bits = np.asarray(oracle_relevance(spec, ids))
        assert bits.any(-1).all(), spec.name
        assert not bits.all(-1).any(), spec.name


def test_a_task_without_low_level_says_so():
    with pytest.raises(InputError, match="no low-level task"):
        low_level_of(find("goto-room"))
    with pytest.raises(InputError, match="one clause"):
        low_level_of(TaskSpec("nested", ("pickup",), low_level="sequence-maze"))
