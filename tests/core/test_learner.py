"""The Learner through its public doors, on the numpy backend: life, update, results, schedules, acting."""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from learning import (
    PlainConfig,
    ValueLearner,
    flat,
    ppo_batch,
    ppo_config,
    value_config,
    weights,
    with_modules,
)

from plugrad import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    Columns,
    Learner,
    MultiAgentBatch,
    SingleAgentEpisode,
    hookimpl,
)
from plugrad.errors import BatchError, ConfigError, LossError, NotBuiltError, UnknownModuleError

P = DEFAULT_MODULE_ID


class Diary:
    """A listener that writes down what it hears."""

    def __init__(self):
        self.heard = []

    @hookimpl
    def learner_built(self, learner):
        self.heard.append(("built", sorted(learner.module)))

    @hookimpl
    def update_begun(self, learner, timesteps):
        self.heard.append(("begun", timesteps, weights(learner).tobytes()))

    @hookimpl(wrapper=True)
    def before_gradient_based_update(self, learner, timesteps):
        self.heard.append(("before", dict(timesteps)))
        return (yield)

    @hookimpl(wrapper=True)
    def apply_gradients(self, learner, gradients_dict):
        self.heard.append(("apply",))
        return (yield)

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner, timesteps):
        self.heard.append(("after", dict(timesteps)))
        return (yield)

    @hookimpl
    def update_ended(self, learner, results):
        self.heard.append(("ended", results))

    @property
    def kinds(self):
        return [kind for kind, *_ in self.heard]


# --- life ---


def test_building_twice_does_nothing():
    diary = Diary()
    learner = Learner(config=ppo_config(), plugins=[diary])
    learner.build()
    module, before = learner.module, weights(learner)
    learner.build()
    assert learner.module is module
    assert weights(learner).tobytes() == before.tobytes()
    assert diary.heard == [("built", [P])]


@pytest.mark.parametrize(
    "use",
    [
        lambda learner: learner.update(ppo_batch()),
        lambda learner: learner.compute_actions(np.zeros((1, 3))),
        lambda learner: learner.compute_values(np.zeros((1, 3))),
        lambda learner: learner.get_state(),
        lambda learner: learner.set_state({}),
        lambda learner: learner.save_to_path("nowhere"),
        lambda learner: learner._check_is_built(),
    ],
)
def test_a_learner_that_is_not_built_says_what_to_call(use):
    learner = Learner(config=ppo_config())
    assert learner._check_is_built(error=False) is False
    with pytest.raises(NotBuiltError, match=r"call build\(\) first"):
        use(learner)
    learner.build()
    assert learner._check_is_built() is True


def test_apply_calls_a_function_with_the_learner():
    learner = ppo_config().build_learner()
    assert learner.apply(lambda learner, a, b: (learner.framework, a, b), 1, b=2) == (None, 1, 2)
    learner.shutdown()


def test_a_module_without_spaces_is_refused_with_where_to_give_them():
    with pytest.raises(ConfigError, match=r"(?s)observation_space.*environment"):
        PlainConfig().framework("numpy").learners(learner_class=ValueLearner).build_learner()


def test_spaces_can_come_from_an_environment_or_by_module():
    box, discrete = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3)
    by_module = value_config().build_learner(spaces={"a": (box, discrete), "b": (box, discrete)})
    assert sorted(by_module.module) == ["a", "b"]
    by_env = value_config().build_learner(env="CartPole-v1")
    assert by_env.module[P].observation_space.shape == (4,)


# --- update ---


def test_the_three_forms_of_a_batch_are_one():
    results, states = [], []
    columns = ppo_batch()
    for batch in (columns, {P: columns}, MultiAgentBatch({P: columns}, env_steps=16)):
        learner = ppo_config().build_learner()
        results.append(learner.update(batch))
        states.append(weights(learner).tobytes())
    assert states[0] == states[1] == states[2]
    without_times = [{k: v for k, v in flat(each).items() if "/time/" not in k} for each in results]
    assert without_times[0] == without_times[1] == without_times[2]


def test_an_update_changes_no_array_of_the_batch():
    batch = ppo_batch()
    kept = {column: values.copy() for column, values in batch.items()}
    ppo_config().build_learner().update(batch)
    for column, values in kept.items():
        np.testing.assert_array_equal(batch[column], values)


