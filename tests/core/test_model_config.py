"""`model_config`: each key is documented and checked, with every algorithm that is installed."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from plugrad import RLModuleSpec
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import get_algorithm
from plugrad.model_config import MODEL_CONFIG, MODEL_SETTINGS, ModelSetting, is_count
from plugrad.networks.layers import ACTIVATIONS

PAGE = Path(__file__).parents[2] / "docs/networks.md"
ALGORITHMS = sorted(record.name for record in list_plugins() if record.kind == "algorithm")
WITHOUT_MEMORY = ("cql", "iql", "pqn", "rnd")
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def build(algorithm: str, **model: Any) -> Any:
    """A learner on the numpy backend; DQN's actions are discrete, all others' are a Box."""
    config = get_algorithm(algorithm)().framework("numpy").rl_module(model_config=model)
    actions = gym.spaces.Discrete(2) if algorithm in ("dqn", "pqn", "qrdqn") else BOX
    return config.environment(observation_space=BOX, action_space=actions).build_learner()


def test_the_page_has_the_table_of_all_keys():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    shown = {name: list(each.default) if isinstance(each.default, tuple) else each.default
             for name, each in MODEL_SETTINGS.items()}  # fmt: skip
    assert rows == [
        f"| `{name}` | `{shown[name]!r}` | {each.expects} | {each.help} |"
        for name, each in MODEL_SETTINGS.items()
    ]


@pytest.mark.parametrize("name", MODEL_SETTINGS)
def test_a_key_takes_its_default_and_says_what_else_it_takes(name):
    assert RLModuleSpec(model_config={name: MODEL_CONFIG[name]}).network_config() == MODEL_CONFIG
    for wrong in ({"a": 1}, [-1], [[1, 2]], -1.5j, float("nan"), "x" * 1000):
        with pytest.raises(ConfigError) as caught:
            RLModuleSpec(model_config={name: wrong}).network_config()
        message = str(caught.value)
        assert message.startswith(f"{name}={wrong!r}"[:100])
        assert message.endswith(f": must be {MODEL_SETTINGS[name].expects}")
        assert len(message) < 400


@pytest.mark.parametrize("key", ["fcnet_activation", "conv_activation"])
def test_every_activation_is_a_value(key):
    assert all(MODEL_SETTINGS[key].is_valid(each) for each in ACTIVATIONS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_misspelled_key_names_the_closest_and_a_wrong_value_what_is_taken(algorithm):
    with pytest.raises(ConfigError, match=r"no key 'fcnet_hidens'.*Did you mean 'fcnet_hiddens'\?"):
        build(algorithm, fcnet_hidens=[4])
    with pytest.raises(ConfigError, match="layer_norm='yes': must be True or False"):
        build(algorithm, layer_norm="yes")


@pytest.mark.parametrize("switch", ["use_lstm", "use_gru"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_has_a_memory_or_refuses_it_in_a_sentence(algorithm, switch):
    if algorithm not in WITHOUT_MEMORY:
        assert build(algorithm, **{switch: True, "fcnet_hiddens": [2]}).module["default_policy"].is_stateful
        return
    who = algorithm.upper()
    with pytest.raises(
        ConfigError, match=f"{who} has no recurrent networks: leave {switch} out of model_config"
    ):
        build(algorithm, **{switch: True})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithms_own_defaults_are_below_what_is_given(algorithm):
    own = get_algorithm(algorithm).default_model_config
    widths = own.get("fcnet_hiddens", MODEL_CONFIG["fcnet_hiddens"])
    for model, expected in (({}, list(widths)), ({"fcnet_hiddens": [3, 5]}, [3, 5])):
        weights = build(algorithm, **model).get_weights()["default_policy"]
        prefix = "encoder" if "encoder.0.bias" in weights else "pi"
        assert [len(weights[f"{prefix}.{n}.bias"]) for n in range(len(expected))] == expected
        assert f"{prefix}.{len(expected)}.bias" not in weights


def test_a_network_may_read_checked_keys_of_its_own():
    own = {
        "fcnet_activation": "relu",
        "num_heads": ModelSetting(2, "a whole number above 0", is_count, "heads of the value network"),
    }
    assert RLModuleSpec().network_config(own) == {**MODEL_CONFIG, "fcnet_activation": "relu", "num_heads": 2}
    assert RLModuleSpec(model_config={"num_heads": 3}).network_config(own)["num_heads"] == 3
    with pytest.raises(ConfigError, match="num_heads=0: must be a whole number above 0"):
        RLModuleSpec(model_config={"num_heads": 0}).network_config(own)
    with pytest.raises(ConfigError, match="fcnet_activation='rleu': must be one of tanh"):
        RLModuleSpec(model_config={"fcnet_activation": "rleu"}).network_config(own)
    with pytest.raises(ConfigError, match=r"no key 'num_head';.*Did you mean 'num_heads'"):
        RLModuleSpec(model_config={"num_head": 3}).network_config(own)
