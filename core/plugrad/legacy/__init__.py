"""RLlib's older names, in one place: what its documents of Ray 2.6 to 2.44 call things that have other names here.

They work, each with a `DeprecationWarning` that names the new one; `docs/from-rllib.md` is the list. `plugrad/__init__`
imports this package. When a room with such names is loaded, the file for it here registers them in
`plugrad.deprecation.adapters` (`ADAPTED_ROOMS`). The rest of plugrad works without it. `find` finds names of `plugrad`
itself (`plugrad.LearnerSpec`), and loads them when they are asked for.

- `learner`, `additional`, `saving`, `group`, `rl_module`, `settings`: older methods, added to the classes of today.
- `overrides`: calls a subclass's override of an older name in place of the new one.
- `arguments`: translates older arguments of calls and of overrides; `minibatches` does so for `reduce_fn=`.
- `instead`: what to use where plugrad has nothing of the kind; `algorithm` says it of an Algorithm.
- `specs`, `modules`, `constants`: what stands alone.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from plugrad.legacy.warning import warn_older

NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "DEFAULT_POLICY_ID": ("constants", "DEFAULT_MODULE_ID"),
        "ENTROPY_KEY": ("constants", "the key 'entropy'"),
        "LEARNER_RESULTS_CURR_KL_COEFF_KEY": ("constants", "the key 'curr_kl_coeff'"),
        "LEARNER_RESULTS_CURR_LR_KEY": ("constants", "the key 'curr_lr', or '<optimizer>_learning_rate'"),
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
"""`{older name: (its module here, what to use)}`."""


def find(name: str) -> Any:
    """What an older name of `plugrad` stands for; `AttributeError` for any other name."""
    if name not in NAMES:
        raise AttributeError(f"module 'plugrad' has no attribute {name!r}")
    room, new = NAMES[name]
    warn_older(f"plugrad.{name}", new)
    return getattr(import_module(f"plugrad.legacy.{room}"), name)


def _adapt(file: str) -> None:
    import_module(f"plugrad.legacy.{file}").adapt()


ADAPTED_ROOMS: Mapping[str, Callable[[], None]] = MappingProxyType(
    {
        "plugrad.config": partial(_adapt, "settings"),
        "plugrad.rl_module": partial(_adapt, "rl_module"),
        "plugrad.learner": partial(_adapt, "learner"),
        "plugrad.group": partial(_adapt, "group"),
        "plugrad.algorithm": partial(_adapt, "algorithm"),
    }
)
"""`{room: what makes the older names of its classes work}`."""