def test_results_have_the_names_of_the_contract_and_plain_values():
    learner = ppo_config(use_kl_loss=True).build_learner()
    for n in (1, 2):
        results = learner.update(MultiAgentBatch({P: ppo_batch()}, env_steps=10))
        assert set(results) == {P, ALL_MODULES}
        assert all(type(value) in (float, int) for value in flat(results).values())
        assert {
            "total_loss",
            "policy_loss",
            "vf_loss",
            "entropy",
            "mean_kl_loss",
            "curr_kl_coeff",
            "default_optimizer_learning_rate",
            "gradients_default_optimizer_global_norm",
            "num_trainable_parameters",
        } <= set(results[P])
        assert results[P]["num_trainable_parameters"] == 47
        assert results[P]["num_module_steps_trained"] == 16
        assert results[P]["num_module_steps_trained_lifetime"] == 16 * n
        assert results[ALL_MODULES]["num_env_steps_trained"] == 10
        assert results[ALL_MODULES]["num_env_steps_trained_lifetime"] == 10 * n
        assert results[P]["weights_seq_no"] == results[ALL_MODULES]["weights_seq_no"] == n


def test_total_loss_adds_up_from_the_reported_parts():
    config = ppo_config(entropy_coeff=0.1, use_kl_loss=True, kl_coeff=0.3, vf_loss_coeff=0.7)
    found = config.build_learner().update(ppo_batch())[P]
    expected = found["policy_loss"] + 0.7 * found["vf_loss"] - 0.1 * found["entropy"]
    assert found["total_loss"] == pytest.approx(expected + 0.3 * found["mean_kl_loss"], abs=1e-6)


class Counting(ValueLearner):
    """Counts gradient steps and their rows."""

    def apply_gradients(self, gradients_dict):
        self.steps = getattr(self, "steps", 0) + 1
        super().apply_gradients(gradients_dict)

    def _update(self, batch):
        self.rows = getattr(self, "rows", [])
        self.rows.append({module_id: np.array(columns["row"]) for module_id, columns in batch.items()})
        return super()._update(batch)


def numbered(rows: int) -> dict[str, np.ndarray]:
    return {**ppo_batch(rows), "row": np.arange(rows)}


@pytest.mark.parametrize(
    ("rows", "size", "epochs", "total", "steps"),
    [
        (64, 25, 1, 0, 3),
        (64, 25, 2, 0, 6),
        (64, 64, 2, 0, 2),
        (64, None, 2, 0, 2),
        (9, 4, 1, 5, 5),
        (9, None, 1, 3, 3),
    ],
)
def test_minibatches_follow_the_cyclic_rule(rows, size, epochs, total, steps):
    learner = value_config(learner_class=Counting, hiddens=()).build_learner()
    learner.update(numbered(rows), minibatch_size=size, num_epochs=epochs, num_total_minibatches=total)
    assert learner.steps == steps
    assert [len(each[P]) for each in learner.rows] == [size or rows] * steps
    walked = np.concatenate([each[P] for each in learner.rows])
    np.testing.assert_array_equal(walked, np.arange(len(walked)) % rows)


def test_the_config_cuts_where_the_call_says_nothing_and_shuffles_every_pass_anew():
    config = value_config(
        learner_class=Counting, hiddens=(), minibatch_size=4, num_epochs=2, shuffle_batch_per_epoch=True
    )
    learner = config.build_learner()
    learner.update(numbered(8))
    first, second = np.concatenate([each[P] for each in learner.rows]).reshape(2, 8)
    assert Counter(first) == Counter(second) == Counter(range(8))
    assert list(first) != list(second) != list(range(8))
    learner.rows.clear()
    learner.update(numbered(8), shuffle_batch_per_epoch=False, minibatch_size=8, num_epochs=1)
    assert list(learner.rows[0][P]) == list(range(8))


def test_a_call_may_ask_for_the_whole_batch_where_the_config_has_minibatches():
    """RLlib's `minibatch_size=None`; here None is the config's."""
    learner = value_config(learner_class=Counting, hiddens=(), minibatch_size=4).build_learner()
    learner.update(numbered(9), minibatch_size="whole", num_epochs=2)
    assert [list(each[P]) for each in learner.rows] == [list(range(9))] * 2
    group = value_config(hiddens=(), minibatch_size=4).build_learner_group()
    (one,) = group.update(numbered(9), minibatch_size="whole", num_epochs=1)
    other = value_config(hiddens=(), minibatch_size=None).build_learner().update(numbered(9), num_epochs=1)
    assert one[P]["total_loss"] == other[P]["total_loss"]
    with pytest.raises(
        ConfigError, match=r"minibatch_size='hole': .*at least 1 or \"whole\", the whole batch"
    ):
        learner.update(numbered(9), minibatch_size="hole")


