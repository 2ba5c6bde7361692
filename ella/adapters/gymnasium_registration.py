"""Names for `gymnasium.make` and `gymnasium.make_vec`; importing this loads no JAX."""

import gymnasium

ENVIRONMENT_IDS = {
    "goto-room": "ELLA/GoTo-Room-v0",
    "goto-maze": "ELLA/GoTo-Maze-v0",
    "open-maze": "ELLA/Open-Maze-v0",
    "pick-maze": "ELLA/Pick-Maze-v0",
    "opengoto-maze": "ELLA/OpenGoTo-Maze-v0",
    "putnext-room": "ELLA/PutNext-Room-v0",
    "putnext-maze": "ELLA/PutNext-Maze-v0",
    "unlock-maze": "ELLA/Unlock-Maze-v0",
    "openpick-maze": "ELLA/OpenPick-Maze-v0",
    "combo-maze": "ELLA/Combo-Maze-v0",
    "sequence-maze": "ELLA/Sequence-Maze-v0",
}
"""Gymnasium's ids by task name."""


def register_all() -> None:
    """Make every named task known to Gymnasium; calling it again changes nothing."""
    for task, environment_id in ENVIRONMENT_IDS.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                environment_id,
                entry_point="ella.adapters.gymnasium_env:EllaEnv",
                vector_entry_point="ella.adapters.gymnasium_vector:EllaVectorEnv",
                kwargs={"task": task},
            )
