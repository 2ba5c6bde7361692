"""Without the extra `train`: the world, the networks and the learner work; the commands say so."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class WithoutExtras:
    names = {"matplotlib", "orbax", "PIL", "rich", "tensorboard", "tyro"}

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)

sys.meta_path.insert(0, WithoutExtras())
"""
WORLD = """
import importlib, jax, ella
env = ella.make("goto-room")
play = jax.jit(lambda key: env.step(env.reset(key).state, 2))
print(int(play(jax.random.key(0)).state.step_count))
for room in ("methods.registry", "ppo.iteration", "offline.termination", "training.program"):
    importlib.import_module(f"ella.{room}")
"""
COMMAND = "from ella.cli import main; sys.exit(main(['tasks']))"


def python(*parts: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", "\n".join(parts)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_world_and_learner_need_no_extra() -> None:
    done = python(BLOCKED, WORLD)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"


def test_a_command_without_its_extra_is_one_line() -> None:
    done = python(BLOCKED, COMMAND)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("(in the clone: pip install -e '.[train]')\n")
    assert len(done.stderr.splitlines()) == 1
