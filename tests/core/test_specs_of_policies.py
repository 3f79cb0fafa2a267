"""Specs of modules: wherever a config names them, each module is built as its own says."""

import gymnasium as gym
import pytest
from learning import ppo_batch, ppo_config, quick, with_modules

from plugrad import DEFAULT_MODULE_ID, Columns, MultiRLModuleSpec, RLModuleSpec
from plugrad.errors import ConfigError

TWO_INPUTS = gym.spaces.Box(-1.0, 1.0, (2,))
THREE_ACTIONS = gym.spaces.Discrete(3)


def hidden(learner) -> dict[str, int]:
    """The width of each module's first layer."""
    return {name: weights["pi.0.weight"].shape[1] for name, weights in learner.get_weights().items()}


def spec(width: int, **others) -> RLModuleSpec:
    return RLModuleSpec(model_config={"fcnet_hiddens": [width]}, **others)


def test_a_policy_is_built_from_its_own_spec():
    config = ppo_config(hiddens=(4,)).multi_agent(policies={"a": spec(8), "b": None, "c": spec(5)})
    assert hidden(config.build_learner()) == {"a": 8, "b": 4, "c": 5}


def test_a_policy_without_a_spec_takes_the_common_one():
    config = ppo_config(hiddens=(4,)).rl_module(rl_module_spec=spec(6))
    assert hidden(config.multi_agent(policies={"a": spec(8), "b": None}).build_learner()) == {"a": 8, "b": 6}
    assert hidden(config.multi_agent(policies=["a", "b"]).build_learner()) == {"a": 6, "b": 6}


def test_a_policys_spec_brings_its_spaces():
    own = spec(4, observation_space=TWO_INPUTS, action_space=THREE_ACTIONS)
    learner = ppo_config().multi_agent(policies={"a": None, "b": own}).build_learner()
    batch = {"a": ppo_batch(), "b": ppo_batch(inputs=2, actions=3)}
    assert set(learner.update(batch)) >= {"a", "b"}
    assert learner.compute_actions(batch["b"][Columns.OBS], module_id="b")["action_dist_inputs"].shape == (
        16,
        3,
    )


def test_policies_and_several_specs_together_name_all_modules():
    several = MultiRLModuleSpec(rl_module_specs={"a": spec(3), "shared": spec(5)})
    config = ppo_config(hiddens=(4,)).rl_module(rl_module_spec=several)
    learner = config.multi_agent(policies={"a": None, "b": spec(8), "c": None}).build_learner()
    assert hidden(learner) == {"a": 3, "b": 8, "c": 4, "shared": 5}


def test_two_specs_of_one_module_are_refused_by_name():
    config = ppo_config().rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"a": spec(3)}))
    with pytest.raises(ConfigError, match="module 'a' has two specs"):
        config.multi_agent(policies={"a": spec(8)}).build_learner()
    assert hidden(config.multi_agent(policies={"a": spec(3)}).build_learner()) == {"a": 3}


def test_a_policy_that_is_no_spec_is_refused():
    with pytest.raises(ConfigError, match="module 'a': an RLModuleSpec is expected"):
        ppo_config().multi_agent(policies={"a": {"fcnet_hiddens": [8]}}).build_learner()


def test_spaces_fill_the_specs_that_a_config_has():
    spaces = {"a": (TWO_INPUTS, THREE_ACTIONS)}
    config = ppo_config().environment(None, observation_space=None, action_space=None)
    for each in (
        config.rl_module(rl_module_spec=spec(8)),
        config.multi_agent(policies={"a": spec(8)}),
        config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"a": spec(8)})),
    ):
        learner = each.build_learner(spaces=spaces)
        assert hidden(learner) == {"a": 8}
        assert learner.module["a"].action_space == THREE_ACTIONS
    with pytest.raises(ConfigError, match="module 'b' has no observation_space"):
        config.multi_agent(policies={"a": spec(8), "b": None}).build_learner(spaces=spaces)


def test_specs_of_policies_outlive_files_and_changes_of_modules(tmp_path):
    config = ppo_config(hiddens=(4,)).multi_agent(policies={"a": spec(8), "b": None})
    again = type(config).from_dict(config.to_dict())
    assert hidden(again.build_learner()) == {"a": 8, "b": 4}
    learner = config.build_learner()
    learner.save_to_path(tmp_path / "two")
    assert hidden(type(learner).from_checkpoint(tmp_path / "two")) == {"a": 8, "b": 4}
    learner.remove_module("a")
    learner.add_module(module_id="a", module_spec=spec(7))
    learner.save_to_path(tmp_path / "changed")
    assert hidden(type(learner).from_checkpoint(tmp_path / "changed")) == {"a": 7, "b": 4}


def test_a_checkpoint_imports_no_module_that_a_policy_names(tmp_path):
    learner = ppo_config().multi_agent(policies={DEFAULT_MODULE_ID: None}).build_learner()
    named = RLModuleSpec(module_class="os:system")
    learner.config = learner.config.multi_agent(policies={DEFAULT_MODULE_ID: named})
    learner.save_to_path(tmp_path)
    with pytest.raises(ConfigError, match="a checkpoint imports no code"):
        type(learner).from_checkpoint(tmp_path)


def test_a_learners_own_spec_goes_before_the_configs():
    config = quick(with_modules(ppo_config(), "a")).multi_agent(policies={"a": None, "b": spec(8)})
    cls = config.get_learner_class()
    for given, expected in (
        (MultiRLModuleSpec(rl_module_specs={"x": spec(5)}), {"x": 5}),
        (spec(6), {"a": 6, "b": 6}),
    ):
        learner = cls(config=config, module_spec=given)
        learner.build()
        assert hidden(learner) == expected
