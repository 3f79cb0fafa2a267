"""Stateful modules on each backend: equal numbers, what is hidden stays hidden, users' own recurrent modules."""

import importlib
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import OBSERVATIONS, digest, largest_difference, ppo_config, quick_mode

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, RLModuleSpec, numpy_ops
from plugrad.algorithm import Algorithm
from plugrad.episodes import episodes_by_module
from plugrad.errors import BatchError, ConfigError, NonFiniteError
from plugrad.sampling.multi_agent.copies import make_multi_agent
from plugrad_ppo import PPOConfig

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
CELLS = 4
STEPS = 3
"""A program holds each step of each layer: compiling takes as long as there are many. Three have one in the middle."""
LENGTHS = (3, 2, 1, 3, 3, 2)
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
MEMORIES = ("lstm", "gru")
ACTIONS = {"discrete": gym.spaces.Discrete(2), "several": gym.spaces.MultiDiscrete([2, 3]), "box": BOX}


def config(backend: str, compile: str = "", actions: str = "discrete", **training) -> PPOConfig:
    memory = training.pop("memory", "lstm")
    model = {
        "fcnet_hiddens": [4],
        f"use_{memory}": True,
        f"{memory}_cell_size": CELLS,
        "max_seq_len": STEPS,
    }
    shared = training.pop("vf_share_layers", False)
    return (
        ppo_config(backend, **{"minibatch_size": 12, "num_epochs": 2, "lr": 1e-2, **training})
        .framework(backend, compile=compile or quick_mode(backend))
        .environment(observation_space=OBSERVATIONS, action_space=ACTIONS[actions])
        .rl_module(model_config={**model, "vf_share_layers": shared})
    )


def batch(
    learner: Learner, lengths=LENGTHS, seed: int = 0, *, garbage: float | None = None
) -> dict[str, object]:
    """Sequences [B, STEPS, ...] as an old policy may have left them; `garbage` in the steps behind their ends."""
    rng, lengths = np.random.default_rng(seed), np.array(lengths)
    shape, space = (len(lengths), STEPS), learner.module[P].action_space
    inputs = learner.module[P].get_train_action_dist_cls().input_dim
    space.seed(seed)
    sampled = [space.sample() for _ in range(shape[0] * STEPS)]
    columns = {
        Columns.OBS: rng.normal(size=(*shape, 3)),
        Columns.ACTIONS: np.reshape(sampled, (*shape, *space.shape)),
        Columns.ACTION_DIST_INPUTS: rng.normal(scale=0.2, size=(*shape, inputs)),
        Columns.ACTION_LOGP: rng.normal(size=shape) - 1.0,
        Columns.ADVANTAGES: rng.normal(size=shape),
        Columns.VALUE_TARGETS: rng.normal(size=shape),
    }
    columns = {
        name: values.astype(np.float32) if values.dtype.kind == "f" else values
        for name, values in columns.items()
    }
    hidden = np.arange(STEPS) >= lengths[:, None]
    for name, values in columns.items():
        values[hidden] = 0 if garbage is None or name == Columns.ACTIONS else garbage
    states = learner.module[P].get_initial_state()
    columns[Columns.STATE_IN] = {
        name: rng.normal(size=(len(lengths), *np.shape(value))).astype(np.float32)
        for name, value in states.items()
    }
    return {**columns, Columns.SEQ_LENS: lengths}


def weights_of(learner: Learner) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in learner.get_weights()[P].values()])


# --- equal numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("shared", [False, True])
def test_outputs_and_states_are_those_of_numpy_within_1e_6(backend, actions, shared, memory):
    learner = config(backend, actions=actions, vf_share_layers=shared, memory=memory).build_learner()
    weights = learner.module[P].get_state()
    read = {name: batch(learner)[name] for name in (Columns.OBS, Columns.STATE_IN)}
    expected = learner.module[P].network.forward(numpy_ops, weights, read, value=True)
    found = learner._convert_to_numpy(learner.module[P].forward_train(learner._convert_batch_type(read)))
    assert list(found) == list(expected)
    for name, value in expected.pop(Columns.STATE_OUT).items():
        np.testing.assert_allclose(found[Columns.STATE_OUT][name], value, rtol=0, atol=1e-6)
    for column, value in expected.items():
        np.testing.assert_allclose(found[column], value, rtol=0, atol=1e-6)


