"""RLlib's older names, in one place: what its documents of Ray 2.6 to 2.44 call things that have other names here.

They work, each with a `DeprecationWarning` that names the new one; `docs/from-rllib.md` is the list. `plugrad/__init__`
imports this package, which registers everything in `plugrad.deprecation.adapters`. The rest of plugrad works without
it. `find` finds names of `plugrad` itself (`plugrad.LearnerSpec`), and loads them when they are asked for.

- `learner`, `additional`, `saving`, `group`, `rl_module`, `settings`: older methods, added to the classes of today.
- `overrides`: calls a subclass's override of an older name in place of the new one.
- `arguments`: translates older arguments of calls and of overrides; `minibatches` does so for `reduce_fn=`.
- `instead`: what to use where plugrad has nothing of the kind.
- `specs`, `modules`, `constants`: what stands alone.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from plugrad.config import Config
from plugrad.deprecation.adapters import adapt_calls, adapt_subclasses, add_hints, add_names
from plugrad.group import LearnerGroup
from plugrad.learner import Learner
from plugrad.legacy import arguments, group, learner, rl_module, settings
from plugrad.legacy.additional import OlderUpdates
from plugrad.legacy.instead import INSTEAD
from plugrad.legacy.overrides import honour_overrides
from plugrad.legacy.saving import OlderSaving
from plugrad.legacy.warning import warn_older
from plugrad.rl_module import MultiRLModule, RLModule

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


add_hints(INSTEAD)
add_names(Learner, learner.OlderLearner, OlderUpdates, OlderSaving)
add_names(LearnerGroup, group.OlderLearnerGroup, OlderSaving)
add_names(RLModule, rl_module.OlderRLModule)
add_names(MultiRLModule, rl_module.OlderRLModule)
add_names(Config, settings.OlderConfig)

adapt_calls(Learner.update, arguments.call_update)
for _name in arguments.TAKES_HPS:
    adapt_calls(getattr(Learner, _name), arguments.call_with_config)
adapt_calls(LearnerGroup.__init__, group.init_group)
adapt_calls(LearnerGroup.update, arguments.call_group_update)
adapt_calls(Config._change, settings.change_settings)

adapt_subclasses(Learner, arguments.translate_overrides)
adapt_subclasses(Learner, partial(honour_overrides, Learner, learner.BRIDGES))
adapt_subclasses(LearnerGroup, partial(honour_overrides, LearnerGroup, group.BRIDGES))
adapt_subclasses(RLModule, partial(honour_overrides, RLModule, rl_module.BRIDGES))
