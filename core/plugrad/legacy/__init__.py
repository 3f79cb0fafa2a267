"""RLlib's older names, in one place: what its documents of Ray 2.6 to 2.44 call things that have other names here.

They work, each with a `DeprecationWarning` that names the new one; `docs/from-rllib.md` is the list. Names of `plugrad`
itself (`plugrad.LearnerSpec`) are found here when they are asked for, so that importing plugrad loads none of them.
The rooms: `learner`, `group` and `settings` are mixed into the classes that they extend; `specs`, `modules` and
`constants` hold what stands alone; `overrides` calls a subclass's override of an older name in place of the new one,
`arguments` translates older arguments, `instead` says what to use where plugrad has nothing of the kind.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from plugrad.legacy.warning import warn_older

NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "DEFAULT_POLICY_ID": ("constants", "DEFAULT_MODULE_ID"),
        "ENTROPY_KEY": ("constants", "the key 'entropy'"),
        "LEARNER_RESULTS_CURR_KL_COEFF_KEY": ("constants", "the key 'curr_kl_coeff'"),
        "LEARNER_RESULTS_CURR_LR_KEY": (
            "constants",
            "the key 'curr_lr', or '<optimizer>_learning_rate'",
        ),
        "POLICY_LOSS_KEY": ("constants", "the key 'policy_loss'"),
        "VF_LOSS_KEY": ("constants", "the key 'vf_loss'"),
        "TorchCompileWhatToCompile": ("constants", "config.framework(compile='forward_train')"),
        "FrameworkHyperparameters": ("specs", "AlgorithmConfig.framework(...)"),
        "LearnerGroupScalingConfig": ("specs", "AlgorithmConfig.learners(...)"),
        "LearnerHyperparameters": ("specs", "AlgorithmConfig.training(...)"),
        "LearnerSpec": ("specs", "AlgorithmConfig.build_learner()"),
        "MultiAgentRLModule": ("modules", "MultiRLModule"),
        "MultiAgentRLModuleSpec": ("modules", "MultiRLModuleSpec"),
        "SampleBatch": ("modules", "a dict {column: array}"),
        "SingleAgentRLModuleSpec": ("modules", "RLModuleSpec"),
    }
)
"""`{older name: (its room, what to use)}`."""


def find(name: str) -> Any:
    """What an older name of `plugrad` stands for.

    Raises:
        AttributeError: it is none.
    """
    if name not in NAMES:
        raise AttributeError(f"module 'plugrad' has no attribute {name!r}")
    room, new = NAMES[name]
    warn_older(f"plugrad.{name}", new, stacklevel=4)
    return getattr(import_module(f"plugrad.legacy.{room}"), name)
