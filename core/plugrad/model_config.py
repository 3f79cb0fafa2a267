"""The keys of `model_config`: the settings of the built-in networks, with their defaults, checks and meanings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from plugrad.deprecation import hint_for
from plugrad.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class ModelSetting:
    """One key of `model_config`.

    Args:
        default: its value where the user gives none.
        expects: a description of its values, such as "a whole number above 0".
        is_valid: a function that says whether a value is valid.
        help: what it does.
    """

    default: Any
    expects: str
    is_valid: Callable[[Any], bool]
    help: str

    def check(self, name: str, value: Any) -> None:
        """Check a value.

        Args:
            name: the key.
            value: its value.

        Raises:
            ConfigError: the value is not valid.
        """
        if not self.is_valid(value):
            raise ConfigError(f"{name}={value!r:.100}: must be {self.expects}")
        if too_large := [each for each in _whole_numbers(value) if each > _MAX_SIZE]:
            raise ConfigError(
                f"{name}={value!r:.100}: {too_large[0]} is above {_MAX_SIZE}; layers and sequences of that size are "
                "reserved in memory"
            )


_MAX_SIZE = 1_000_000
"""The largest width of a layer, kernel of a convolution and length of a sequence that can be meant."""


def _whole_numbers(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [number for each in value for number in _whole_numbers(each)]
    return [value] if isinstance(value, int) else []


def is_count(value: Any) -> bool:
    """Whether a value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_list_of(is_entry: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(is_entry, value))


def _is_filter(value: Any) -> bool:
    return _is_list_of(is_count)(value) and len(value) == 3


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _choice(default: str, *others: str, help: str) -> ModelSetting:
    choices = (default, *others)
    return ModelSetting(default, f"one of {', '.join(choices)}", choices.__contains__, help)


def _switch(default: bool, help: str) -> ModelSetting:
    return ModelSetting(default, "True or False", lambda value: isinstance(value, bool), help)


def _count(default: int, help: str) -> ModelSetting:
    return ModelSetting(default, "a whole number above 0", is_count, help)


_ACTIVATIONS = ("relu", "sigmoid", "linear")
_LAYERS = "a list of whole numbers above 0, such as [64, 64]"
_FILTERS = (
    "None, or a list of [out channels, kernel, stride], whole numbers above 0, such as [[16, 4, 2], [32, 4, 2]]; "
    "[] for no convolutions; or one of nature, world_models, minatar"
)
_CONV_PRESETS = ("nature", "world_models", "minatar")
CRITIC_ONLY = "critic_only"
UINT8_SCALE = "uint8_scale"
UINT8_RULE, OLDER_UINT8_RULE = "part", "row"
"""How the uint8 parts of a Dict or Tuple are scaled: now, and by versions that did not say."""
CRITIC_OBS = "critic_obs"
"""The key that the setting `critic_obs` adds to observations; only critics read it."""
ACTION_DISTRIBUTION, BETA, GSDE = "action_distribution", "beta", "gsde"
PREV_ACTION, PREV_REWARD = "prev_action", "prev_reward"
"""The keys that `use_prev_action` and `use_prev_reward` add to observations."""
USE_PREV = (f"use_{PREV_ACTION}", f"use_{PREV_REWARD}")

