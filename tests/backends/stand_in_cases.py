"""Learners on devices that stand in for a GPU: test_stand_ins.py runs this file with PLUGRAD_TEST_DEVICE=stand-in."""

from functools import partial
from importlib import import_module
from typing import Any

import actor_critics
import numpy as np
import pytest
import stand_ins
import vtrace_learners
import walks
from learning import OBSERVATIONS, ppo_batch, ppo_config, quick, weights

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig
from plugrad.errors import PlugradError
from plugrad.learner.state.state import digest
from plugrad.testing.taking_turns import take_turns
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID
ALGORITHMS = ("ppo", "sac", "dqn", "impala")


def config_of(algorithm: str, backend: str) -> AlgorithmConfig:
    """A few dozen weights."""
    if algorithm == "ppo":
        config = ppo_config(backend, minibatch_size=8, num_epochs=2, normalize_advantages="minibatch")
    elif algorithm == "sac":
        config = actor_critics.tiny("sac", backend)
    elif algorithm == "dqn":
        space = actor_critics.KINDS["sac discrete"][1]
        config = (
            DQNConfig().framework(backend).debugging(seed=1).rl_module(model_config={"fcnet_hiddens": [4]})
        )
        config = config.environment(observation_space=OBSERVATIONS, action_space=space).training(
            minibatch_size=8
        )
    else:
        config = vtrace_learners.config("impala", backend)
    return quick(config)


def batch_of(algorithm: str, seed: int) -> Any:
    """A few rows, as numpy."""
    kind = {"sac": "sac", "dqn": "sac discrete"}.get(algorithm)
    return actor_critics.transitions(kind, seed=seed) if kind else ppo_batch(16, seed=seed)


def train(algorithm: str, learner: Any, seed: int = 0, *, there: bool = False) -> None:
    """One update; `there`: of a batch that is on the device already."""
    if algorithm == "impala":
        learner.update(episodes=vtrace_learners.episodes_for(learner, seed=seed))
        return
    batch = batch_of(algorithm, seed)
    learner.update(learner._convert_batch_type(batch) if there else batch)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learner_there_computes_as_one_on_the_cpu(backend, placed, algorithm, tmp_path):
    config = config_of(algorithm, backend)
    here = config.framework(backend, device="cpu").build_learner()
    with placed():
        there, loaded = config.build_learner(), config.build_learner()
        assert there.device == stand_ins.DEVICES[backend]
        for seed in range(2):
            train(algorithm, there, seed)
        there.save_to_path(tmp_path / "saved")
        loaded.restore_from_path(tmp_path / "saved")
        train(algorithm, loaded, 2)
        train(algorithm, there, 2)
        acted = there.compute_actions(ppo_batch(4)["obs"], explore=False)
    for seed in range(3):
        train(algorithm, here, seed)
    np.testing.assert_array_equal(weights(loaded), weights(there))
    np.testing.assert_allclose(weights(there), weights(here), rtol=0, atol=1e-6)
    expected = here.compute_actions(ppo_batch(4)["obs"], explore=False)
    for column, values in expected.items():
        np.testing.assert_allclose(acted[column], values, rtol=1e-5, atol=1e-6, err_msg=column)


def test_an_update_there_is_undone(backend, placed):
    with placed():
        learner = config_of("ppo", backend).build_learner()
        train("ppo", learner)
        before, batch = digest(learner), ppo_batch(16)
        batch["advantages"][3] = np.nan
        for given in (batch, learner._convert_batch_type(batch)):
            with pytest.raises(PlugradError):
                learner.update(given)
            assert digest(learner) == before


def test_learners_there_exchange_gradients(backend, placed):
    config = config_of("ppo", backend)
    with placed():
        there = [config.build_learner() for _ in range(2)]
        take_turns(there, lambda learner: train("ppo", learner))
    here = [config.framework(backend, device="cpu").build_learner() for _ in range(2)]
    take_turns(here, lambda learner: train("ppo", learner))
    np.testing.assert_allclose(weights(there[0]), weights(here[0]), rtol=0, atol=1e-6)


def test_batches_and_actions_there_stay_there(backend, placed):
    """As on a GPU, whose memory numpy does not read: PPO's advantages are standardised on the device."""
    config = config_of("ppo", backend)
    with placed():
        there, here = config.build_learner(), config.build_learner()
        object.__setattr__(there.backend_info, "host_devices", ())
        for seed in range(2):
            train("ppo", there, seed, there=True)
            train("ppo", here, seed)
        obs = ppo_batch(8)["obs"]
        tensor = there._convert_batch_type({"obs": obs})["obs"]
        acted = there.compute_actions(tensor, explore=False, as_tensors=True)
    np.testing.assert_allclose(weights(there), weights(here), rtol=0, atol=1e-6)
    expected = here.compute_actions(obs, explore=False)
    for column, values in there._convert_to_numpy(acted).items():
        np.testing.assert_allclose(values, expected[column], rtol=1e-5, atol=1e-6, err_msg=column)


