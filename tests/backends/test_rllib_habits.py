"""What code written for RLlib's present API asks for: it works, or the error says what to type."""

import re

import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, ppo_batch, ppo_config, quick, with_modules
from pages import BLOCK, DOCS

from plugrad import (
    ALL_MODULES,
    Columns,
    Learner,
    MultiAgentBatch,
    MultiRLModule,
    MultiRLModuleSpec,
    RLModuleSpec,
)
from plugrad import DEFAULT_MODULE_ID as P
from plugrad.config import SECTIONS
from plugrad.errors import CheckpointError, ConfigError, LossError, RestoreMismatchError, UnknownModuleError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import get_algorithm
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_impala import IMPALAConfig
from plugrad_offline import CQLConfig, MARWILConfig
from plugrad_ppo import PPOConfig, PPOLearner
from plugrad_rllib.instead import INSTEAD
from plugrad_sac import SACConfig


def config(backend, **training):
    return quick(ppo_config(backend, **{"lr": 0.01, **training}))


def build(backend, **training):
    return config(backend, **training).build_learner()


# --- the learner ---


class ClonesAsTheGuideDoes(Learner):
    """Behaviour cloning with the names that RLlib's guide uses."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        action_dist_class = self._module[module_id].get_inference_action_dist_cls()
        dist = action_dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        loss = -self.ops.mean(dist.logp(batch[Columns.ACTIONS]))
        self.metrics.log_value((module_id, "cloning_loss"), loss, window=1)
        self.metrics.log_dict({"twice": 2.0 * loss}, key=module_id, window=1)
        return loss


def test_the_guides_own_example_of_behaviour_cloning_runs(backend):
    learner = config(backend).learners(learner_class=ClonesAsTheGuideDoes).build_learner()
    with pytest.warns(DeprecationWarning, match=r"use Learner\.module"):
        results = learner.update(ppo_batch())[P]
    assert results["cloning_loss"] == pytest.approx(results["total_loss"])
    assert results["twice"] == pytest.approx(2 * results["total_loss"])
    assert learner.metrics.peek((P, "cloning_loss")) == results["cloning_loss"]
    assert learner.metrics.peek((P, "never"), default=3) == 3


def test_a_value_logged_without_a_module_is_of_all_modules():
    learner = build("numpy")
    learner.metrics.log_value("mine", 5)
    assert learner.metrics.peek("mine") == learner.metrics.results[ALL_MODULES]["mine"] == 5


class LogsInItsLoss(PPOLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        self.metrics.log_value((module_id, "largest"), loss, reduce="max")
        return loss


class LogsAfterwards(PPOLearner):
    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        for value in (2.0, 5.0, 3.0):
            for reduce in ("sum", "min", "max"):
                self.metrics.log_value((P, reduce), value, reduce=reduce)


def test_other_reductions_than_the_mean_are_of_what_an_update_gets_outside_of_its_steps():
    learner = config("numpy").learners(learner_class=LogsAfterwards).build_learner()
    learner.metrics.log_value((P, "sum"), 100, reduce="sum")  # before the update: part of it
    for before in (100, 0):
        found = learner.update(ppo_batch())[P]
        assert [found[each] for each in ("sum", "min", "max")] == [before + 10, 2, 5]


def test_another_reduction_than_the_mean_is_refused_in_a_loss_and_so_is_one_that_there_is_not():
    learner = config("numpy").learners(learner_class=LogsInItsLoss).build_learner()
    with pytest.raises(
        LossError, match=r"reduce='max': inside a step results are means .*after_gradient_based"
    ):
        learner.update(ppo_batch())
    with pytest.raises(LossError, match=r"reduce='item_series': .*also 'sum', 'min', 'max'"):
        build("numpy").metrics.log_value("mine", 5, reduce="item_series")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("curr_kl_coeffs_per_module", r"coefficients\[module_id\]\['kl_coeff'\]"),
        ("entropy_coeff_schedulers_per_module", r"coefficients\[module_id\]\['entropy_coeff'\]"),
        ("_named_optimizers", "get_optimizers_for_module"),
        ("_params", "get_parameters"),
        ("_learner_connector", "run_connectors"),
    ],
)
def test_an_attribute_of_rllibs_learner_that_is_not_here_says_what_to_use(name, instead):
    learner = build("numpy")
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Here: .*{instead}"):
        getattr(learner, name)
    with pytest.raises(AttributeError, match="'Learner' object has no attribute 'modul'"):
        learner.modul  # noqa: B018


class HasABrokenProperty(PPOLearner):
    @property
    def broken(self):
        return self.config.no_such_setting


def test_an_error_within_a_property_of_a_learner_is_the_one_that_is_seen():
    learner = config("numpy").learners(learner_class=HasABrokenProperty).build_learner()
    with pytest.raises(AttributeError, match="no_such_setting"):
        learner.broken  # noqa: B018


@pytest.mark.parametrize(
    ("config_class", "name", "instead"),
    [
        (PPOConfig, "use_critic", "vf_loss_coeff"),
        (PPOConfig, "use_gae", "lambda_"),
        (DQNConfig, "adam_epsilon", "optimizer="),
        (DQNConfig, "td_error_loss_fn", "huber_delta"),
        (DQNConfig, "num_atoms", "not distributions"),
        (DQNConfig, "noisy", "epsilon"),
        (BCConfig, "bc_logstd_coeff", "compute_loss_for_module"),
        (PPOConfig, "num_aggregator_actors_per_learner", "learner_connector"),
    ],
)
def test_a_setting_of_rllibs_that_is_not_here_says_what_to_type(config_class, name, instead):
    with pytest.raises(ConfigError, match=f"Here: .*{instead}"):
        config_class().training(**{name: 1})
    with pytest.raises(AttributeError, match=f"Here: .*{instead}"):
        getattr(config_class(), name)


@pytest.mark.parametrize(
    ("section", "name", "instead"),
    [
        ("env_runners", "env_to_module_connector", r"env_runners\(env_wrappers="),
        ("env_runners", "normalize_actions", "gymnasium.wrappers:RescaleAction"),
        ("env_runners", "batch_mode", "rollout_fragment_length"),
        ("env_runners", "explore", r"training\(epsilon="),
        ("evaluation", "evaluation_duration", r"evaluation\(evaluation_num_episodes="),
        ("multi_agent", "policy_mapping_fn", r"multi_agent\(agent_to_module="),
        ("learners", "num_gpus", r"learners\(num_gpus_per_learner="),
    ],
)
def test_a_setting_of_another_section_of_rllibs_says_what_to_type(section, name, instead):
    with pytest.raises(ConfigError, match=rf"no setting '{name}'. Here: .*{instead}"):
        getattr(PPOConfig(), section)(**{name: 1})


@pytest.mark.parametrize(
    ("name", "instead"), [("checkpointing", "save_to_path"), ("exploration", r"training\(epsilon=")]
)
def test_a_method_of_rllibs_config_that_is_not_here_says_what_to_use(name, instead):
    with pytest.raises(AttributeError, match=rf"no setting '{name}'. Here: .*{instead}"):
        getattr(PPOConfig(), name)


def test_every_call_that_a_hint_names_is_there():
    """`section(setting=...)` in a hint: the section has the setting, of one of the algorithms."""
    records = [record for record in list_plugins() if record.kind == "algorithm"]
    classes = [get_algorithm(record.name) for record in records if record.distribution == "plugrad"]
    known = {(info.section, name) for each in classes for name, info in each.fields().items()}
    calls = re.findall(rf"\b({'|'.join(SECTIONS)})\((?:\w+, )?(\w+)=", " ".join(INSTEAD.values()))
    assert len(calls) > 40
    assert set(calls) <= known


def test_a_config_is_copied_and_changed_by_the_calls_of_rllib():
    given = PPOConfig().learners(num_learners=2, num_gpus_per_learner=0.5)
    assert given.copy(copy_frozen=False) == given.copy() == given
    with pytest.warns(DeprecationWarning, match="use AlgorithmConfig.num_learners"):
        assert given.num_learner_workers == 2
    with pytest.warns(DeprecationWarning, match="use AlgorithmConfig.num_gpus_per_learner"):
        assert given.num_gpus_per_learner_worker == 0.5
    with pytest.warns(DeprecationWarning, match="use a dict"):
        overrides = PPOConfig.overrides(lr=0.5)
    own = given.rl_module(algorithm_config_overrides_per_module={"a": overrides})
    assert own.get_config_for_module("a").lr == 0.5
    with (
        pytest.warns(DeprecationWarning, match="use a dict"),
        pytest.raises(ConfigError, match=r"no setting 'lrr'. Did you mean 'lr'\?"),
    ):
        PPOConfig.overrides(lrr=0.5)


@pytest.mark.parametrize("given", [((PPOConfig,), {}), ((), {"algo_class": PPOConfig})])
def test_the_class_of_an_algorithm_is_no_setting_of_its_config(given):
    positional, named = given
    with pytest.raises(ConfigError, match=r"Here: leave it out: .*get_training_class"):
        PPOConfig(*positional, **named)


@pytest.mark.parametrize("config_class", [SACConfig, CQLConfig])
def test_the_common_learning_rate_may_be_none_where_each_part_has_its_own(config_class):
    rates = {"actor_lr": 0.125, "critic_lr": 0.25, "alpha_lr": 0.5}
    some = config_class().environment("Pendulum-v1").framework("numpy").training(lr=None)
    some = some.rl_module(model_config={"fcnet_hiddens": [2]})
    if config_class is CQLConfig:
        some = some.training(lagrangian=False)
    learner = some.training(**rates).build_learner()
    optimizers = learner.registered_optimizers.values()
    assert sorted(learner._get_optimizer_lr(each.optimizer) for each in optimizers) == [0.125, 0.25, 0.5]
    with pytest.raises(ConfigError, match="lr=None, and critic_lr is None, too"):
        some.training(**{**rates, "critic_lr": None}).build_learner()


def test_a_built_in_optimizer_says_how_its_rate_is_read():
    optimizer = build("numpy").get_optimizer(P)
    with pytest.raises(AttributeError, match=r"'param_groups'. Here: learner._get_optimizer_lr\(optimizer\)"):
        optimizer.param_groups  # noqa: B018
    assert not hasattr(optimizer, "nothing_of_torch")


def test_the_learner_of_a_group_in_this_process_is_reached_by_rllibs_name():
    group = config("numpy").build_learner_group()
    with pytest.warns(DeprecationWarning, match="use foreach_learner"):
        learner = group._learner
    assert learner is group.foreach_learner(lambda each: each)[0]
    group.shutdown()


# --- batches and gradients ---


def test_a_batch_of_several_modules_is_converted_read_and_counted(backend):
    learner = build(backend)
    batch = MultiAgentBatch({P: ppo_batch(8), "other": ppo_batch(4)}, 9)
    assert batch[P] is batch.policy_batches[P]
    assert (list(batch), batch.agent_steps(), batch.env_steps()) == ([P, "other"], 12, 9)
    converted = learner._convert_batch_type(batch)
    assert isinstance(converted, MultiAgentBatch)
    assert (converted.agent_steps(), converted.env_steps()) == (12, 9)
    again = learner._convert_to_numpy(converted["other"][Columns.OBS])
    np.testing.assert_allclose(again, batch["other"][Columns.OBS], rtol=1e-6)
    assert type(again) is np.ndarray


def rows_of_marwil():
    batch = ppo_batch(8)
    return {name: batch[name] for name in (Columns.OBS, Columns.ACTIONS, Columns.VALUE_TARGETS)}


def sequences_of_impala():
    rng, (number, steps) = np.random.default_rng(0), (3, 4)
    return {
        Columns.OBS: rng.normal(size=(number, steps, 3)).astype(np.float32),
        Columns.ACTIONS: rng.integers(0, 2, (number, steps)),
        Columns.ACTION_LOGP: np.full((number, steps), -0.7, np.float32),
        Columns.ACTION_DIST_INPUTS: np.zeros((number, steps, 2), np.float32),
        Columns.REWARDS: rng.normal(size=(number, steps)).astype(np.float32),
        Columns.TERMINATEDS: np.zeros((number, steps), bool),
        Columns.SEQ_LENS: np.full(number, steps, np.int32),
        "bootstrap_obs": rng.normal(size=(number, 1, 3)).astype(np.float32),
    }


BY_HAND = {
    "ppo": (PPOConfig, {"entropy_coeff": [[0, 0.5], [100, 0.0]], "num_epochs": 1}, ppo_batch),
    "marwil": (MARWILConfig, {"beta": 1.0, "moving_average_sqd_adv_norm_start": 4.0}, rows_of_marwil),
    "impala": (IMPALAConfig, {"entropy_coeff": [[0, 0.5], [100, 0.0]]}, sequences_of_impala),
}


@pytest.mark.parametrize("algorithm", BY_HAND)
def test_a_loss_that_is_called_by_hand_with_a_plain_config_is_the_updates(algorithm, backend):
    """As RLlib's own tests of MARWIL and IMPALA do: the learner of a group, its module, and a config."""
    config_class, settings, make = BY_HAND[algorithm]
    some = config_class().framework(backend, compile="none").debugging(seed=1)
    some = some.environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    some = some.rl_module(model_config={"fcnet_hiddens": [4]}).training(minibatch_size=None, **settings)
    with some.build_learner_group() as group:
        with pytest.warns(DeprecationWarning, match="foreach_learner"):
            learner = group._learner
        batch = learner._convert_batch_type(make())
        fwd_out = learner.module[P].forward_train(batch)
        given = {"module_id": P, "batch": batch, "fwd_out": fwd_out}
        losses = [
            float(learner._convert_to_numpy(learner.compute_loss_for_module(config=each, **given)))
            for each in (some, learner.config.get_config_for_module(P), None)
        ]
        (results,) = group.update(make(), num_epochs=1)
    assert losses == pytest.approx([results[P]["total_loss"]] * 3, rel=1e-5)


