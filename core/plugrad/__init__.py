"""plugrad: the training core of reinforcement learning.

Learner and LearnerGroup as in RLlib, without RLlib, for any framework. Importing plugrad loads no framework, no plugin
and no numpy: a name is loaded when it is first used. RLlib's older names are in
the plugin `plugrad_rllib`; each warns.
"""

from typing import TYPE_CHECKING, Any

from plugrad.importing.on_use import imported_on_use

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm, AlgorithmBatch
    from plugrad.algorithm_config import AlgorithmConfig, OfflineConfig, OffPolicyConfig
    from plugrad.batch import MultiAgentBatch
    from plugrad.columns import Columns
    from plugrad.contract import CONTRACT_VERSION
    from plugrad.episodes import MultiAgentEpisode, SingleAgentEpisode
    from plugrad.errors import PlugradError
    from plugrad.group import LearnerGroup
    from plugrad.hooks.learner_protocol import LearnerProtocol
    from plugrad.hooks.markers import hookimpl
    from plugrad.hooks.plugin_records import list_plugins
    from plugrad.hooks.registry import get_algorithm
    from plugrad.learner import Learner
    from plugrad.learner.acting.saved_policy import load_policy
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
    "Algorithm",
    "AlgorithmBatch",
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

_PLACES = {
    "Algorithm": "plugrad.algorithm",
    "AlgorithmBatch": "plugrad.algorithm",
    "AlgorithmConfig": "plugrad.algorithm_config",
    "OfflineConfig": "plugrad.algorithm_config",
    "OffPolicyConfig": "plugrad.algorithm_config",
    "MultiAgentBatch": "plugrad.batch",
    "Columns": "plugrad.columns",
    "CONTRACT_VERSION": "plugrad.contract",
    "MultiAgentEpisode": "plugrad.episodes",
    "SingleAgentEpisode": "plugrad.episodes",
    "PlugradError": "plugrad.errors",
    "LearnerGroup": "plugrad.group",
    "LearnerProtocol": "plugrad.hooks.learner_protocol",
    "hookimpl": "plugrad.hooks.markers",
    "get_algorithm": "plugrad.hooks.registry",
    "list_plugins": "plugrad.hooks.plugin_records",
    "Learner": "plugrad.learner",
    "load_policy": "plugrad.learner.acting.saved_policy",
    "MultiRLModuleSpec": "plugrad.module_spec",
    "RLModuleSpec": "plugrad.module_spec",
    "MultiRLModule": "plugrad.rl_module",
    "RLModule": "plugrad.rl_module",
    "RandomRLModule": "plugrad.rl_module.random_module",
    "ALL_MODULES": "plugrad.types",
    "COMPONENT_LEARNER": "plugrad.types",
    "COMPONENT_OPTIMIZER": "plugrad.types",
    "COMPONENT_RL_MODULE": "plugrad.types",
    "DEFAULT_MODULE_ID": "plugrad.types",
    "DEFAULT_OPTIMIZER": "plugrad.types",
}
"""`{name: the module that defines it}`; a test compares them with the imports for type checkers."""

if not TYPE_CHECKING:  # a type checker refuses names that do not exist

    def _find_other(name: str) -> Any:
        if name != "__version__":
            from plugrad.deprecation.older_names import find_older_name

            return find_older_name(name)
        from importlib.metadata import version

        globals()[name] = version("plugrad")
        return globals()[name]

    __getattr__, __dir__ = imported_on_use(__name__, _PLACES, _find_other)
