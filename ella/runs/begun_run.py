"""What a planned run that has begun left in its directory, for resuming it."""

from ella.errors import InputError
from ella.runs import directory as run_directory
from ella.runs import metrics
from ella.runs.checkpoint import CheckpointStore
from ella.runs.planned_run import PlannedRun
from ella.runs.stores import checkpoint_store
from ella.training.goal import Goal
from ella.training.policy import SUFFIX


def goal_of(planned: PlannedRun, *, is_begun: bool) -> Goal:
    """The goal of a run, with the log lines that the metrics of one that has begun hold."""
    goal = Goal.of(planned.spec, planned.settings)
    for values in metrics.lines_of(planned.directory) if is_begun and goal.success else ():
        goal.count(values, int(values["iteration"][0]))
    return goal


def check_resumable(planned: PlannedRun) -> None:
    """Refuse a run whose checkpoints were deleted, and an exported agent: training would restart
    from frame 0 and replace their policies."""
    directory = planned.directory
    trained = any((directory / run_directory.POLICIES).glob(f"*{SUFFIX}"))
    if trained and not store_of(planned).paths():
        raise InputError(
            f"{directory} has trained policies but no checkpoint to resume from; start a new "
            f"run from the first of them with --start-from {directory} --out ANOTHER_FOLDER"
        )


def store_of(planned: PlannedRun) -> CheckpointStore:
    """The checkpoints of a run."""
    return checkpoint_store(planned.directory, planned.spec, planned.settings)
