"""`from ella import HostElla, ShapedVecEnv`, with and without Stable-Baselines3."""

import subprocess
import sys

import pytest

import ella
from ella.adapters import host_ella, stable_baselines3, trained_judge

WITHOUT = """
import sys

class Without:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in {"stable_baselines3", "torch"}:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)

sys.meta_path.insert(0, Without())
from ella import HostElla, TrainedJudge
try:
    from ella import ShapedVecEnv
except ModuleNotFoundError as error:
    print(error)
"""


def test_names_of_the_package_are_those_of_the_adapters():
    assert ella.HostElla is host_ella.HostElla
    assert ella.ShapedVecEnv is stable_baselines3.ShapedVecEnv
    assert ella.TrainedJudge is trained_judge.TrainedJudge


@pytest.mark.thorough
def test_without_stable_baselines_only_its_wrapper_is_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "pip install -e '.[stable-baselines3]'" in done.stdout
