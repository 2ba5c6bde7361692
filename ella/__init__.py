"""ELLA: reward shaping through learned language abstraction, on a JAX-native BabyAI.

The names below are the public interface; each is loaded when first used, so that `import ella`
starts no JAX.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ella import world
    from ella.adapters.host_ella import HostElla
    from ella.adapters.stable_baselines3 import ShapedVecEnv
    from ella.adapters.trained_judge import TrainedJudge
    from ella.errors import InputError
    from ella.methods.ella import ELLA
    from ella.methods.ella_oracle import ELLAOracle
    from ella.methods.ella_solvent import ELLASolvent
    from ella.methods.learn import LEARN
    from ella.methods.method import BuildContext, Method
    from ella.methods.noveld import NovelD
    from ella.methods.ppo import PPO
    from ella.methods.registry import register as register_method
    from ella.methods.ride import RIDE
    from ella.methods.rnd import RND
    from ella.networks.settings import NetworkSettings
    from ella.ppo.settings import PPOSettings
    from ella.runs.policies import load_policy
    from ella.shaping.ella import EllaShaper
    from ella.shaping.learn import LearnShaper
    from ella.shaping.noveld import NoveldShaper
    from ella.shaping.ride import RideShaper
    from ella.shaping.rnd import RndShaper
    from ella.shaping.shaper import AbstractRewardShaper, NoShaping, Sum
    from ella.training.evaluation import evaluate
    from ella.training.policy import Policy
    from ella.training.pure import training_function
    from ella.training.settings import TrainingSettings
    from ella.training.train import TrainingResult, train
    from ella.trajectory import Trajectory
    from ella.world.environment import Environment, make
    from ella.world.tasks import TaskSpec
    from ella.world.tasks import register as register_task

__version__ = "0.2.0"

_HOMES = {
    # the world
    "make": "ella.world.environment",
    "Environment": "ella.world.environment",
    "TaskSpec": "ella.world.tasks",
    "register_task": "ella.world.tasks:register",
    # training
    "train": "ella.training.train",
    "TrainingResult": "ella.training.train",
    "training_function": "ella.training.pure",
    "evaluate": "ella.training.evaluation",
    "load_policy": "ella.runs.policies",
    "Policy": "ella.training.policy",
    "TrainingSettings": "ella.training.settings",
    "PPOSettings": "ella.ppo.settings",
    "NetworkSettings": "ella.networks.settings",
    # methods, which are their settings
    "Method": "ella.methods.method",
    "BuildContext": "ella.methods.method",
    "register_method": "ella.methods.registry:register",
    "PPO": "ella.methods.ppo",
    "ELLA": "ella.methods.ella",
    "ELLAOracle": "ella.methods.ella_oracle",
    "ELLASolvent": "ella.methods.ella_solvent",
    "LEARN": "ella.methods.learn",
    "RIDE": "ella.methods.ride",
    "RND": "ella.methods.rnd",
    "NovelD": "ella.methods.noveld",
    # what they are built from
    "Trajectory": "ella.trajectory",
    "AbstractRewardShaper": "ella.shaping.shaper",
    "NoShaping": "ella.shaping.shaper",
    "Sum": "ella.shaping.shaper",
    "EllaShaper": "ella.shaping.ella",
    "LearnShaper": "ella.shaping.learn",
    "RideShaper": "ella.shaping.ride",
    "RndShaper": "ella.shaping.rnd",
    "NoveldShaper": "ella.shaping.noveld",
    # other environments and trainers
    "HostElla": "ella.adapters.host_ella",
    "ShapedVecEnv": "ella.adapters.stable_baselines3",
    "TrainedJudge": "ella.adapters.trained_judge",
    "InputError": "ella.errors",
}
"""The module of every public name, and its name there if it is another."""

__all__ = [
    "make",
    "Environment",
    "TaskSpec",
    "register_task",
    "train",
    "TrainingResult",
    "training_function",
    "evaluate",
    "load_policy",
    "Policy",
    "TrainingSettings",
    "PPOSettings",
    "NetworkSettings",
    "Method",
    "BuildContext",
    "register_method",
    "PPO",
    "ELLA",
    "ELLAOracle",
    "ELLASolvent",
    "LEARN",
    "RIDE",
    "RND",
    "NovelD",
    "Trajectory",
    "AbstractRewardShaper",
    "NoShaping",
    "Sum",
    "EllaShaper",
    "LearnShaper",
    "RideShaper",
    "RndShaper",
    "NoveldShaper",
    "HostElla",
    "ShapedVecEnv",
    "TrainedJudge",
    "InputError",
    "world",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "world":
        return importlib.import_module("ella.world")
    if name in _HOMES:
        module, _, inner = _HOMES[name].partition(":")
        return getattr(importlib.import_module(module), inner or name)
    raise AttributeError(f"module 'ella' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


if importlib.util.find_spec("gymnasium") is not None:
    from ella.adapters.gymnasium_registration import register_all

    register_all()