MODEL_SETTINGS: Mapping[str, ModelSetting] = {
    "fcnet_hiddens": ModelSetting(
        (64, 64), _LAYERS, _is_list_of(is_count), "widths of the dense hidden layers"
    ),
    "fcnet_activation": _choice("tanh", *_ACTIVATIONS, help="activation after each dense hidden layer"),
    "layer_norm": _switch(
        False,
        "normalise the outputs of each dense hidden layer, before its activation",
    ),
    "conv_filters": ModelSetting(
        None,
        _FILTERS,
        lambda value: value is None or value in _CONV_PRESETS or _is_list_of(_is_filter)(value),
        "convolutions of images, before the dense layers. None: three for images of 20x20 and more, one for uint8 "
        "images [10, 10, channels]; other images of uint8 need the setting. Published ones by name: nature for 84x84, "
        "world_models for 64x64, minatar for 10x10",
    ),
    "image_layout": ModelSetting(
        None,
        "None, or one of channels_first, channels_last",
        (None, "channels_first", "channels_last").__contains__,
        "order of the axes of images with channels. None: by their lengths, see docs/images.md",
    ),
    UINT8_SCALE: _choice(
        UINT8_RULE,
        OLDER_UINT8_RULE,
        help="uint8 numbers of a Dict or Tuple are divided by the highest bound of their own part. row: as in older "
        "checkpoints, by the highest bound of all parts if all are uint8, else by 1",
    ),
    "conv_activation": _choice("relu", "tanh", "sigmoid", "linear", help="activation after each convolution"),
    "vf_share_layers": _switch(False, "one encoder for the policy and the value function"),
    CRITIC_ONLY: ModelSetting(
        (),
        "a list of keys of a Dict observation, such as ['friction']",
        _is_list_of(lambda each: isinstance(each, str)),
        "parts of a Dict observation that critics and values read and the policy does not, so that acting needs no "
        "numbers of them",
    ),
    "free_log_std": _switch(
        True,
        "for Box actions: the log of the standard deviation is a parameter; False: an output of the policy network",
    ),
    "squash_actions": _switch(
        False,
        "for bounded Box actions: SAC's Gaussian, squashed into the bounds, so that SAC may start from the policy. For "
        "MARWIL and BC: it has no entropy, which PPO asks for",
    ),
    ACTION_DISTRIBUTION: _choice(
        "gaussian",
        BETA,
        GSDE,
        help="for Box actions of PPO, IMPALA, APPO, MARWIL and BC. beta: a Beta distribution, whose actions never "
        "leave the bounds (Chou et al. 2017). gsde, also for SAC: noise that depends on the state (Raffin et al. 2021)",
    ),
    "sde_sample_freq": ModelSetting(
        -1,
        "-1, or a whole number above 0",
        lambda value: value == -1 or is_count(value),
        "for how many steps the noise of gsde is the same function of the state. -1: until the weights change or an "
        "episode begins",
    ),
    "log_std_init": ModelSetting(
        0.0,
        "a finite number",
        _is_number,
        "first value of the log of the standard deviation that is a parameter",
    ),
    "ortho_init": _switch(
        True,
        "first weights are orthogonal and biases 0. False: both are uniform within 1 / sqrt(inputs of the layer)",
    ),
    "use_lstm": _switch(False, "an LSTM after each encoder; the module then has a recurrent state"),
    "lstm_cell_size": _count(256, "number of cells of each LSTM"),
    "use_gru": _switch(False, "a GRU after each encoder, instead of an LSTM"),
    "gru_cell_size": _count(256, "number of cells of each GRU"),
    "max_seq_len": _count(
        20, "number of steps of the sequences that a stateful module is trained on, also a module of your own"
    ),
    "use_prev_action": _switch(
        False, "observations are a Dict that also has the last action, as prev_action: see docs/recurrence.md"
    ),
    "use_prev_reward": _switch(
        False, "observations are a Dict that also has the last reward, as prev_reward"
    ),
}
"""The keys that the built-in networks read. Names are RLlib's; where RLlib has none, stable-baselines3's."""

MODEL_CONFIG: dict[str, Any] = {name: each.default for name, each in MODEL_SETTINGS.items()}
"""The defaults of `MODEL_SETTINGS`."""


def max_seq_len(model_config: Mapping[str, Any]) -> int:
    """`max_seq_len`, which a module of a user's own may have, too.

    Args:
        model_config: the module's.

    Returns:
        The setting, or its default.

    Raises:
        ConfigError: it is not a whole number above 0.
    """
    length: int = model_config.get("max_seq_len", MODEL_CONFIG["max_seq_len"])
    MODEL_SETTINGS["max_seq_len"].check("max_seq_len", length)
    return length


def complete_model_config(given: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Complete a `model_config` with defaults, and check it.

    Args:
        given: what the user set.
        own: `{key: ModelSetting}` for further keys that a network reads; `{key: value}` for other defaults.

    Returns:
        Every key with its value.

    Raises:
        ConfigError: the network does not read a key, or a value is not valid.
    """
    settings = model_settings(own)
    for name, value in given.items():
        if name not in settings:
            hint = hint_for(name) or did_you_mean(name, settings)
            raise ConfigError(f"model_config has no key {name!r}; there are {', '.join(settings)}.{hint}")
        settings[name].check(name, value)
    return {name: each.default for name, each in settings.items()} | dict(given)


def model_settings(own: Mapping[str, Any] | None = None) -> dict[str, ModelSetting]:
    """The keys that a network reads: `MODEL_SETTINGS` and its own.

    Args:
        own: as in `complete_model_config`.

    Returns:
        `{key: ModelSetting}`.
    """
    settings = dict(MODEL_SETTINGS)
    for name, value in (own or {}).items():
        settings[name] = (
            value if isinstance(value, ModelSetting) else _with_default(settings.get(name), value)
        )
    return settings


def _with_default(known: ModelSetting | None, default: Any) -> ModelSetting:
    return (
        ModelSetting(default, "any value", lambda value: True, "")
        if known is None
        else replace(known, default=default)
    )
