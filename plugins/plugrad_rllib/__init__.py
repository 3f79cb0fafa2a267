"""What only RLlib's users need: the older names, `plugrad migrate`, RLlib's environments, and its defaults.

Older names are what RLlib's documents of Ray 2.6 to 2.44 call things that have other names in plugrad. They work, each
with a `DeprecationWarning` that names the new one; `docs/from-rllib.md` is the list. The core has their spelling, in
`plugrad.deprecation.older_names`, and loads this package when one is used. The functions here are what it calls.

- `migrate`: the command, which rewrites programs for RLlib.
- `environments`: RLlib's interface to environments of many agents; `agent_groups`, `atari`: wrappers of environments.
- `callbacks`: RLlib's callbacks are listeners; `episodes` and `metrics_logger` are what they get.
- `connectors`: observation preprocessors and simple env-to-module pieces are wrappers of environments.
- `env_runners`, `running_algorithm`: what callbacks get, by RLlib's names; a callback may change environments there.
- `learner_connectors`: pieces of RLlib's learner connectors; `distributions`: what modules derive their own from.
- `arrays`: small functions of arrays that modules and environments import.
- `defaults`: RLlib's values of settings that have another default here.

Of the older names:

- `learner`, `additional`, `saving`, `group`, `modules`, `settings`: older methods, added to the classes of today.
- `overrides`: sees each subclass, and calls its override of an older name in place of the new one.
- `arguments`: translates older arguments of calls and of overrides; `minibatches` does so for `reduce_fn=`.
- `instead`: what to use where plugrad has nothing of the kind.
- `specs`, `modules`, `constants`: classes and values of older names.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from plugrad_rllib.warning import warn_older

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
"""`{older name of plugrad: (its module here, what to use)}`."""
COMMANDS: Mapping[str, str] = MappingProxyType({"migrate": "plugrad_rllib.migrate.command:migrate"})
"""Commands of the command line: `{name: "module:function"}`."""
ADAPTING = ("settings", "modules", "learner", "group")
"""Modules here that change classes of the core."""


def find(name: str) -> Any:
    """What a name of `NAMES` stands for."""
    module, new = NAMES[name]
    warn_older(f"plugrad.{name}", new)
    return getattr(import_module(f"plugrad_rllib.{module}"), name)


def adapt() -> None:
    """Make the older names of the core's classes work, and overrides by them in the subclasses that exist."""
    for module in ADAPTING:
        import_module(f"plugrad_rllib.{module}").adapt()


def adapt_subclass(cls: type[Any]) -> None:
    """Make a new subclass's overrides of older names work."""
    import_module("plugrad_rllib.overrides").adapt_subclass(cls)


def settings_of_today(config: Any, section: str, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A config and the arguments of its fluent method, by their names of today."""
    found: tuple[Any, dict[str, Any]]
    found = import_module("plugrad_rllib.settings").settings_of_today(config, section, settings)
    return found


def update(
    method: Callable[..., Any], owner: Any, older: Mapping[str, Any], settings: Mapping[str, Any]
) -> Any:
    """Call `update` of a Learner or LearnerGroup, which was given older arguments beside the others."""
    return import_module("plugrad_rllib.arguments").call_update(method, owner, older, settings)


def with_config(owner: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a learner's method with `config=` in place of `hps=`."""
    found: dict[str, Any] = import_module("plugrad_rllib.arguments").with_config(owner, arguments)
    return found


def what_to_use(name: str, kind: str = "setting") -> str | None:
    """What to use in place of a name that plugrad does not have; None if there is nothing to say.

    Args:
        name: the name.
        kind: "setting" (also a config's method, or an argument of `update`), or an attribute of "Learner" or
            "Algorithm".
    """
    text: str | None = import_module("plugrad_rllib.instead").BY_KIND[kind].get(name)
    return text


def agents_class() -> type[Any]:
    """The subclass of `AgentEnv` for environments with RLlib's interface to many agents."""
    found: type[Any] = import_module("plugrad_rllib.environments").RLlibAgents
    return found


def defaults_of(config_class: type[Any]) -> dict[str, Any]:
    """RLlib's values of the settings of a config class that have another default in plugrad.

    Raises:
        ConfigError: they are not known.
    """
    found: dict[str, Any] = import_module("plugrad_rllib.defaults").defaults_of(config_class)
    return found