@cache
def updated_by_finite_differences(actions: str, memory: str) -> dict[str, np.ndarray]:
    learner = config("numpy", actions=actions, memory=memory, optimizer={"type": "sgd"}).build_learner()
    learner.update(batch(learner))
    return learner.get_weights()[P]


@pytest.mark.cross_product("memory")
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("actions", ACTIONS)
def test_an_update_is_that_of_finite_differences(backend, actions, memory):
    learner = config(backend, actions=actions, memory=memory, optimizer={"type": "sgd"}).build_learner()
    start = learner.get_weights()[P]
    results = learner.update(batch(learner))
    expected = updated_by_finite_differences(actions, memory)
    assert largest_difference(expected, start) > 1e-3
    assert largest_difference(learner.get_weights()[P], expected) < 1e-6
    assert results[P]["num_module_steps_trained"] == sum(LENGTHS)


SHARED: dict[str, Any] = {"vf_share_layers": True}
"""One memory in place of two: half of the time of compiling."""


@pytest.mark.cross_product  # seconds of compilation on each backend
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_compiled_update_gives_the_numbers_of_the_plain_one(backend, memory):
    plain, compiled = (
        config(backend, compile, memory=memory, **SHARED).build_learner()
        for compile in ("none", "complete_update")
    )
    for learner in (plain, compiled):
        learner.update(batch(learner))
    assert compiled.update_mode.startswith("complete_update")
    np.testing.assert_allclose(weights_of(compiled), weights_of(plain), rtol=0, atol=2e-6)


def test_minibatches_of_sequences_accumulate(backend):
    chosen = {"num_epochs": 1, "minibatch_size": None, "optimizer": {"type": "sgd"}, **SHARED}
    whole, parts = (
        config(backend, **chosen).build_learner(),
        config(backend, accumulate=2, **chosen).build_learner(),
    )
    for learner in (whole, parts):
        learner.update(batch(learner, (3, 3, 3, 3)))
    np.testing.assert_allclose(weights_of(parts), weights_of(whole), rtol=0, atol=1e-6)


class CountsTraces(Learner):
    """Counts how often its loss is called: in a compiled update once per trace."""

    traces = 0

    def compute_loss_for_module(self, **arguments):
        self.traces += 1
        return super().compute_loss_for_module(**arguments)


def test_a_changing_number_of_sequences_is_compiled_once_per_power_of_two(backend):
    chosen = config(backend, "complete_update", num_epochs=1, **SHARED).learners(learner_class=CountsTraces)
    compiled, plain = chosen.build_learner(), config(backend, "none", num_epochs=1, **SHARED).build_learner()
    traces = []
    for n in range(5):
        lengths = [3, 2, 3, 1, 3, 2][: 3 + n % 3] * 5
        for learner in (compiled, plain):
            learner.update(batch(learner, lengths, seed=n))
        traces.append(compiled.traces)
    assert traces[1] <= 3  # 15 and 20 sequences, and a second look at the first loss for broadcasts
    assert traces[1:] == traces[1:2] * 4
    assert compiled.update_mode.startswith("complete_update")
    np.testing.assert_allclose(weights_of(compiled), weights_of(plain), rtol=0, atol=5e-6)


# --- what is hidden -----------------------------------------------------------------------------------------------


@cache
def whole_batch(backend: str, memory: str = "lstm") -> tuple[Learner, dict]:
    settings = {"minibatch_size": None, "num_epochs": 1, "use_kl_loss": True, "memory": memory}
    learner = config(backend, "auto", **settings).build_learner()
    return learner, learner.get_state()


