"""Frozen configs: fluent changes, checks at the call, errors that name what was typed."""

import ast
import copy
import inspect
import math
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import AlgorithmConfig, hookimpl
from plugrad.config import SECTIONS, field
from plugrad.errors import ConfigError
from plugrad.hooks.registry import get_algorithm, load_listener


@dataclass(frozen=True, kw_only=True)
class DemoConfig(AlgorithmConfig):
    lr: float = field(5e-5)
    train_batch_size: int = 4000
    clip_param: float = field(0.3, minimum=0, schedulable=True, help="how far the policy may move")
    vf_clip_param: float = field(math.inf, above=0)
    kl_coeff: float = field(0.2, variable=True)


@pytest.mark.parametrize("section", [each for each in SECTIONS if each != "plugins"])
def test_help_of_a_fluent_method_has_each_of_its_settings_with_its_default(section):
    text = inspect.getdoc(getattr(AlgorithmConfig, section))
    found = dict(re.findall(r"^    (\w+) \(.*?\): (.*?)(?=^    \S|^$)", text, flags=re.M | re.S))
    names = [name for name, info in AlgorithmConfig.fields().items() if info.section == section]
    assert list(found) == names
    defaults = {name: re.findall(r"Default: `(.*)`\.$", found[name].rstrip()) for name in names}
    settings = {name: ast.literal_eval(*written) for name, written in defaults.items()}
    assert getattr(AlgorithmConfig(), section)(**settings) == AlgorithmConfig()


def rule(agent_id):
    return "p0"


def make_rule():
    def inner(agent_id):
        return "p0"

    return inner


made = make_rule()


class Holder:
    class Inner:
        pass


def test_a_fluent_call_returns_a_new_config_and_leaves_the_old_one():
    config = DemoConfig()
    changed = (
        config.training(lr=0.1, clip_param=0.2).framework("tf2", compile="none").environment("CartPole-v1")
    )
    assert (changed.lr, changed.clip_param, changed.backend, changed.compile) == (0.1, 0.2, "tf2", "none")
    assert changed.env == "CartPole-v1"
    assert (config.lr, config.backend, config.env) == (5e-5, "torch", None)
    assert changed != config
    assert changed == DemoConfig(lr=0.1, clip_param=0.2, backend="tf2", compile="none", env="CartPole-v1")


def test_a_positional_argument_that_is_left_out_stays():
    config = DemoConfig().framework("tf2").environment("CartPole-v1")
    assert config.framework(compile="none").backend == "tf2"
    assert config.environment(env_config={"a": 1}).env == "CartPole-v1"


@pytest.mark.parametrize("section", [s for s in SECTIONS if s != "plugins"])
def test_every_setting_is_an_argument_of_its_sections_method_and_reads_as_an_attribute(section):
    config = DemoConfig()
    names = [name for name, info in config.fields().items() if info.section == section]
    assert names
    for name in names:
        value = getattr(config, name)
        assert getattr(getattr(config, section)(**{name: value}), name) == value


def test_every_setting_has_help_and_a_known_section():
    for name, info in AlgorithmConfig.fields().items():
        assert info.help, name
        assert info.section in SECTIONS, name


def test_a_redeclared_field_keeps_help_and_rules():
    info = DemoConfig.fields()["lr"]
    assert info.make_default() == 5e-5
    assert info.help == AlgorithmConfig.fields()["lr"].help
    assert DemoConfig().training(lr=[[0, 1.0], [10, 0.5]]).lr == [[0, 1.0], [10, 0.5]]
    with pytest.raises(ConfigError, match="train_batch_size must be a whole number >= 1, got 0"):
        DemoConfig().training(train_batch_size=0)


