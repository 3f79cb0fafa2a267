"""What a module is to be, before any framework builds it: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from plugrad.errors import ConfigError, did_you_mean
from plugrad.types import ModuleID

MODEL_CONFIG: dict[str, Any] = {
    "fcnet_hiddens": (64, 64),
    "fcnet_activation": "tanh",
    "conv_filters": None,
    "conv_activation": "relu",
    "vf_share_layers": False,
    "free_log_std": True,
    "use_lstm": False,
    "lstm_cell_size": 256,
    "max_seq_len": 20,
}
"""Keys of `model_config` that the built-in networks read, with their defaults (names as in RLlib).

`conv_filters` are `[[out channels, kernel, stride], ...]`; None means none, but three of them for observations
[height, width, channels] or [channels, height, width] of 20x20 and more; other images of uint8 need the setting.
`use_lstm` puts a memory of `lstm_cell_size` cells on top of each tower; `max_seq_len` is the length of the sequences
that a stateful module, also one of your own, is trained on.
"""


@dataclass(frozen=True, kw_only=True)
class RLModuleSpec:
    """One module.

    Args:
        module_class: a class of your own, or its name "package.module:Name": an `RLModule` of the backend's framework,
            or a model (`torch.nn.Module`, Keras model), which is called with those of `observation_space`,
            `action_space` and `model_config` that its signature names. None builds the backend's network.
        observation_space: of one observation, without batch dimension.
        action_space: of one action.
        model_config: settings of the networks, merged over `MODEL_CONFIG`; passed as given to a `module_class`.
        inference_only: build without what only training needs (the value network).
    """

    module_class: Any = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict)
    inference_only: bool = False

    def complete(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> "RLModuleSpec":
        """A copy with the spaces filled in where this one has none."""
        return replace(
            self,
            observation_space=observation_space if self.observation_space is None else self.observation_space,
            action_space=action_space if self.action_space is None else self.action_space,
        )

    def build(self) -> Any:
        """A module of `module_class`, outside of any learner.

        Raises:
            ConfigError: `module_class` is no class of RLModules: only a learner knows its backend.
        """
        if not hasattr(self.module_class, "forward_train"):
            raise ConfigError(
                "RLModuleSpec.build() makes modules of an RLModule class; what another spec describes depends on the "
                "backend: PPOConfig().framework('torch').rl_module(rl_module_spec=spec).build_learner().module"
            )
        return self.module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config=self.model_config,
            inference_only=self.inference_only,
        )

    def network_config(self) -> dict[str, Any]:
        """`model_config` over the defaults.

        Raises:
            ConfigError: for a key that no built-in network reads.
        """
        for key in self.model_config:
            if key not in MODEL_CONFIG:
                hint = did_you_mean(key, MODEL_CONFIG)
                raise ConfigError(
                    f"model_config has no key {key!r}; there are {', '.join(MODEL_CONFIG)}.{hint}"
                )
        return {**MODEL_CONFIG, **self.model_config}


@dataclass(frozen=True, kw_only=True)
class MultiRLModuleSpec:
    """Several modules: `{module_id: RLModuleSpec}`."""

    rl_module_specs: Mapping[ModuleID, RLModuleSpec] = field(default_factory=dict)

    def build(self) -> Any:
        """RLlib's way to modules without a learner.

        Raises:
            ConfigError: always, with what to type.
        """
        raise ConfigError(
            "MultiRLModuleSpec.build(): type MultiRLModule({id_: each.build() for id_, each in "
            "spec.rl_module_specs.items()}), or give the spec to config.rl_module(rl_module_spec=spec)"
        )