class TreatsGradientsAsADict(PPOLearner):
    def postprocess_gradients(self, gradients_dict):
        found = super().postprocess_gradients(gradients_dict)
        assert dict(found).keys() == found.copy().keys() == gradients_dict.keys()
        for ref in found:
            found[ref] = 0.5 * found[ref]
        return found.copy() | {ref: 0.0 * found[ref] for ref in found if "pi" in ref}


def test_processed_gradients_are_read_changed_copied_and_joined_as_a_dict_is(backend):
    learner = config(backend).learners(learner_class=TreatsGradientsAsADict).build_learner()
    before = learner.get_weights()[P]
    learner.update(ppo_batch())
    changed = {name for name, value in learner.get_weights()[P].items() if (value != before[name]).any()}
    assert changed
    assert not any("pi" in name for name in changed)


# --- updates ---


def test_update_without_arguments_takes_the_configs_minibatches_and_epochs(backend):
    given = {"minibatch_size": 4, "num_epochs": 3}
    one, other = build(backend, **given), build(backend)
    one.update(ppo_batch()), other.update(ppo_batch(), **given)
    assert digest(one.get_weights()) == digest(other.get_weights())
    other = build(backend)
    other.update(ppo_batch())  # one pass over the whole batch, as RLlib's update() without arguments
    assert digest(one.get_weights()) != digest(other.get_weights())


