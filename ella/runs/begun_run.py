"""What a planned run that has begun left in its directory, for going on with it."""

from ella.runs import directory as run_directory
from ella.runs import metrics
from ella.runs.checkpoint import CheckpointStore, fingerprint
from ella.runs.identity import what_differs
from ella.runs.planned_run import PlannedRun
from ella.training.goal import Goal


def goal_of(planned: PlannedRun, *, is_begun: bool) -> Goal:
    """The goal of a run, with the log lines that the metrics of one that has begun hold."""
    goal = Goal.of(planned.spec, planned.settings)
    for values in metrics.lines_of(planned.directory) if is_begun and goal.success else ():
        goal.count(values, int(values["iteration"][0]))
    return goal


def store_of(planned: PlannedRun) -> CheckpointStore:
    """The checkpoints of a run."""
    return CheckpointStore(
        planned.directory / run_directory.CHECKPOINTS,
        fingerprint(what_differs(planned.spec, planned.settings)),
        planned.settings.log.keep,
    )