def after_update(backend: str, given, memory: str = "lstm") -> tuple[np.ndarray, dict]:
    learner, start = whole_batch(backend, memory)
    learner.set_state(start)
    results = learner.update(given)[P]
    return weights_of(learner), results


@settings(max_examples=10)
@given(
    lengths=st.lists(st.integers(1, STEPS), min_size=6, max_size=6),
    garbage=st.sampled_from([1e30, -3.5, float("nan"), float("inf")]),
)
def test_what_lies_behind_the_ends_changes_no_number(backend, lengths, garbage):
    learner, _ = whole_batch(backend)
    weights, results = after_update(backend, batch(learner, lengths))
    dirty = batch(learner, lengths, garbage=garbage)
    dirty[Columns.ACTIONS][np.arange(STEPS) >= np.array(lengths)[:, None]] = 99
    found, found_results = after_update(backend, dirty)
    np.testing.assert_array_equal(found, weights)
    assert found_results == results
    assert results["num_module_steps_trained"] == sum(lengths)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_sequence_that_is_hidden_as_a_whole_changes_no_number(backend, memory):
    learner, _ = whole_batch(backend, memory)
    given, more = batch(learner), batch(learner, (*LENGTHS, STEPS))
    mask = np.ones((7, STEPS))
    mask[3] = 0.0
    for name, values in more.items():
        if name == Columns.STATE_IN:
            more[name] = {key: np.insert(given[name][key], 3, np.nan, axis=0) for key in values}
        else:
            more[name] = np.insert(given[name], 3, given[name][0], axis=0)
    weights, results = after_update(backend, given, memory)
    found, found_results = after_update(backend, {**more, Columns.LOSS_MASK: mask}, memory)
    np.testing.assert_array_equal(found, weights)
    assert found_results == results


@pytest.mark.parametrize("memory", MEMORIES)
def test_an_update_that_is_not_finite_is_undone(backend, memory):
    learner, start = whole_batch(backend, memory)
    learner.set_state(start)
    before, columns = digest(learner.get_state()), batch(learner)
    columns[Columns.STATE_IN][next(iter(columns[Columns.STATE_IN]))][0] = np.nan
    with pytest.raises(NonFiniteError):
        learner.update(columns)
    assert digest(learner.get_state()) == before


# --- users' modules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["missing", "renamed", "too narrow"])
def test_a_state_that_is_not_the_modules_is_refused_by_its_column(backend, fault):
    learner = config(backend).build_learner()
    before, columns = digest(learner.get_state()), batch(learner)
    state = columns[Columns.STATE_IN]
    array = state.pop("pi_h")
    state |= {"missing": {}, "renamed": {"h": array}, "too narrow": {"pi_h": array[:, 1:]}}[fault]
    with pytest.raises(BatchError, match=r"column 'state_in/pi_h': expected shape \[B, 4\], found"):
        learner.update(columns)
    assert digest(learner.get_state()) == before


def own_module(backend: str):
    return importlib.import_module(f"lstm_of_{backend}").OwnLSTM


@pytest.mark.parametrize("compile", ["none", "auto"])
def test_a_users_recurrent_module_trains_on_a_users_batch(backend, compile):
    spec = RLModuleSpec(module_class=own_module(backend))
    learner = config(backend, compile).rl_module(rl_module_spec=spec).build_learner()
    start = weights_of(learner)
    results = learner.update(batch(learner))
    assert np.isfinite(results[P]["total_loss"])
    assert results[P]["num_module_steps_trained"] == sum(LENGTHS)
    assert (weights_of(learner) != start).mean() > 0.9
    for wrong, words in (
        ({Columns.OBS: np.zeros((6, 3))}, r"'obs': expected shape \[B, T, 3\], found shape \[6, 3\]"),
        ({Columns.SEQ_LENS: np.full(6, 6)}, "'seq_lens': expected lengths from 0 to the 3 steps"),
        ({Columns.VALUE_TARGETS: np.zeros((6, 4))}, "'value_targets': expected one number per row"),
        ({Columns.STATE_IN: {}}, "'state_in': expected by the forward pass"),
    ):
        with pytest.raises(BatchError, match=words):
            learner.update({**batch(learner), **wrong})