def test_rows_are_counted_once_however_many_epochs_train_on_them(backend):
    learner = build(backend)
    for number in (1, 2):
        results = learner.update(ppo_batch(rows=16), minibatch_size=4, num_epochs=3)
        assert results[P]["num_module_steps_trained"] == 16
        assert results[P]["num_module_steps_trained_lifetime"] == 16 * number


def test_the_learner_of_the_page_reports_how_much_of_the_variance_the_values_explain():
    names = {}
    for block in BLOCK.finditer((DOCS / "from-rllib.md").read_text()):
        exec(compile(block.group(1), "from-rllib.md", "exec"), names)
    learner, batch = names["learner"], ppo_batch(64, inputs=4)
    found = learner.update(batch)[P]["vf_explained_var"]
    values = learner.module[P].compute_values({Columns.OBS: batch[Columns.OBS]})  # after the update
    targets = batch[Columns.VALUE_TARGETS]
    assert found == pytest.approx(1.0 - np.var(targets - values) / np.var(targets), rel=1e-5)


# --- modules ---


def own_module(backend):
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule

        class Linear(TorchRLModule):
            def setup(self):
                self.layer = torch.nn.Linear(3, 2)

            def _forward(self, batch, **kwargs):
                return {Columns.ACTION_DIST_INPUTS: self.layer(batch[Columns.OBS])}

    elif backend == "jax":
        from flax import nnx

        from plugrad_jax import JaxRLModule

        class Linear(JaxRLModule):
            def setup(self):
                self.layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))

            def _forward(self, batch, **kwargs):
                return {Columns.ACTION_DIST_INPUTS: self.layer(batch[Columns.OBS])}

    else:
        import keras

        from plugrad_tf2 import Tf2RLModule

        class Linear(Tf2RLModule):
            def setup(self):
                self.layer = keras.layers.Dense(2)
                self.layer.build((None, 3))

            def _forward(self, batch, **kwargs):
                return {Columns.ACTION_DIST_INPUTS: self.layer(batch[Columns.OBS])}

    return RLModuleSpec(module_class=Linear, observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)