def test_losses_and_metrics_are_means_over_the_minibatches():
    class Reporting(ValueLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            self.register_metric(module_id, "mean_target", self.ops.mean(batch[Columns.VALUE_TARGETS]))
            return super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )

    learner = value_config(learner_class=Reporting, lr=0.0, minibatch_size=4).build_learner()
    batch = ppo_batch(16)
    values = learner.compute_values(batch[Columns.OBS])
    found = learner.update(batch)[P]
    assert found["mean_target"] == pytest.approx(batch[Columns.VALUE_TARGETS].mean(), abs=1e-6)
    assert found["total_loss"] == pytest.approx(
        ((values - batch[Columns.VALUE_TARGETS]) ** 2).mean(), abs=1e-5
    )


def test_a_metric_registered_in_a_hook_at_the_edge_may_be_an_array_and_is_a_copy():
    class Edge(ValueLearner):
        def after_gradient_based_update(self, *, timesteps):
            super().after_gradient_based_update(timesteps=timesteps)
            self.histogram = np.arange(3)
            self.register_metrics(P, {"histogram": self.histogram, "one": np.float32(1.0)})

    learner = value_config(learner_class=Edge).build_learner()
    results = learner.update(ppo_batch())
    learner.histogram[0] = 7
    np.testing.assert_array_equal(results[P]["histogram"], [0, 1, 2])
    assert type(results[P]["one"]) is float


def test_a_vector_as_a_metric_or_a_loss_is_refused_by_name():
    class Vector(ValueLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            self.register_metric(module_id, "values", fwd_out[Columns.VF_PREDS])

    with pytest.raises(LossError, match=r"'values'.*default_policy.*\[16\]"):
        value_config(learner_class=Vector).build_learner().update(ppo_batch())

    class NotReduced(ValueLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            return fwd_out[Columns.VF_PREDS]

    with pytest.raises(LossError, match=r"default_policy.*\[16\].*take its mean"):
        value_config(learner_class=NotReduced).build_learner().update(ppo_batch())


def test_who_replaces_the_loss_is_not_bound_to_the_algorithms_columns():
    config = ppo_config(use_kl_loss=True).learners(learner_class=ValueLearner)
    batch = ppo_batch()
    columns = {name: batch[name] for name in (Columns.OBS, Columns.VALUE_TARGETS)}
    results = config.build_learner().update({**columns, "more": np.ones((16, 2))})
    assert "total_loss" in results[P]
    assert "curr_kl_coeff" not in results[P]


# --- schedules and coefficients ---


def test_schedules_move_with_timesteps_and_stay_without():
    config = ppo_config(lr=[[0, 0.01], [100, 0.0]], entropy_coeff=[[0, 0.5], [50, 0.1]])
    learner = config.build_learner()

    def after(timesteps):
        rate = learner.update(ppo_batch(), timesteps=timesteps)[P]["default_optimizer_learning_rate"]
        return [rate, float(learner.get_state()["coefficients"][P]["entropy_coeff"])]

    assert after(None) == pytest.approx([0.01, 0.5])
    assert after({"num_env_steps_sampled_lifetime": 25}) == pytest.approx([0.0075, 0.3])
    assert after(None) == pytest.approx([0.0075, 0.3])
    assert after({"num_env_steps_sampled_lifetime": 500}) == pytest.approx([0.0, 0.1])
    before = weights(learner)
    after(None)
    np.testing.assert_array_equal(weights(learner), before)


def test_a_scheduled_coefficient_reaches_the_loss():
    learner = ppo_config(lr=0.0, entropy_coeff=[[0, 0.0], [10, 1.0]]).build_learner()
    first = learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 10})[P]
    second = learner.update(ppo_batch())[P]
    assert second["total_loss"] == pytest.approx(first["total_loss"] - first["entropy"], abs=1e-6)


@pytest.mark.parametrize(("kl_target", "factor"), [(1e-6, 1.5), (1e3, 0.5)])
def test_the_kl_coefficient_adapts_to_the_divergence(kl_target, factor):
    learner = ppo_config(use_kl_loss=True, kl_coeff=0.2, kl_target=kl_target).build_learner()
    assert learner.update(ppo_batch())[P]["curr_kl_coeff"] == pytest.approx(0.2 * factor)
    assert learner.update(ppo_batch())[P]["curr_kl_coeff"] == pytest.approx(0.2 * factor**2)


