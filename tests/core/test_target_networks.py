"""Target networks: what they hold, when they move, and that they are part of everything that a learner remembers."""

import gymnasium as gym
import numpy as np
import pytest
from learning import (
    OBSERVATIONS,
    ValueLearner,
    digest,
    largest_difference,
    ppo_config,
    value_config,
    with_modules,
)
from target_learning import TAU, BootstrappingLearner, bootstrapping

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad import numpy_ops as np_ops
from plugrad.errors import ConfigError, NonFiniteError, RestoreMismatchError
from plugrad_dqn import DQNConfig

P = DEFAULT_MODULE_ID


def batch(rows=16, seed=0):
    rng = np.random.default_rng(seed)
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.REWARDS: rng.normal(size=rows).astype(np.float32),
    }


def target(learner, module_id=P):
    return learner.targets[module_id].get_state()


def value_weights(learner, module_id=P):
    return {name: each for name, each in learner.get_weights()[module_id].items() if name.startswith("vf")}


def test_a_target_begins_as_a_copy_of_the_parameters_named():
    learner = bootstrapping()
    assert list(target(learner)) == ["vf.0.weight", "vf.0.bias", "vf.out.weight", "vf.out.bias"]
    assert digest(target(learner)) == digest(value_weights(learner))


def test_a_loss_reads_the_targets_values_not_the_modules():
    learner = bootstrapping()
    learner.targets[P].set_state({name: each * 3.0 for name, each in target(learner).items()})
    tripled, rows = {**learner.get_weights()[P], **target(learner)}, batch()
    network = learner.module[P].network
    later = network.forward(np_ops, tripled, {Columns.OBS: rows[Columns.NEXT_OBS]}, value=True)
    results = learner.update(rows)
    assert results[P]["target_mean"] == pytest.approx(later[Columns.VF_PREDS].mean(), abs=1e-6)


def test_it_moves_by_tau_towards_the_parameters_after_the_update():
    learner = bootstrapping()
    for _ in range(2):
        old = target(learner)
        learner.update(batch())
        expected = {
            name: TAU * value + (1 - TAU) * old[name] for name, value in value_weights(learner).items()
        }
        assert largest_difference(target(learner), expected) < 1e-6
    assert largest_difference(target(learner), value_weights(learner)) > 1e-3


def test_a_copy_now_and_then():
    learner = bootstrapping()
    own = learner.targets[P]
    learner.set_weights({P: {name: each + 1.0 for name, each in learner.get_weights()[P].items()}})
    first = digest(target(learner))
    assert not own.update(every=100, now=99)
    assert digest(target(learner)) == first
    assert own.update(every=100, now=100)
    assert digest(target(learner)) == digest(value_weights(learner))
    assert not own.update(every=100, now=199)
    assert own.update(every=100, now=200)
    counters = learner.get_state()["counters"]
    assert counters[f"num_target_updates_lifetime/{P}"] == 2
    assert counters[f"last_target_update_ts/{P}"] == 200


@pytest.mark.parametrize("now", [np.int64(200), np.float32(200), 200.0])
def test_a_time_of_any_number_type_is_kept_as_a_whole_number(tmp_path, now):
    learner = bootstrapping()
    assert learner.targets[P].update(every=100, now=now)
    restored = BootstrappingLearner.from_checkpoint(learner.save_to_path(tmp_path / "saves"))
    last = restored.counters[f"last_target_update_ts/{P}"]
    assert (last, type(last)) == (200, int)


def test_state_and_checkpoints_hold_it(tmp_path):
    learner, other = bootstrapping(), bootstrapping(seed=2)
    learner.update(batch())
    other.set_state(learner.get_state())
    assert digest(target(other)) == digest(target(learner))
    restored = BootstrappingLearner.from_checkpoint(learner.save_to_path(tmp_path / "saves"))
    assert digest(restored.get_state()) == digest(learner.get_state())
    for each in (learner, other, restored):
        each.update(batch(seed=1))
    assert digest(other.get_state()) == digest(restored.get_state()) == digest(learner.get_state())
    state = learner.get_state("targets")
    del state["targets"][P]["vf.out.bias"]
    with pytest.raises(RestoreMismatchError, match=r"missing: targets/default_policy/vf\.out\.bias"):
        learner.set_state(state)


def test_a_failed_update_puts_it_back():
    class Failing(BootstrappingLearner):
        def after_gradient_based_update(self, *, timesteps):
            super().after_gradient_based_update(timesteps=timesteps)
            raise RuntimeError("after the target moved")

    learner = value_config(learner_class=Failing).build_learner()
    before = digest(learner.get_state())
    with pytest.raises(RuntimeError, match="after the target moved"):
        learner.update(batch())
    assert digest(learner.get_state()) == before
    spoiled = batch()
    spoiled[Columns.REWARDS][3] = np.inf
    with pytest.raises(NonFiniteError):
        bootstrapping().update(spoiled)


def test_modules_come_and_go_with_theirs():
    config = with_modules(value_config(learner_class=BootstrappingLearner), "a")
    learner = config.build_learner()
    learner.add_module(module_id="b", module_spec=RLModuleSpec())
    assert list(learner.targets) == ["a", "b"]
    learner.update({"a": batch(), "b": batch()})
    assert digest(target(learner, "b")) != digest(value_weights(learner, "b"))
    learner.remove_module("a")
    assert list(learner.get_state()["targets"]) == ["b"]
    assert not any(name.endswith("/a") for name in learner.get_state()["counters"])


def test_an_algorithm_without_targets_has_none():
    learner = ppo_config().build_learner()
    assert learner.targets == {}
    assert learner.get_state()["targets"] == {}


def test_a_name_that_is_no_parameter_is_refused():
    class Misspelt(ValueLearner):
        def get_target_parameters(self, module_id, config=None):
            return ["vf.out.wieght"]

    with pytest.raises(ConfigError, match=r"no parameter 'vf.out.wieght' in .*Did you mean 'vf.out.weight'"):
        value_config(learner_class=Misspelt).build_learner()


def test_rows_and_timesteps_are_counted_apart():
    """Updates without timesteps first, such as offline, then training from timestep 0: the target goes on moving."""
    config = DQNConfig().framework("numpy", compile="none").debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [2]})
    config = config.training(target_network_update_freq=32, minibatch_size=None)
    learner = config.build_learner(spaces={P: (OBSERVATIONS, gym.spaces.Discrete(2))})
    rng = np.random.default_rng(0)
    rows = {
        "obs": rng.normal(size=(16, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(16, 3)).astype(np.float32),
        "actions": rng.integers(0, 2, 16),
        "rewards": rng.normal(size=16).astype(np.float32),
        "terminateds": np.zeros(16, bool),
        "truncateds": np.zeros(16, bool),
    }

    def moves(number, first=None):
        before = learner.counters.get(f"num_target_updates_lifetime/{P}", 0)
        for n in range(number):
            now = {} if first is None else {"num_env_steps_sampled_lifetime": first + 16 * (n + 1)}
            learner.update(rows, timesteps=now or None)
        return learner.counters.get(f"num_target_updates_lifetime/{P}", 0) - before

    assert moves(6) == 3
    assert moves(6, first=0) == 3
    assert moves(4, first=0) == 2, "time that goes back begins anew"
    assert moves(4) in (2, 3)