def test_a_spec_of_a_module_class_builds_it(backend):
    module = own_module(backend).build()
    assert module.observation_space is OBSERVATIONS
    assert module.unwrapped() is module
    assert len(module.get_state()) == 2


def test_a_spec_without_a_module_class_says_that_a_learner_builds_it():
    with pytest.raises(ConfigError, match="build_learner"):
        RLModuleSpec().build()
    with pytest.raises(ConfigError, match="MultiRLModule"):
        MultiRLModuleSpec(rl_module_specs={"a": RLModuleSpec()}).build()


def test_modules_are_put_together_one_by_one_and_compute_together(backend):
    several = MultiRLModule()
    one, other = own_module(backend).build(), own_module(backend).build()
    several.add_module("a", one)
    several.add_module("b", other)
    batch = {"a": {Columns.OBS: one.ops.asarray(np.ones((2, 3), np.float32))}}
    for forward in (several.forward_train, several.forward_exploration, several.forward_inference):
        outputs = forward(batch)
        assert list(outputs) == ["a"]
        assert tuple(one.ops.shape(outputs["a"][Columns.ACTION_DIST_INPUTS])) == (2, 2)
    with pytest.raises(ConfigError, match="'a' is there already"):
        several.add_module("a", other)
    several.add_module("a", other, override=True)
    assert several["a"] is other
    assert several.remove_module("b") is other
    with pytest.raises(UnknownModuleError):
        several.remove_module("b")
    assert list(several) == ["a"]