def test_defaults_of_containers_are_not_shared():
    first, second = DemoConfig(), DemoConfig()
    first.env_config["a"] = 1
    assert second.env_config == {}
    given = {"hiddens": [64]}
    config = DemoConfig().rl_module(model_config=given)
    given["hiddens"].append(32)
    assert config.model_config == {"hiddens": [64]}
    assert config.copy().model_config is not config.model_config


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda c: c.training(clip_parm=1),
            r"training\(\) has no setting 'clip_parm'. Did you mean 'clip_param'",
        ),
        (lambda c: c.training(num_learners=1), r"'num_learners' is set by .learners\(num_learners=...\)"),
        (lambda c: c.training(num_learner=1), r"Did you mean .learners\(num_learners=...\)"),
        (
            lambda c: DemoConfig(clip_parm=1),
            r"DemoConfig\(\) has no setting 'clip_parm'. Did you mean 'clip_param'",
        ),
        (lambda c: c.environment("A", env_conf={}), "Did you mean 'env_config'"),
        (lambda c: c.training(optimizer={"type": "adm"}), "unknown type 'adm'; known: .*Did you mean 'adam'"),
        (lambda c: c.training(optimizer={"bta1": 0.9}), "'adam' has no 'bta1'.*Did you mean 'beta1'"),
        (lambda c: c.training(optimizer={"lr": 0.9}), r"config.training\(lr=...\)"),
        (lambda c: c.training(optimizer={"beta1": 1.0}), r"beta1 must be a number in \[0, 1\), got 1.0"),
        (lambda c: c.training(optimizer="adam"), "optimizer must be a dict"),
        (lambda c: c.training(grad_clip_by="globalnorm"), "grad_clip_by .*Did you mean 'global_norm'"),
        (lambda c: c.framework(compile="full"), "compile must be one of 'none', 'forward_train'"),
        (lambda c: c.framework(compile=None), "compile must be one of"),
        (lambda c: c.training(num_epochs=0), "num_epochs must be a whole number >= 1, got 0"),
        (lambda c: c.training(num_epochs=1.5), "num_epochs must be a whole number >= 1, got 1.5"),
        (lambda c: c.training(num_epochs=True), "num_epochs must be a whole number >= 1, got True"),
        (lambda c: c.training(num_epochs="2"), "num_epochs must be a whole number >= 1, got '2'"),
        (lambda c: c.training(gamma=1.1), "gamma must be a number from 0 to 1, got 1.1"),
        (lambda c: c.training(gamma=None), "gamma must be a number from 0 to 1, got None"),
        (lambda c: c.training(lr=math.nan), "lr must be a number >= 0"),
        (lambda c: c.training(lr=-1.0), "lr must be a number >= 0"),
        (lambda c: c.training(grad_clip=0), "grad_clip must be a number above 0 or None, got 0"),
        (
            lambda c: c.training(shuffle_batch_per_epoch=1),
            "shuffle_batch_per_epoch must be True or False, got 1",
        ),
        (lambda c: c.rl_module(model_config=[1]), r"model_config must be a dict, got \[1\]"),
        (lambda c: c.learners(learner_class=3), "learner_class must be a class or function"),
        (lambda c: c.environment(gym.make("CartPole-v1")), r"Here: its id, 'CartPole-v1': plugrad makes"),
        (
            lambda c: c.plugins(object()),
            r"got the object <object .*: \.plugins\('my_module:object'\)\. A Learner",
        ),
        (lambda c: c.plugins().changed(plugin_names="ab"), "takes names and classes, got 'ab'"),
        (lambda c: c.multi_agent(policies_to_train=rule), "override Learner.should_module_be_updated"),
        (lambda c: c.multi_agent(policies_to_train="p0"), "must be a collection of module ids"),
    ],
)
def test_a_wrong_name_or_value_fails_at_the_call(call, message):
    with pytest.raises(ConfigError, match=message):
        call(DemoConfig())


@pytest.mark.parametrize("name", ["lr", "clip_param"])
@pytest.mark.parametrize(
    "schedule",
    [
        [],
        [[0, 1.0]],
        [[1, 1.0], [2, 0.5]],
        [[0, 1.0], [0, 0.5]],
        [[0, 1.0], [5, 0.5], [3, 0.1]],
        [[0, 1.0], [5]],
        [[0, 1.0], [5, -0.5]],
        [[0, 1.0], [5, math.inf]],
        [[0, 1.0], [5.5, 0.5]],
        [[0, "1"], [5, 0.5]],
        [0, 1.0],
    ],
)
def test_a_bad_schedule_names_the_field_that_was_typed(name, schedule):
    with pytest.raises(ConfigError, match=rf"{name} must be a number >= 0, or \[\[0, value\]"):
        DemoConfig().training(**{name: schedule})


