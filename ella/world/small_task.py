"""The small task of the demonstration, known by name once this module is imported."""

from ella.world.tasks import TaskSpec, register

SMALL_TASK = register(
    TaskSpec("goto-small", ("goto",), cols=1, room_size=6, distractors=3, agent_first=True)
)
"""One small room: a processor learns it in minutes."""