def test_a_learners_modules_are_changed_through_the_learner(backend):
    learner = with_modules(config(backend), "a", "b").build_learner()
    with pytest.raises(ConfigError, match=r"learner\.add_module"):
        learner.module.add_module("c", learner.module["a"])
    learner.remove_module("b")
    with pytest.raises(ConfigError, match=r"learner\.remove_module"):
        learner.module.remove_module("a")
    assert list(learner.module) == ["a"]


def test_trainable_variables_of_a_tensorflow_module_are_its_weights(backend):
    module = own_module(backend).build()
    if backend == "jax":
        found = module.named_weights().values()
    else:
        found = module.parameters() if backend == "torch" else module.trainable_variables
    assert sorted(tuple(each.shape) for each in found) == sorted(
        each.shape for each in module.get_state().values()
    )


def test_a_spec_is_taken_from_a_module(backend):
    for module in (own_module(backend).build(), build(backend).module[P]):
        spec = RLModuleSpec.from_module(module)
        assert (spec.observation_space, spec.action_space) == (module.observation_space, module.action_space)
        assert spec.module_class is (type(module) if module.network is None else None)
        learner = config(backend).rl_module(rl_module_spec=spec).build_learner()
        shapes = {name: value.shape for name, value in module.get_state().items()}
        assert {name: value.shape for name, value in learner.get_weights()[P].items()} == shapes