def test_a_kl_coefficient_on_target_stays_and_each_module_has_its_own():
    config = with_modules(ppo_config(use_kl_loss=True, kl_coeff=0.2, lr=0.0), "a", "b")
    probe = config.build_learner().update({"a": ppo_batch(), "b": ppo_batch()})
    kl = probe["a"]["mean_kl_loss"]
    overrides = {"a": {"kl_target": kl}, "b": {"kl_target": kl / 10}}
    learner = config.rl_module(algorithm_config_overrides_per_module=overrides).build_learner()
    results = learner.update({"a": ppo_batch(), "b": ppo_batch()})
    assert results["a"]["curr_kl_coeff"] == pytest.approx(0.2)
    assert results["b"]["curr_kl_coeff"] == pytest.approx(0.3)


# --- several modules ---


def test_each_module_learns_as_if_it_were_alone():
    both = with_modules(ppo_config(minibatch_size=8, num_epochs=2, shuffle_batch_per_epoch=True), "a", "b")
    together, alone = both.build_learner(), with_modules(both, "b").build_learner()
    assert not np.array_equal(weights(together, "a"), weights(together, "b"))
    results = together.update({"a": ppo_batch(16, 0), "b": ppo_batch(16, 5)})
    lonely = alone.update({"b": ppo_batch(16, 5)})
    np.testing.assert_array_equal(weights(together, "b"), weights(alone, "b"))
    assert results["b"] == lonely["b"]
    assert results["a"]["num_module_steps_trained"] == 16


def test_a_narrow_module_goes_round_while_the_wide_one_passes_once():
    config = with_modules(value_config(learner_class=Counting, hiddens=(), minibatch_size=4), "a", "b")
    learner = config.build_learner()
    results = learner.update({"a": numbered(12), "b": numbered(3)})
    assert [len(each["a"]) for each in learner.rows] == [len(each["b"]) for each in learner.rows] == [4] * 3
    assert Counter(np.concatenate([each["b"] for each in learner.rows])) == {0: 4, 1: 4, 2: 4}
    assert results["b"]["num_module_steps_trained"] == 3
    assert results[ALL_MODULES]["num_env_steps_trained"] == 12


def test_a_module_without_rows_is_left_out_and_counted():
    learner = with_modules(ppo_config(), "a", "b").build_learner()
    before = weights(learner, "b")
    empty = {column: values[:0] for column, values in ppo_batch().items()}
    results = learner.update({"a": ppo_batch(), "b": empty})
    assert set(results) == {"a", ALL_MODULES}
    assert results[ALL_MODULES]["num_modules_without_rows"] == 1
    np.testing.assert_array_equal(weights(learner, "b"), before)
    assert (
        learner.update({"a": ppo_batch(), "b": ppo_batch()})["b"]["num_module_steps_trained_lifetime"] == 16
    )


def test_policies_to_train_leaves_the_others_alone():
    config = with_modules(ppo_config(), "a", "b").multi_agent(policies_to_train=["b"])
    learner = config.build_learner()
    before = {module_id: weights(learner, module_id) for module_id in ("a", "b")}
    results = learner.update({"a": ppo_batch(), "b": ppo_batch()})
    assert set(results) == {"b", ALL_MODULES}
    np.testing.assert_array_equal(weights(learner, "a"), before["a"])
    assert not np.array_equal(weights(learner, "b"), before["b"])
    with pytest.raises(BatchError, match=r"nothing to train.*'b'"):
        learner.update({"a": ppo_batch()})


def test_a_rule_of_ones_own_decides_who_trains_and_sees_the_batch():
    class OnlyWide(Learner):
        def should_module_be_updated(self, module_id, multi_agent_batch=None):
            return len(multi_agent_batch[module_id][Columns.OBS]) > 8

    config = with_modules(ppo_config(), "a", "b").learners(learner_class=OnlyWide)
    assert set(config.build_learner().update({"a": ppo_batch(4), "b": ppo_batch(16)})) == {"b", ALL_MODULES}


