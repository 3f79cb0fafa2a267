"""Configs as dicts, JSON and TOML: every setting is written, and comes back equal."""

import json
import math
import tomllib
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import AlgorithmConfig
from plugrad.config import field
from plugrad.errors import ConfigError
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec


@dataclass(frozen=True, kw_only=True)
class DemoConfig(AlgorithmConfig):
    clip_param: float = field(0.3, minimum=0, schedulable=True)
    vf_clip_param: float = field(math.inf)
    target: float | None = field(None)


class Network:
    pass


words = st.sampled_from(["none", "inf", "-inf", "nan", "\\none", "\\\\inf", ""])
texts = st.text().filter(lambda text: text not in ("__space__", "__spec__")) | words
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
numbers = st.floats(0, 1e6)
levels = st.lists(numbers, min_size=2, max_size=4)
schedules = levels.map(lambda values: [[10 * i, value] for i, value in enumerate(values)])
boxes = st.builds(
    lambda low, shape, dtype: Box(low, np.inf, shape, dtype=dtype),
    st.floats(-10, 10, width=32) | st.just(-math.inf),
    st.sampled_from([(), (1,), (2, 3)]),
    st.sampled_from([np.float32, np.float64]),
)
leaves = st.one_of(
    boxes,
    st.builds(Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.builds(lambda n: MultiDiscrete(np.array(n)), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    st.builds(
        lambda n: MultiDiscrete(np.full((2, n), n), dtype=np.uint8, start=np.full((2, n), 7)),
        st.integers(1, 3),
    ),
    st.builds(MultiBinary, st.integers(1, 4) | st.lists(st.integers(1, 3), min_size=2, max_size=2)),
    st.builds(Text, st.integers(1, 5), charset=st.sampled_from(["abc", "xyz", "nan"])),
)
spaces = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2).map(Tuple)
        | st.dictionaries(st.sampled_from(["a", "inf", "none"]), inner, min_size=1).map(Dict)
    ),
    max_leaves=4,
)
configs = st.builds(
    DemoConfig,
    env=st.none() | st.sampled_from(["CartPole-v1", "none", "package.module:Env-v0"]),
    env_config=st.dictionaries(texts, values, max_size=3),
    compile=st.sampled_from(["none", "auto"]),
    device=texts,
    lr=numbers | schedules,
    clip_param=numbers | schedules,
    vf_clip_param=st.floats(allow_nan=False),
    target=st.none() | st.floats(allow_nan=False),
    grad_clip=st.none() | st.floats(1e-3, 10),
    optimizer=st.sampled_from([{"type": "adam", "eps": 1e-5}, {"type": "sgd", "nesterov": True}]),
    seed=st.none() | st.integers(0, 2**64),
    model_config=st.dictionaries(texts, values, max_size=2),
    observation_space=st.none() | spaces,
    algorithm_config_overrides_per_module=st.dictionaries(texts, st.just({"lr": 0.5, "grad_clip": None})),
    policies_to_train=st.none() | st.lists(texts, max_size=2),
    plugin_names=st.lists(texts, max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(configs)
def test_every_form_reads_back_equal(config):
    assert DemoConfig.from_dict(config.to_dict()) == config
    assert DemoConfig.from_dict(json.loads(json.dumps(config.to_dict(), allow_nan=False))) == config
    assert DemoConfig.from_json(config.to_json()) == config
    assert DemoConfig.from_toml(config.to_toml()) == config


@settings(max_examples=150, deadline=None)
@given(spaces)
def test_spaces_read_back_equal(space):
    config = DemoConfig(env_config={"inner": space})
    for again in (DemoConfig.from_json(config.to_json()), DemoConfig.from_toml(config.to_toml())):
        assert again.env_config["inner"] == space
        assert type(again.env_config["inner"]) is type(space)


def test_a_box_with_bounds_of_its_own_per_entry_reads_back_exactly():
    low, high = np.array([-1.1, -np.inf], np.float32), np.array([0.1, np.inf], np.float32)
    config = DemoConfig(observation_space=Box(low, high), action_space=Box(0, 255, (2, 2, 1), np.uint8))
    again = DemoConfig.from_json(config.to_json())
    np.testing.assert_array_equal(again.observation_space.low, low)
    np.testing.assert_array_equal(again.observation_space.high, high)
    assert again.action_space == config.action_space


def test_the_json_form_of_a_space_is_as_documented():
    written = DemoConfig(observation_space=Box(-np.inf, 1.0, (2,))).to_dict()["observation_space"]
    assert written == {"__space__": "Box", "low": "-inf", "high": 1.0, "shape": [2], "dtype": "float32"}
    written = DemoConfig(action_space=Discrete(3, start=1)).to_dict()["action_space"]
    assert written == {"__space__": "Discrete", "n": 3, "start": 1}


def test_every_setting_is_written_none_and_infinity_included():
    written = DemoConfig().to_dict()
    assert set(written) == {*DemoConfig.fields(), "algorithm"}
    assert (written["vf_clip_param"], written["target"]) == ("inf", None)
    tables = tomllib.loads(DemoConfig().to_toml())
    assert {name for section in tables.values() if isinstance(section, dict) for name in section} == set(
        DemoConfig.fields()
    )
    assert (tables["training"]["vf_clip_param"], tables["training"]["target"]) == ("inf", "none")
    assert tables["framework"]["compile"] == "auto"


def test_a_dict_that_was_changed_in_place_is_written_as_it_is():
    """What was written before, or while something was built, is not written again."""
    config = DemoConfig().environment("CartPole-v1", env_config={"port": 1})
    assert config.to_dict()["env_config"] == {"port": 1}
    config.env_config["port"] = 2
    assert config.to_dict()["env_config"] == {"port": 2}
    config.to_dict()["env_config"]["port"] = 3  # a copy
    assert config.env_config == {"port": 2}


def test_what_a_file_leaves_out_keeps_its_default():
    config = DemoConfig.from_toml(
        '[training]\nlr = 1e-4\nvf_clip_param = inf\n[environment]\nenv = "CartPole-v1"\n'
    )
    assert config == DemoConfig(lr=1e-4, env="CartPole-v1")
    assert DemoConfig.from_dict({"lr": 1e-4, "training": {"gamma": 0.5}}) == DemoConfig(lr=1e-4, gamma=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nlearning_rate = 1", r"\[training\] has no setting 'learning_rate'"),
        ("[training]\nclip_parm = 1", r"\[training\] has no setting 'clip_parm'. Did you mean 'clip_param'"),
        ("[training]\nnum_learners = 1", r"it belongs to \[learners\]"),
        ("[trainin]\nlr = 1", "unknown setting 'trainin'. Did you mean 'training'"),
        ("[training]\nlr = 'fast'", "lr must be a number >= 0"),
        ("[training", "not a TOML config"),
        ("algorithm = 'no_such_one'", "no algorithm 'no_such_one'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text, message):
    with pytest.raises(Exception, match=message) as caught:
        DemoConfig.from_toml(text)
    assert isinstance(caught.value, LookupError if "no_such" in text else ConfigError)


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_what_is_no_json_dict_is_refused(text):
    with pytest.raises(ConfigError, match="not a JSON config"):
        DemoConfig.from_json(text)


def test_module_specs_survive_with_their_class_as_a_name():
    spec = RLModuleSpec(module_class=Network, observation_space=Box(-1, 1, (2,)), model_config={"a": None})
    config = DemoConfig(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"p0": spec}))
    again = DemoConfig.from_toml(config.to_toml()).rl_module_spec.rl_module_specs["p0"]
    assert again.module_class == f"{__name__}:Network"
    assert (again.observation_space, again.model_config) == (spec.observation_space, {"a": None})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: DemoConfig(learner_class=lambda: None), "learner_class cannot be written: .*lambda"),
        (lambda: DemoConfig(env_config={"rng": object()}), r"env_config\['rng'\] cannot be written"),
        (
            lambda: DemoConfig(env_config={"a": [{1: 2}]}),
            r"env_config\['a'\]\[0\] cannot be written: its key 1",
        ),
        (lambda: DemoConfig(env_config={"__space__": 1}), "its key '__space__' is reserved"),
    ],
)
def test_what_is_no_data_is_refused_with_its_name(config, message):
    with pytest.raises(ConfigError, match=message):
        config().to_dict()


@pytest.mark.parametrize(
    "data", [{"__space__": "Bx"}, {"__space__": "Box"}, {"__space__": "Discrete", "n": -1}]
)
def test_a_damaged_space_is_a_config_error(data):
    with pytest.raises(ConfigError, match="space"):
        DemoConfig.from_dict({"observation_space": data})


def test_a_foreign_kind_of_space_is_refused():
    class Strange(gym.Space):
        pass

    with pytest.raises(ConfigError, match="Strange cannot be written"):
        DemoConfig(observation_space=Strange()).to_dict()


def test_a_section_that_is_no_table_says_what_it_must_be():
    message = (
        r"'plugins' is a section: expected a table of its settings \(plugin_names\), found \['progress'\]"
    )
    with pytest.raises(ConfigError, match=message):
        AlgorithmConfig.from_dict({"plugins": ["progress"]})