def test_modules_are_built_from_specs_where_they_are_put_together(backend):
    several = MultiRLModule(rl_module_specs={"a": own_module(backend), "b": own_module(backend)})
    assert list(several) == ["a", "b"]
    assert several["a"] is not several["b"]


def test_a_spec_says_what_it_does_not_take():
    with pytest.raises(ConfigError, match=r"no load_state_path. Here: learner.restore_from_path"):
        RLModuleSpec(load_state_path="weights")
    assert MultiRLModuleSpec(multi_rl_module_class=MultiRLModule) == MultiRLModuleSpec()
    with pytest.raises(ConfigError, match="multi_rl_module_class=Mine: several modules are a MultiRLModule"):
        MultiRLModuleSpec(multi_rl_module_class=type("Mine", (MultiRLModule,), {}))


# --- weights on disk ---


def test_modules_save_and_restore_their_weights(backend, tmp_path):
    first, second = build(backend), config(backend).debugging(seed=2).build_learner()
    assert first.module[P].save_to_path(tmp_path / "one") == str(tmp_path / "one")
    second.module[P].restore_from_path(tmp_path / "one")
    assert digest(second.get_weights()) == digest(first.get_weights())
    first.module.save_to_path(tmp_path / "all")
    third = config(backend).debugging(seed=3).build_learner()
    third.module.restore_from_path(tmp_path / "all")
    assert digest(third.get_weights()) == digest(first.get_weights())


def test_modules_restore_weights_that_a_learner_saved(backend, tmp_path):
    learner, other = build(backend), config(backend).debugging(seed=2).build_learner()
    learner.update(ppo_batch())
    learner.save_to_path(tmp_path / "c")
    other.module[P].restore_from_path(tmp_path / "c")
    assert digest(other.get_weights()) == digest(learner.get_weights())


def test_weights_that_do_not_fit_are_refused_and_nothing_is_changed(backend, tmp_path):
    learner = build(backend)
    before = digest(learner.get_state())
    quick(ppo_config(backend, hiddens=(5,))).build_learner().module[P].save_to_path(tmp_path / "wide")
    with pytest.raises(RestoreMismatchError):
        learner.module[P].restore_from_path(tmp_path / "wide")
    with_modules(config(backend), "a", "b").build_learner().module.save_to_path(tmp_path / "two")
    with pytest.raises(CheckpointError, match="the weights of 2 modules"):
        learner.module[P].restore_from_path(tmp_path / "two")
    with pytest.raises(UnknownModuleError):
        learner.module.restore_from_path(tmp_path / "two")
    with pytest.raises(CheckpointError):
        learner.module[P].restore_from_path(tmp_path / "none")
    assert digest(learner.get_state()) == before
    with pytest.raises(ConfigError, match="restore_from_path"):
        type(learner.module[P]).from_checkpoint(tmp_path / "two")