@pytest.mark.parametrize(
    ("algorithm", "name", "wrong"),
    [
        ("ppo", "lambda_", 1.5),
        ("ppo", "clip_param", -0.1),
        ("ppo", "clip_param", [[0, 0.2], [100, -0.1]]),
        ("ppo", "vf_loss_coeff", -1.0),
        ("ppo", "vf_clip_param", -1.0),
        ("ppo", "kl_coeff", -1.0),
        ("ppo", "kl_target", -1.0),
        ("appo", "lambda_", -0.5),
        ("appo", "clip_param", -0.1),
        ("appo", "kl_coeff", -1.0),
        ("impala", "vf_loss_coeff", -1.0),
        ("dqn", "epsilon", 1.5),
        ("dqn", "epsilon", [[0, 1.0], [100, -0.1]]),
        ("dqn", "tau", 1.5),
        ("sac", "tau", 0.0),
        ("iql", "expectile", 1.5),
    ],
)
def test_a_probability_or_weight_out_of_its_range_is_refused(algorithm, name, wrong):
    with pytest.raises(ConfigError, match=rf"^{name} must be a number .*got"):
        get_algorithm(algorithm)().training(**{name: wrong})


def test_a_field_that_is_not_schedulable_takes_no_schedule():
    with pytest.raises(ConfigError, match="gamma must be a number from 0 to 1"):
        DemoConfig().training(gamma=[[0, 1.0], [10, 0.5]])


def test_values_take_one_plain_form():
    config = DemoConfig().training(lr=((0, 1), (np.int64(10), np.float32(0.5))), num_epochs=3.0, gamma=1)
    assert config.lr == [[0, 1.0], [10, 0.5]]
    assert (config.num_epochs, type(config.num_epochs)) == (3, int)
    assert (config.gamma, type(config.gamma)) == (1.0, float)
    assert config.multi_agent(policies_to_train={"b", "a"}).policies_to_train == ["a", "b"]
    assert config.rl_module(model_config={"fcnet_hiddens": (64, 64)}).model_config == {
        "fcnet_hiddens": [64, 64]
    }


def test_an_optimizer_is_merged_over_the_present_one_unless_its_type_changes():
    config = DemoConfig().training(optimizer={"eps": 1e-5}).training(optimizer={"beta1": 0.8})
    assert config.optimizer == {"type": "adam", "beta1": 0.8, "beta2": 0.999, "eps": 1e-5}
    sgd = config.training(optimizer={"type": "sgd", "momentum": 0.9})
    assert sgd.optimizer == {"type": "sgd", "momentum": 0.9, "nesterov": False}
    assert sgd.training(optimizer={"nesterov": True}).optimizer["momentum"] == 0.9


def test_assigning_an_attribute_raises_with_the_line_to_write():
    config = DemoConfig()
    with pytest.raises(ConfigError, match=r"write `config = config.training\(lr=...\)`"):
        config.lr = 0.1
    with pytest.raises(ConfigError, match=r"has no setting 'clip_parm'. Did you mean 'clip_param'"):
        config.clip_parm = 0.1
    with pytest.raises(
        AttributeError, match=r"DemoConfig has no setting 'clip_parm'. Did you mean 'clip_param'"
    ):
        config.clip_parm  # noqa: B018
    assert config == DemoConfig()


def test_a_changed_copy_that_is_dropped_unused_warns_where_it_was_dropped():
    config = DemoConfig()
    with pytest.warns(UserWarning, match=r"write `config = config.training\(lr=...\)`") as caught:
        config.training(lr=0.1)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.training(lr=0.1).framework("tf2").lr,
        lambda c: c.training(lr=0.1).to_dict(),
        lambda c: c.training(lr=0.1) == c,
        lambda c: c.training(lr=0.1).copy(),
        lambda c: pickle.dumps(c.training(lr=0.1)),
        lambda c: repr(c.training(lr=0.1)),
        lambda c: c.training(lr=0.1).validate(),
        lambda c: c.training(),
        lambda c: c.copy(),
    ],
)
def test_a_used_copy_does_not_warn(use):
    # Not as errors: what is raised in __del__ goes nowhere.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = use(DemoConfig())
        del result
    assert caught == []


