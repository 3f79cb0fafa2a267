"""Specs of modules: what a backend builds a module from, as plain data."""

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
"""The keys of `model_config` that the built-in networks read, with their defaults. The names are RLlib's.

- `fcnet_hiddens`: the widths of the dense hidden layers, whole numbers above 0.
- `fcnet_activation`: "tanh", "relu", "sigmoid" or "linear", after each dense hidden layer.
- `conv_filters`: convolutions before the dense layers, `[[out channels, kernel, stride], ...]`; [] for none. None:
  three for images [height, width, channels] or [channels, height, width] of 20x20 and more, else none; other images of
  uint8 need the setting.
- `conv_activation`: as `fcnet_activation`, after each convolution.
- `vf_share_layers`: whether the policy and the value function share one encoder.
- `free_log_std`: for Box actions, whether the log of the standard deviation is a parameter (True) or an output of the
  policy network (False).
- `use_lstm`: whether an LSTM follows each encoder; the module then has a recurrent state.
- `lstm_cell_size`: the number of cells of each LSTM.
- `max_seq_len`: the number of steps of the sequences that a stateful module is trained on, also a module of your own.
"""


@dataclass(frozen=True, kw_only=True)
class RLModuleSpec:
    """What one module is built from.

    Args:
        module_class: your own class, or its name "package.module:Name". Either an `RLModule` of the backend's
            framework, or a model (`torch.nn.Module`, Keras model) whose constructor gets those of `observation_space`,
            `action_space` and `model_config` that its signature names. None: the algorithm's built-in network.
        observation_space: of one observation, without batch dimension; None: that of the config or environment.
        action_space: of one action; None: that of the config or environment.
        model_config: settings. A built-in network has the keys and defaults of `MODEL_CONFIG`; a `module_class` gets
            the dict as it is.
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
        """A copy with spaces where this spec has none.

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
            ConfigError: a space is missing or is no `gymnasium.Space`.
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
            ConfigError: `module_class` is not an RLModule class: only a learner knows the backend to build it with.
        """
        if not hasattr(self.module_class, "forward_train"):
            raise ConfigError(
                "RLModuleSpec.build() makes modules of an RLModule class; what another spec describes depends on the "
                "backend: PPOConfig().framework('torch').rl_module(rl_module_spec=spec).build_learner().module"
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
        """All settings of a network: `model_config` merged over `MODEL_CONFIG`.

        Args:
            own: further keys that the network reads, with their defaults; also other defaults of known keys.

        Returns:
            Every key with its value.

        Raises:
            ConfigError: `model_config` has a key that the network does not read.
        """
        known = {**MODEL_CONFIG, **(own or {})}
        for key in self.model_config:
            if key not in known:
                hint = did_you_mean(key, known)
                raise ConfigError(f"model_config has no key {key!r}; there are {', '.join(known)}.{hint}")
        return {**known, **self.model_config}


@dataclass(frozen=True, kw_only=True)
class MultiRLModuleSpec:
    """What several modules are built from.

    Args:
        rl_module_specs: `{module_id: RLModuleSpec}`.
    """

    rl_module_specs: Mapping[ModuleID, RLModuleSpec] = field(default_factory=dict)

    def build(self) -> Any:
        """Not possible without a learner, unlike in RLlib.

        Raises:
            ConfigError: always, with what to write instead.
        """
        raise ConfigError(
            "MultiRLModuleSpec.build(): type MultiRLModule({id_: each.build() for id_, each in "
            "spec.rl_module_specs.items()}), or give the spec to config.rl_module(rl_module_spec=spec)"
        )