COPIED = {"ppo": (2, 2), "sac": (2, 2), "dqn": (2, 1)}
"""Copies of an update to the host and to the device. Host: whether values are finite, and results. Device: row numbers,
of PPO also those of the rows that are standardised, of SAC the noise."""


@pytest.mark.parametrize("algorithm", COPIED)
def test_as_much_is_copied_in_many_steps_as_in_few(algorithm):
    """torch counts. Learning rates and coefficients are copied to the host again only after somebody changed them."""
    if stand_ins.backends_under_test() != ["torch"]:
        return
    copies = import_module("torch_stand_in").COPIES
    for num_epochs in (2, 5):
        learner = config_of(algorithm, "torch").training(num_epochs=num_epochs).build_learner()
        optimizer = next(iter(learner.registered_optimizers.values()))
        for seed in range(4):
            batch = learner._convert_batch_type(batch_of(algorithm, seed))
            if seed == 3:
                optimizer.optimizer.lr.read().mul_(0.5)
            copies.clear()
            results = learner.update(batch)
            assert seed == 0 or copies["to device"] == COPIED[algorithm][1], (num_epochs, seed)
            assert seed == 0 or copies["to host"] == COPIED[algorithm][0] + (seed == 3), (num_epochs, seed)
            rate = results[P][f"{optimizer.name}_learning_rate"]
            expected = np.float32(learner.config.lr) * np.float32(0.5 if seed == 3 else 1.0)
            assert rate == expected


def of_tensors(
    backend: str, num_epochs: int, steps: int, mode: str = "SAME_STEP", *, normalize: bool = False
) -> Any:
    """An Algorithm in four environments whose tensors are on the learner's device."""
    config = config_of("ppo", backend).training(train_batch_size=4 * steps, num_epochs=num_epochs)
    config = config.env_runners(normalize_observations=normalize)
    return in_walks(config, backend, "box", mode)


def replaying(backend: str, steps: int) -> Any:
    """The same of DQN, of rows of two steps."""
    config = config_of("dqn", backend).env_runners(rollout_fragment_length=steps)
    config = config.training(
        train_batch_size=16,
        n_step=2,
        num_steps_sampled_before_learning_starts=8,
        replay_buffer_config={"capacity": 70},
    )
    return in_walks(config, backend, "discrete")


def asynchronous(backend: str, steps: int, mode: str = "SAME_STEP") -> Any:
    """The same of IMPALA, of a sequence of each environment."""
    config = config_of("impala", backend).env_runners(rollout_fragment_length=steps)
    return in_walks(config.training(train_batch_size=3 * steps), backend, "discrete", mode)


def in_walks(config: Any, backend: str, actions: str, mode: str = "SAME_STEP") -> Any:
    """An Algorithm in four walks."""
    other = config.environment(
        **dict(zip(SPACES, (OBSERVATIONS, walks.ACTIONS[actions]), strict=True))
    ).build_learner()
    made = config.environment(
        lambda num_envs: walks.WalksOfTensors(num_envs, backend, other, actions=actions, mode=mode),
        **dict.fromkeys(SPACES),
    )
    return made.env_runners(vectorization_mode="tensors", num_envs_per_env_runner=4).build_algo()


SPACES = ("observation_space", "action_space")


