"""Runs that have logged a line, for tests of what a list of runs shows."""

from ella.runs.config_file import write_config
from ella.runs.planned_run import PlannedRun


def begin(planned: PlannedRun, frames_per_second: float) -> None:
    """Leave what a run leaves that has logged its first line at that rate."""
    planned = planned.resolved()
    planned.directory.mkdir(parents=True)
    write_config(planned.directory, planned.spec, planned.settings)
    (planned.directory / "metrics.csv").write_text(
        "seed,iteration,frames,seconds,frames_per_second\n"
        f"0,1,{planned.settings.ppo.frames_per_iteration},1.0,{frames_per_second}\n"
    )