@pytest.mark.parametrize("memory", ["own", *MEMORIES])
def test_an_algorithm_with_a_memory_trains_evaluates_and_resumes_bit_for_bit(backend, memory, tmp_path):
    own, model = memory == "own", {"fcnet_hiddens": [8], "max_seq_len": 4}
    model |= {} if own else {f"use_{memory}": True, f"{memory}_cell_size": 8}
    spec = RLModuleSpec(module_class=own_module(backend) if own else None, model_config=model)
    chosen = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework(backend, compile=quick_mode(backend))
        .rl_module(rl_module_spec=spec)
        .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=3)
    )
    algorithm = chosen.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected = algorithm.train()
    weights = algorithm.learner_group.get_weights()[P]
    assert expected["learners/default_policy/num_module_steps_trained"] == 256
    assert algorithm.evaluate(2)["episode_return_mean"] >= 8
    algorithm.stop()
    if own:
        with pytest.raises(
            ConfigError, match=r"imports no code: give module_spec= to Algorithm.from_checkpoint"
        ):
            Algorithm.from_checkpoint(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, module_spec=spec if own else None)
    found = resumed.train()
    assert largest_difference(resumed.learner_group.get_weights()[P], weights) == 0.0
    resumed.stop()
    for key in ("env_runners/episode_return_mean", "learners/default_policy/total_loss"):
        assert found[key] == expected[key]


@pytest.mark.parametrize("is_multi_agent", [False, True])
def test_episodes_begin_in_the_state_of_the_present_weights(backend, is_multi_agent):
    class Learned(own_module(backend)):
        def get_initial_state(self):
            start = sum(float(each.sum()) for each in self.get_state().values())
            return dict.fromkeys("hc", np.full(8, start, np.float32))

    spec = RLModuleSpec(module_class=Learned)
    chosen = (
        PPOConfig()
        .environment(make_multi_agent("CartPole-v1") if is_multi_agent else "CartPole-v1")
        .framework(backend, compile=quick_mode(backend))
        .rl_module(rl_module_spec=spec)
        .training(train_batch_size=64, minibatch_size=64, num_epochs=1)
        .debugging(seed=3)
    )
    algorithm = chosen.build_algo()
    policy = algorithm.get_policy()
    zeros = {key: np.zeros_like(each) for key, each in algorithm.learner_group.get_weights()[P].items()}
    for value in (0.0, 0.5):
        weights = {key: np.full_like(each, value) for key, each in zeros.items()}
        algorithm.learner_group.set_weights({P: weights})
        start = sum(each.sum() for each in weights.values())
        algorithm.env_runner.reset(0)
        episode = episodes_by_module(algorithm.sample(4))[P][0]
        np.testing.assert_allclose(episode.extra_model_outputs["state_in/h"][0], start)
        states = [policy.predict(episode.observations[0])[1]]
        states.append(policy.predict(episode.observations[:1], states[0], episode_start=[True])[1])
        np.testing.assert_array_equal(states[0]["h"], states[1]["h"])
    algorithm.stop()


def test_outside_a_program_the_steps_of_a_scan_have_numbers(ops):
    """So nothing is traced: JAX would trace and lower a loop in each call that acts with an LSTM."""
    seen = []

    def step(carry, x):
        seen.append(float(x[0]))
        return carry + x, 2.0 * carry

    last, doubled = ops.scan(step, ops.zeros((1,)), ops.asarray(np.float32([[1.0], [2.0], [4.0]])))
    assert seen[-3:] == [1.0, 2.0, 4.0]
    assert float(last[0]) == 7.0
    assert [float(each) for each in doubled[:, 0]] == [0.0, 2.0, 6.0]
