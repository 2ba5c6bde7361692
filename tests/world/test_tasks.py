"""Tasks are rows of data: impossible rows are refused, new rows work everywhere."""

from importlib.util import find_spec, module_from_spec

import jax
import numpy as np
import pytest

import ella
from ella.errors import InputError
from ella.world import tasks
from ella.world.encoding import BOX, DOOR, KEY
from ella.world.tasks import TASKS, TaskSpec

NEW_ROWS = [
    TaskSpec("nine-rooms", ("goto", "pickup"), rows=3, cols=3, distractors=18),
    TaskSpec("small-rooms", ("open", "goto"), room_size=5, distractors=2, form="sequence"),
    TaskSpec("small-room", ("putnext",), cols=1, room_size=5, distractors=2, agent_first=True,
             unique_objects=True),
    TaskSpec("crowded", ("putnext", "open"), distractors=18, form="and", unblocking=True),
    TaskSpec("short", ("pickup",), lock_probability=1.0, implicit_unlock=True, max_steps=5),
]  # fmt: skip


def test_tasks_have_their_horizons() -> None:
    # A fresh copy of the module: others may have registered further tasks in the imported one.
    found = find_spec("ella.world.tasks")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    horizons = {name: spec.horizons for name, spec in module.TASKS.items()}
    assert horizons == {
        "goto-room": (64,), "goto-maze": (128,), "open-maze": (128,), "pick-maze": (128,),
        "opengoto-maze": (128,), "putnext-room": (128,), "putnext-maze": (256,),
        "unlock-maze": (128,), "openpick-maze": (256,), "combo-maze": (128, 256),
        "sequence-maze": (256, 384, 512), "sequence-room": (128, 192, 256), "goto-small": (36,),
        "pick-small": (50,), "unlock-small": (50,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distractors": 80}, "80 objects do not fit"),
        ({"distractors": 19, "unique_objects": True}, "at most 18 unique objects"),
        (
            {"distractors": 18, "unique_objects": True, "lock_probability": 0.5},
            "at most 18 unique objects exist, asked for 18 and a key",
        ),
        ({"kinds": ("open",), "lock_probability": 1.0}, "no door could be a target"),
        ({"distractors": 0}, "at least 1 distractor"),
        ({"cols": 1, "distractors": 1, "kinds": ("putnext",)}, "at least 2 distractors"),
        ({"cols": 0}, "rows and cols must be >= 1"),
        ({"room_size": 3}, "and room_size >= 4, got 1, 2 and 3"),
        ({"cols": 1, "kinds": ("open",)}, "no door to lock or open"),
        ({"cols": 1, "lock_probability": 0.5}, "no door to lock or open"),
        ({"lock_probability": 1.5}, "lock_probability must lie in [0, 1], got 1.5"),
        ({"kinds": ()}, "at least one action kind"),
        ({"kinds": "goto"}, "task 'bad': kinds must be a tuple, as (\"goto\",), got a str"),
        ({"kinds": ("gotoo",)}, "unknown action kind 'gotoo'; did you mean goto?"),
        ({"form": "sequences"}, "did you mean sequence?"),
        ({"form": "each"}, "exactly two action kinds"),
        ({"agent_first": True}, "agent_first needs a single room"),
        ({"max_steps": 0}, "max_steps must be >= 1, got 0"),
    ],
)
def test_impossible_rows_raise_one_clear_line(arguments: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        TaskSpec(**{"name": "bad", "kinds": ("goto",), **arguments})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_has_the_defaults_of_a_row() -> None:
    found = tasks.task_of({"name": "doors", "kinds": ["open"]}, where="config.json")
    assert found == TaskSpec("doors", ("open",))


def test_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown task 'putnext-rom'; did you mean putnext-room"):
        ella.make("putnext-rom")


def test_unknown_task_far_from_all_lists_them() -> None:
    with pytest.raises(InputError, match="known: goto-room, goto-maze"):
        ella.make("xyzzy")


def test_registered_rows_are_found_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASKS", dict(TASKS))
    spec = tasks.register(TaskSpec("goto-big", ("goto",), room_size=10))
    assert ella.make("goto-big").spec is spec
    assert tasks.register(spec) is spec
    with pytest.raises(InputError, match="a different task named 'goto-big' exists"):
        tasks.register(TaskSpec("goto-big", ("goto",), room_size=12))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            spec,
            id=spec.name,
            marks=() if spec.name == "nine-rooms" else pytest.mark.thorough,
        )
        for spec in NEW_ROWS
    ],
)
def test_rows_the_paper_does_not_have_work(spec: TaskSpec) -> None:
    env = ella.make(spec)

    @jax.jit
    def play(key):
        reset_key, action_key = jax.random.split(key)
        first = env.reset(reset_key)
        actions = jax.random.randint(action_key, (64,), 0, 7)
        return first, jax.lax.scan(
            lambda state, action: ((t := env.step(state, action)).state, t), first.state, actions
        )[1]

    first, steps = play(jax.random.key(0))
    description = ella.world.describe(first.state)
    grid = description["grid"]
    assert grid.shape == (spec.width, spec.height, 3)
    things = np.isin(grid[..., 0], range(KEY, BOX + 1)).sum()
    assert things == spec.distractors + (spec.lock_probability == 1)
    assert (grid[..., 0] == DOOR).sum() >= spec.rows * spec.cols - 1
    assert spec.language.text(int(first.observation.instruction_id)) == description["mission"]
    assert description["max_steps"] in spec.horizons
    assert steps.observation.image.shape == (64, 7, 7, 3)
    assert steps.state.step_count.tolist() == list(range(1, 65))
    np.testing.assert_array_equal(steps.truncated, np.arange(1, 65) >= description["max_steps"])