def test_nothing_warns_at_interpreter_exit():
    code = "from plugrad import AlgorithmConfig\nconfig = AlgorithmConfig().training(lr=0.1)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_configs_compare_by_value_copy_and_pickle():
    config = (
        DemoConfig().training(lr=[[0, 1.0], [10, 0.5]]).learners(learner_class=Holder.Inner).plugins("a", "b")
    )
    for same in (config.copy(), copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert same == config
        assert same is not config
        assert same.plugin_names == ("a", "b")
    assert AlgorithmConfig() != DemoConfig()
    with pytest.raises(TypeError, match="unhashable"):
        hash(config)


def test_overrides_of_a_module():
    overrides = {"p0": {"lr": 1, "optimizer": {"eps": 1e-4}, "model_config": {"fcnet_hiddens": [8]}}}
    config = DemoConfig().training(optimizer={"beta1": 0.5})
    config = config.rl_module(algorithm_config_overrides_per_module=overrides)
    own = config.get_config_for_module("p0")
    assert (own.lr, own.model_config, type(own)) == (1.0, {"fcnet_hiddens": [8]}, DemoConfig)
    assert own.optimizer == {"type": "adam", "beta1": 0.5, "beta2": 0.999, "eps": 1e-4}
    assert config.get_config_for_module("p0") is own
    assert config.get_config_for_module("p1") is config
    assert config.lr == 5e-5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"p0": {"clip_parm": 0.1}}, r"\['p0'\] has no setting 'clip_parm'. Did you mean 'clip_param'"),
        ({"p0": {"num_learners": 1}}, "'num_learners' is not a setting of one module"),
        (
            {"p0": {"minibatch_size": 8}},
            r"\['p0'\]: minibatch_size=8 holds for all modules, .* write .training\(minibatch_size=8\)",
        ),
        ({"p0": {"train_batch_size": 8}}, "train_batch_size=8 holds for all modules"),
        ({"p0": {"nonfinite": "skip"}}, "nonfinite='skip' holds for all modules"),
        ({"p0": {"gamma": 2}}, r"\['p0'\]: gamma must be a number from 0 to 1"),
        ({"p0": {"optimizer": {"momentum": 0.9}}}, r"\['p0'\]: optimizer: 'adam' has no 'momentum'"),
        ({"p0": 0.1}, "must be a dict"),
    ],
)
def test_wrong_overrides_name_the_module(overrides, message):
    with pytest.raises(ConfigError, match=message):
        DemoConfig().rl_module(algorithm_config_overrides_per_module=overrides)


def test_a_file_of_a_version_that_took_overrides_without_effect_can_be_read():
    data = DemoConfig().rl_module(algorithm_config_overrides_per_module={"p0": {"lr": 0.5}}).to_dict()
    data["algorithm_config_overrides_per_module"]["p0"]["minibatch_size"] = 8
    assert DemoConfig.from_dict(data).algorithm_config_overrides_per_module == {"p0": {"lr": 0.5}}


def test_overrides_of_an_optimizer_are_checked_against_the_configs_own():
    overrides = {"p0": {"optimizer": {"momentum": 0.9}}}
    config = DemoConfig(optimizer={"type": "sgd"}, algorithm_config_overrides_per_module=overrides)
    assert config.get_config_for_module("p0").optimizer["momentum"] == 0.9


def test_classes_and_functions_are_kept_by_name_and_resolved_at_use():
    config = DemoConfig().learners(learner_class=Holder.Inner).multi_agent(agent_to_module=rule)
    assert config.learner_class == f"{__name__}:Holder.Inner"
    assert config.resolve("learner_class") is Holder.Inner
    assert config.get_learner_class() is Holder.Inner
    assert config.resolve("agent_to_module") is rule
    assert config.resolve("learner_connector") is None