def test_an_override_per_module_reaches_its_loss_and_its_optimizer():
    config = with_modules(ppo_config(lr=0.01), "a", "b").rl_module(
        algorithm_config_overrides_per_module={"b": {"lr": 0.5, "vf_loss_coeff": 0.0}}
    )
    results = config.build_learner().update({"a": ppo_batch(), "b": ppo_batch()})
    assert results["a"]["default_optimizer_learning_rate"] == pytest.approx(0.01)
    assert results["b"]["default_optimizer_learning_rate"] == pytest.approx(0.5)
    assert results["b"]["total_loss"] == pytest.approx(results["b"]["policy_loss"])


# --- listeners ---


def test_listeners_hear_an_update_in_order_and_its_results():
    diary = Diary()
    learner = Learner(config=ppo_config(minibatch_size=8), plugins=[diary])
    learner.build()
    before = weights(learner).tobytes()
    results = learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 3})
    assert diary.kinds == ["built", "begun", "before", "apply", "apply", "after", "ended"]
    assert diary.heard[1] == ("begun", {"num_env_steps_sampled_lifetime": 3}, before)
    assert diary.heard[5] == ("after", {"num_env_steps_sampled_lifetime": 3})
    assert diary.heard[-1] == ("ended", results)


def test_a_bad_batch_reaches_no_listener():
    diary = Diary()
    learner = Learner(config=ppo_config(), plugins=[diary])
    learner.build()
    with pytest.raises(UnknownModuleError):
        learner.update({"nobody": ppo_batch()})
    assert diary.kinds == ["built"]


# --- acting ---


def test_actions_come_with_what_a_batch_needs():
    learner = ppo_config().build_learner()
    obs = np.random.default_rng(0).normal(size=(50, 3))
    columns = learner.compute_actions(obs)
    logits = columns[Columns.ACTION_DIST_INPUTS]
    logps = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert logits.shape == (50, 2)
    assert set(columns[Columns.ACTIONS]) == {0, 1}
    np.testing.assert_allclose(
        columns[Columns.ACTION_LOGP], logps[np.arange(50), columns[Columns.ACTIONS]], atol=1e-6
    )
    np.testing.assert_array_equal(columns[Columns.VF_PREDS], learner.compute_values(obs))
    batch = {**ppo_batch(50), **columns, Columns.OBS: obs}
    assert learner.update(batch, num_epochs=1)[P]["policy_loss"] == pytest.approx(
        -batch[Columns.ADVANTAGES].mean(), abs=1e-5
    )


def test_without_exploring_the_most_probable_action_is_taken():
    learner = ppo_config().build_learner()
    obs = np.random.default_rng(0).normal(size=(20, 3))
    columns = learner.compute_actions(obs, explore=False)
    np.testing.assert_array_equal(columns[Columns.ACTIONS], columns[Columns.ACTION_DIST_INPUTS].argmax(-1))
    assert Columns.VF_PREDS not in columns


def test_acting_uses_the_weights_of_the_moment():
    learner = ppo_config(lr=0.1).build_learner()
    obs = np.ones((1, 3))
    first = learner.compute_values(obs)
    learner.update(ppo_batch())
    second = learner.compute_values(obs)
    assert second != first
    learner.set_weights({P: {name: np.zeros_like(w) for name, w in learner.get_weights()[P].items()}})
    assert learner.compute_values(obs) == 0.0


def test_equal_seeds_act_and_learn_alike_and_other_seeds_do_not():
    def run(seed):
        learner = ppo_config(seed=seed, minibatch_size=8, shuffle_batch_per_epoch=True).build_learner()
        learner.update(ppo_batch())
        return [*learner.compute_actions(np.zeros((20, 3)))[Columns.ACTIONS], *weights(learner)]

    assert run(1) == run(1)
    assert run(1) != run(2)


# --- episodes ---


def test_episodes_become_a_batch_with_advantages():
    learner = ppo_config(minibatch_size=5).build_learner()
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(11, 3)).astype(np.float32)
    columns = learner.compute_actions(obs[:-1])
    actions = columns.pop(Columns.ACTIONS)
    episode = SingleAgentEpisode(
        observations=obs, actions=actions, rewards=np.ones(10), terminated=True, extra_model_outputs=columns
    )
    results = learner.update(episodes=[episode])
    assert results[P]["num_module_steps_trained"] == 10
    assert results[P]["policy_loss"] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("given", [{}, {"batch": {}, "episodes": []}])
def test_update_takes_a_batch_or_episodes(given):
    with pytest.raises(BatchError, match="a batch or episodes"):
        ppo_config().build_learner().update(**given)