MAKE = {
    "stay_there": partial(of_tensors, num_epochs=2, normalize=True),
    "resets": partial(of_tensors, num_epochs=2, mode="NEXT_STEP"),
    "replay": replaying,
    "vtrace": asynchronous,
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_environments_of_tensors_there_stay_there(backend, placed, make):
    with placed():
        there = make(backend, steps=6)
        object.__setattr__(there._learner.backend_info, "host_devices", ())
        for _ in range(2):
            results = there.train()
    assert results["env_runners/num_episodes"] > 3
    here = make(backend, steps=6)
    for _ in range(2):
        here.train()
    np.testing.assert_allclose(weights(there._learner), weights(here._learner), rtol=0, atol=1e-6)


def test_as_much_is_copied_of_many_steps_of_environments_as_of_few():
    """torch counts: beside what an update copies, the noise of a sample and its metrics, and what the test's actions
    and answers are, which pass numpy: five tensors a step, one action."""
    if stand_ins.backends_under_test() != ["torch"]:
        return
    for normalize in (False, True):
        found = copied_of_samples(partial(of_tensors, "torch", 2, normalize=normalize))
        assert found == (COPIED["ppo"][1] + 1, COPIED["ppo"][0] + 1)


def copied_of_samples(make: Any, mode: str = "SAME_STEP") -> tuple[int, int]:
    """The same numbers of copies, to the device and to the host, of a sample of few steps and of one of many."""
    copies, found = import_module("torch_stand_in").COPIES, []
    for steps in (6, 12):
        algorithm = make(steps, mode=mode)
        algorithm.train()
        copies.clear()
        algorithm.train()
        answers = 5 if mode == "SAME_STEP" else 4  # without final_obs
        found.append((copies["to device"] - answers * steps, copies["to host"] - steps))
    few, many = found
    assert few == many
    return few


def test_as_much_is_copied_of_many_steps_that_are_replayed_as_of_few():
    """torch counts, as above. To the device: the noise of a sample, which steps its rows are of, their places in the
    buffer, the places that are drawn. To the host: the metrics, and where episodes end."""
    if stand_ins.backends_under_test() != ["torch"]:
        return
    copies = import_module("torch_stand_in").COPIES
    found = []
    for steps in (4, 8):
        algorithm = replaying("torch", steps)
        for _ in range(2):  # the first one has no steps that wait
            algorithm.train()
        copies.clear()
        algorithm.train()
        found.append((copies["to device"] - 5 * steps, copies["to host"] - steps))
    assert found == [(COPIED["dqn"][1] + 4, COPIED["dqn"][0] + 2)] * 2


def test_as_much_is_copied_of_long_sequences_of_environments_as_of_short_ones():
    """torch counts, as above: beside an update's row numbers, finiteness and results, a sample's noise and metrics."""
    if stand_ins.backends_under_test() == ["torch"]:
        assert copied_of_samples(partial(asynchronous, "torch")) == (1 + 1, 2 + 1)


def test_of_environments_that_reset_in_a_step_of_their_own_the_host_reads_which_steps_these_are():
    """Beside what it reads above; PPO's device gets the numbers of the others. Their advantages are standardised."""
    if stand_ins.backends_under_test() != ["torch"]:
        return
    to_device, to_host = COPIED["ppo"][1] + 1, COPIED["ppo"][0] + 1
    assert copied_of_samples(partial(of_tensors, "torch", 2), "NEXT_STEP") == (to_device + 1, to_host + 1)
    assert copied_of_samples(partial(asynchronous, "torch"), "NEXT_STEP") == (1 + 1, 2 + 1 + 1)


def on_the_host(learner: Any, values: Any) -> Any:
    import torch

    return values + torch.zeros(values.shape)


def item(learner: Any, values: Any) -> Any:
    return values * float(values.sum().item() > 0)


def by_numpy(learner: Any, values: Any) -> Any:
    return learner._convert_batch_type({"x": learner._convert_to_numpy(values)})["x"]


def constant_elsewhere(learner: Any, values: Any) -> Any:
    import tensorflow as tf

    with tf.device("cpu:0"):
        return values + tf.constant([0.0])


def uncommitted(learner: Any, values: Any) -> Any:
    import jax

    with jax.ensure_compile_time_eval(), jax.default_device(None):
        learner.kept = jax.numpy.zeros(3) + 1.0
    return values


FAULTS = {
    "torch": {
        on_the_host: "same device",
        item: "read back inside a step",
        by_numpy: "read back|no_grad|detach",
    },
    "tf2": {constant_elsewhere: "found off", item: "numpy|item|float", by_numpy: "numpy|symbolic|Tensor"},
    "jax": {uncommitted: "found off", by_numpy: "Traced|Tracer"},
}
"""`item` is none of jax, where `update_mode` says that the update then runs eagerly."""


@pytest.mark.parametrize("number", range(4))
def test_a_planted_fault_is_found(backend, placed, number):
    faults = FAULTS[backend]
    if number >= len(faults):
        return
    fault, words = list(faults.items())[number]

    class Faulty(PPOLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            changed = {**fwd_out, "vf_preds": fault(self, fwd_out["vf_preds"])}
            return super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=changed
            )

    def life():
        with placed():
            learner = Faulty(config=config_of("ppo", backend))
            learner.build()
            train("ppo", learner)

    with pytest.raises(Exception, match=words):
        life()
