"""When the relevance classifier of a host run is updated."""

from dataclasses import dataclass

from ella.errors import InputError


@dataclass
class UpdateSchedule:
    """Updates after intervals that grow with the run: half the steps so far, at least
    `first_update` and at most `update_every`.

    A short run gets its updates and a long one as many as the paper's. An update that is due waits
    for a success, without which there is nothing new to learn from.
    """

    first_update: int
    update_every: int
    steps: int = 0
    """Of all environments together."""
    next_update: int = 0
    new_successes: int = 0
    """Since the last update."""

    def __post_init__(self) -> None:
        for name in ("first_update", "update_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")
        self.first_update = min(self.first_update, self.update_every)
        self.next_update = self.first_update

    def due(self, steps: int, successes: int) -> bool:
        """Count new steps and successes; whether an update follows them."""
        self.steps += steps
        self.new_successes += successes
        if self.steps < self.next_update or not self.new_successes:
            return False
        interval = min(max(self.steps // 2, self.first_update), self.update_every)
        self.next_update = self.steps + interval
        self.new_successes = 0
        return True

    def counts(self) -> dict[str, int]:
        """What a saved run continues with."""
        return {
            "steps": self.steps,
            "next_update": self.next_update,
            "new_successes": self.new_successes,
        }

    def restored(self, counts: dict[str, int]) -> "UpdateSchedule":
        """The same schedule with the counts of a saved run; KeyError if one is missing."""
        schedule = UpdateSchedule(self.first_update, self.update_every)
        schedule.steps = int(counts["steps"])
        schedule.next_update = int(counts["next_update"])
        schedule.new_successes = int(counts["new_successes"])
        return schedule
