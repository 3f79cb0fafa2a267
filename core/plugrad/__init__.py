"""plugrad: the training core of reinforcement learning.

Learner and LearnerGroup as in RLlib, free of RLlib, for any framework. Importing plugrad loads no framework and no
plugin. RLlib's older names are found in `plugrad.legacy`, with a warning.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugrad.algorithm_config import AlgorithmConfig, OfflineConfig, OffPolicyConfig
from plugrad.batch import MultiAgentBatch
from plugrad.columns import Columns
from plugrad.contract import CONTRACT_VERSION
from plugrad.episodes import MultiAgentEpisode, SingleAgentEpisode
from plugrad.errors import PlugradError
from plugrad.group import LearnerGroup
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.hooks.registry import get_algorithm, list_plugins
from plugrad.learner import Learner
from plugrad.learner.load_policy import load_policy
from plugrad.legacy import find as _find_older_name
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.rl_module.random_module import RandomRLModule
from plugrad.types import (
    ALL_MODULES,
    COMPONENT_LEARNER,
    COMPONENT_OPTIMIZER,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
    DEFAULT_OPTIMIZER,
)

__all__ = [
    "ALL_MODULES",
    "COMPONENT_LEARNER",
    "COMPONENT_OPTIMIZER",
    "COMPONENT_RL_MODULE",
    "CONTRACT_VERSION",
    "DEFAULT_MODULE_ID",
    "DEFAULT_OPTIMIZER",
    "AlgorithmConfig",
    "Columns",
    "Learner",
    "LearnerGroup",
    "LearnerProtocol",
    "MultiAgentBatch",
    "MultiAgentEpisode",
    "MultiRLModule",
    "MultiRLModuleSpec",
    "OffPolicyConfig",
    "OfflineConfig",
    "PlugradError",
    "RLModule",
    "RLModuleSpec",
    "RandomRLModule",
    "SingleAgentEpisode",
    "get_algorithm",
    "hookimpl",
    "list_plugins",
    "load_policy",
]

__path__.append(str(Path(__file__).with_name("moved")))  # import paths of before, each with a warning

if not TYPE_CHECKING:  # a type checker refuses names that do not exist

    def __getattr__(name: str) -> Any:
        return _find_older_name(name)
