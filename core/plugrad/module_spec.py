"""Specs of modules: what a backend builds a module from, as plain data."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import gymnasium as gym

from plugrad.deprecation import hint_for
from plugrad.errors import ConfigError
from plugrad.model_config import MODEL_CONFIG as MODEL_CONFIG
from plugrad.model_config import complete_model_config
from plugrad.types import DEFAULT_MODULE_ID, ModuleID


@dataclass(frozen=True, kw_only=True)
class RLModuleSpec:
    """What one module is built from.

    Args:
        module_class: your own class, or its name "package.module:Name": an `RLModule` of the backend's framework, or a
            model (`torch.nn.Module`, Keras model). The model's constructor gets whichever of `observation_space`,
            `action_space` and `model_config` its signature names. None: the algorithm's built-in network.
        observation_space: space of one observation, without batch dimension; None: the config's or environment's.
        action_space: space of one action; None: the config's or environment's.
        model_config: settings of the network. A built-in network has the keys and defaults of
            `plugrad.model_config.MODEL_SETTINGS`; a `module_class` gets the dict unchanged.
        inference_only: build without what only training needs (the value network).
        load_state_path: RLlib's; refused: a spec is part of checkpoints, which read no other file.
    """

    module_class: Any = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict)
    inference_only: bool = False
    load_state_path: InitVar[Any] = None

    def __post_init__(self, load_state_path: Any) -> None:
        if load_state_path is not None:
            raise ConfigError(f"RLModuleSpec has no load_state_path.{hint_for('load_state_path')}")

    @classmethod
    def from_module(cls, module: Any) -> "RLModuleSpec":
        """The spec that a module was built from, for another one like it.

        Args:
            module: an RLModule: a built-in network, or of your own class.

        Returns:
            A spec with its class, spaces and `model_config`; not its weights.

        Raises:
            ConfigError: it was made of a model (`torch.nn.Module`, Keras, flax), whose class it does not know.
        """
        is_network = getattr(module, "network", None) is not None
        if not is_network and module.class_name != type(module).__name__:
            raise ConfigError(
                f"RLModuleSpec.from_module(): this {type(module).__name__} was made of a model: give the model's "
                "class, RLModuleSpec(module_class=YourModel)"
            )
        return cls(
            module_class=None if is_network else type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            model_config=module.model_config,
            inference_only=module.inference_only,
        )

    def complete(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> "RLModuleSpec":
        """A copy in which missing spaces are filled in.

        Args:
            observation_space: used if this spec has none.
            action_space: used if this spec has none.

        Returns:
            The completed spec; its spaces are still None where neither gives one.
        """
        return replace(
            self,
            observation_space=observation_space if self.observation_space is None else self.observation_space,
            action_space=action_space if self.action_space is None else self.action_space,
        )

    def check_spaces(self, module_id: ModuleID) -> None:
        """Check that both spaces are given.

        Args:
            module_id: the module's id, for the error.

        Raises:
            ConfigError: a space is missing or is not a `gymnasium.Space`.
        """
        for name in ("observation_space", "action_space"):
            space = getattr(self, name)
            if not isinstance(space, gym.Space):
                raise ConfigError(
                    f"module {module_id!r} has no {name} (found {space!r}): give it in RLModuleSpec, "
                    "config.environment(...), or spaces={module_id: (observation_space, action_space)}"
                )

    def build(self) -> Any:
        """Build a module of `module_class` without a learner.

        Raises:
            ConfigError: `module_class` is not an RLModule class; then only a learner, which knows the backend, can
                build it.
        """
        if not hasattr(self.module_class, "forward_train"):
            raise ConfigError(
                "RLModuleSpec.build() makes modules of an RLModule class; what another spec describes depends on the "
                "backend: PPOConfig().framework(...).rl_module(rl_module_spec=spec).build_learner().module"
            )
        return self.module_class(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The arguments of an RLModule's constructor: all but `module_class`."""
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "model_config": self.model_config,
            "inference_only": self.inference_only,
        }

    def network_config(self, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """All settings of a network: `model_config` over the defaults of `plugrad.model_config.MODEL_SETTINGS`.

        Args:
            own: further keys that the network reads, `{key: ModelSetting}` or `{key: default}` (not checked); also
                other defaults for known keys.

        Returns:
            Every key with its value.

        Raises:
            ConfigError: `model_config` has a key that the network does not read, or a value that is not valid.
        """
        return complete_model_config(self.model_config, own)


@dataclass(frozen=True, kw_only=True)
class MultiRLModuleSpec:
    """What several modules are built from.

    Args:
        rl_module_specs: `{module_id: RLModuleSpec}`.
        multi_rl_module_class: RLlib's; `MultiRLModule` alone.
    """

    rl_module_specs: Mapping[ModuleID, RLModuleSpec] = field(default_factory=dict)
    multi_rl_module_class: InitVar[Any] = None

    def __post_init__(self, multi_rl_module_class: Any) -> None:
        if multi_rl_module_class is not None and multi_rl_module_class.__name__ != "MultiRLModule":
            raise ConfigError(
                f"multi_rl_module_class={multi_rl_module_class.__name__}: several modules are a MultiRLModule; what "
                "they share belongs into a Learner's compute_losses, and layers that two modules share into both"
            )

    def build(self) -> Any:
        """Not possible without a learner, unlike in RLlib.

        Raises:
            ConfigError: always; the message says what to write instead.
        """
        raise ConfigError(
            "MultiRLModuleSpec.build(): type MultiRLModule({id_: each.build() for id_, each in "
            "spec.rl_module_specs.items()}), or give the spec to config.rl_module(rl_module_spec=spec)"
        )


# --- the modules that a config names: their ids, specs and spaces ---


def specs_of(config: Any) -> dict[ModuleID, RLModuleSpec | None]:
    """The spec of each module that `rl_module_spec` or `policies` names; None if neither has a spec for it.

    `policies={id: spec}` gives a module its own spec; `rl_module_spec=RLModuleSpec(...)` is for all other modules.

    Raises:
        ConfigError: a module has two different specs.
    """
    common = config.rl_module_spec
    own = common.rl_module_specs if isinstance(common, MultiRLModuleSpec) else {}
    others: dict[ModuleID, RLModuleSpec | None] = {}
    if isinstance(config.policies, Mapping):
        others = dict(config.policies)
    elif config.policies is not None:
        others = dict.fromkeys(config.policies)
    elif not own:  # nothing names a module
        others = {DEFAULT_MODULE_ID: None}
    for module_id, spec in others.items():
        if None not in (spec, own.get(module_id)) and spec != own[module_id]:
            raise ConfigError(
                f"module {module_id!r} has two specs: policies says {spec!r:.200} and rl_module_spec "
                f"{own[module_id]!r:.200}; give one of them",
                module_id=module_id,
            )
    default = None if isinstance(common, MultiRLModuleSpec) else common
    return {**{module_id: default if spec is None else spec for module_id, spec in others.items()}, **own}


def names_modules(config: Any) -> bool:
    """Whether a config names modules; else there is the default one, or those that a learner is given."""
    return config.policies is not None or isinstance(config.rl_module_spec, MultiRLModuleSpec)


def spaces_of(config: Any, module_id: ModuleID) -> tuple[Any, Any]:
    """The spaces of one module: its spec's, or else the config's.

    Args:
        config: an `AlgorithmConfig`.
        module_id: the module.

    Returns:
        `(observation_space, action_space)`; None if neither has one.
    """
    spec = (specs_of(config).get(module_id) or RLModuleSpec()).complete(
        config.observation_space, config.action_space
    )
    return spec.observation_space, spec.action_space