def test_a_function_that_another_one_made_is_kept_by_the_name_of_its_variable():
    assert made.__qualname__ == "make_rule.<locals>.inner"
    config = DemoConfig().multi_agent(agent_to_module=made)
    assert config.agent_to_module == f"{__name__}:made"
    assert config.resolve("agent_to_module") is made


def test_pettingzoos_functions_are_kept_by_the_name_of_their_package():
    spread = needs.extra("mpe2.simple_spread_v3")
    config = DemoConfig().environment(spread.parallel_env)
    assert config.env == "mpe2.simple_spread_v3:parallel_env"


@pytest.mark.parametrize("wrong", [3, ["a"], {"a": 1}])
def test_agents_are_mapped_by_a_dict_or_a_function(wrong):
    with pytest.raises(ConfigError, match=r"agent_to_module must be \{agent: module_id\}, a function"):
        DemoConfig().multi_agent(agent_to_module=wrong)


def test_agents_are_mapped_to_modules_that_there_are():
    config = DemoConfig().multi_agent(policies=["p0", "p1"], agent_to_module={"a": "p0", "b": "p2"})
    with pytest.raises(ConfigError, match="agent_to_module: no module 'p2' in policies"):
        config.validate()


def test_a_local_class_works_in_this_process():
    class Local:
        pass

    config = DemoConfig().learners(learner_class=Local)
    assert config.resolve("learner_class") is Local


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("collections:OrderedDic", "learner_class: .* has no 'OrderedDic'. Did you mean 'OrderedDict'"),
        ("no_such_module:Name", "learner_class: 'no_such_module:Name' cannot be imported"),
        ("JustAName", 'names nothing importable; write "package.module:Name"'),
    ],
)
def test_validate_finds_a_class_that_cannot_be_imported(name, message):
    config = DemoConfig().learners(learner_class=name)
    with pytest.raises(ConfigError, match=message):
        config.validate()


def test_validate_wants_both_spaces_and_known_modules():
    from gymnasium.spaces import Discrete

    with pytest.raises(ConfigError, match="observation_space is given without the other space"):
        DemoConfig().environment(observation_space=Discrete(2)).validate()
    config = DemoConfig().multi_agent(policies=["walker", "runner"], policies_to_train=["runer"])
    with pytest.raises(
        ConfigError, match=r"no module 'runer' in .*\(walker, runner\). Did you mean 'runner'"
    ):
        config.validate()
    config.multi_agent(policies_to_train=["runner"]).validate()


def test_a_class_in_main_survives_pickling_in_its_own_script():
    code = """
import pickle
from plugrad import AlgorithmConfig
class Mine: pass
config = AlgorithmConfig().learners(learner_class=Mine)
assert config.learner_class == "__main__:Mine"
again = pickle.loads(pickle.dumps(config))
assert again == config and again.resolve("learner_class") is Mine
assert config.__getstate__()["learner_class"] is Mine
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_field_refuses_unknown_declarations():
    with pytest.raises(TypeError, match="no argument 'minium'"):
        field(1, minium=0)


class Ears:
    @hookimpl
    def update_ended(self, results): ...


EARS = Ears()


def test_the_error_for_a_listener_object_says_what_the_config_takes_in_its_place():
    with pytest.raises(
        ConfigError, match=r"got the object <.*Ears.*Name the variable that holds it"
    ) as caught:
        DemoConfig().plugins(EARS)
    name = re.search(r"\.plugins\('(.*?)'\)", str(caught.value))[1]
    assert DemoConfig().plugins(name).plugin_names == (name,)
    assert load_listener(name).implementation is EARS
    with pytest.raises(
        ConfigError, match=r"Name its class, .*: \.plugins\(Ears\); with arguments, make it in"
    ):
        DemoConfig().plugins(Ears())
    with pytest.raises(ConfigError, match=r"Name its file: \.plugins\('.*test_config\.py'\)"):
        DemoConfig().plugins(sys.modules[__name__])
