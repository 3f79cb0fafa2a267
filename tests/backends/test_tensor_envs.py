"""Environments of tensors: `vectorization_mode="tensors"` makes the rows that arrays and episodes make."""

import gymnasium as gym
import numpy as np
import pytest
from learning import quick, weights
from walks import MAKE, Walks, WalksOfTensors

from plugrad import DEFAULT_MODULE_ID, Algorithm, Columns
from plugrad.errors import ConfigError, EnvContractError
from plugrad.training import OnPolicyTraining
from plugrad_bc import BCConfig
from plugrad_impala import APPOConfig, IMPALAConfig, vtrace_of_sequences
from plugrad_ppo import PPOConfig
from plugrad_pqn import PQNConfig

P = DEFAULT_MODULE_ID
COLUMNS = (
    *(Columns.OBS, Columns.ACTIONS, Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS, Columns.REWARDS),
    *(Columns.TERMINATEDS, Columns.VF_PREDS, Columns.ADVANTAGES, Columns.VALUE_TARGETS),
)


def config_of(backend, *, tensors=True, num_envs=4, steps=8, normalize="batch", **settings):
    env, mode = (WalksOfTensors, "tensors") if tensors else (Walks, "vector_entry_point")
    config = PPOConfig().framework(backend).debugging(seed=1)
    config = config.environment(env, env_config={**settings, **({"backend": backend} if tensors else {})})
    config = config.env_runners(vectorization_mode=mode, num_envs_per_env_runner=num_envs)
    config = config.training(
        train_batch_size=num_envs * steps,
        lr=1e-2,
        num_epochs=1,
        minibatch_size=None,
        normalize_advantages=normalize,
    )
    return quick(config).rl_module(model_config={"fcnet_hiddens": [4]})


def rows_of(algorithm, by=Columns.OBS):
    """Columns of one sample as arrays, in the order of their observations, or of another column."""
    episodes = algorithm.sample()
    if algorithm.config.vectorization_mode == "tensors":
        assert episodes == []
        columns = algorithm._learner._convert_to_numpy(dict(algorithm.env_runner.take_batch()[P]))
    else:
        columns = algorithm._learner.run_connectors(episodes)[P]
    kept = columns.get(Columns.LOSS_MASK, np.ones(len(columns[Columns.OBS]), bool))
    order = np.lexsort(np.atleast_2d(columns[by][kept].T))
    return {name: columns[name][kept][order] for name in COLUMNS}


@pytest.mark.parametrize("actions", ["discrete", "start", "box"])
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_the_rows_of_tensors_are_those_of_arrays(backend, mode, actions):
    tensors, arrays = (
        config_of(backend, tensors=each, mode=mode, actions=actions).build_algo() for each in (True, False)
    )
    for _ in range(2):  # the second sample goes on in running episodes
        found, expected = rows_of(tensors), rows_of(arrays)
        assert len(found[Columns.OBS]) == (32 if mode == "SAME_STEP" else len(expected[Columns.OBS]))
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=2e-6, err_msg=name)
    names = ("num_env_steps_sampled", "num_episodes")
    metrics, others = tensors.env_runner.get_metrics(), arrays.env_runner.get_metrics()
    assert [metrics[each] for each in names] == [others[each] for each in names]
    returns = [value for value, _ in arrays.env_runner.finished_episodes]
    assert len(returns) == others["num_episodes"] >= 5
    for name, expected_number in (
        ("episode_return_mean", np.mean(returns)),
        ("episode_return_min", min(returns)),
        ("episode_return_max", max(returns)),
    ):
        assert metrics[name] == pytest.approx(expected_number, rel=1e-5), name
    assert tensors.env_runner.total_steps == arrays.env_runner.total_steps


@pytest.mark.parametrize(("mode", "normalize"), [("SAME_STEP", "batch"), ("NEXT_STEP", "minibatch")])
def test_training_on_tensors_is_training_on_arrays(backend, mode, normalize):
    trained = []
    for tensors in (True, False):
        config = config_of(backend, tensors=tensors, mode=mode, normalize=normalize)
        # Adam would make rounding visible where a gradient is nearly 0.
        config = config.training(optimizer={"type": "sgd"}, lr=0.1)
        algorithm = config.env_runners(rollout_fragment_length=4).build_algo()
        results = [algorithm.train() for _ in range(2)][-1]
        trained.append((weights(algorithm._learner), results, algorithm.evaluate(3)))
    (found, results, played), (expected, others, also_played) = trained
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    for name in ("num_env_steps_sampled_lifetime", "env_runners/num_env_steps_sampled"):
        assert results[name] == others[name]
    assert played == pytest.approx(also_played)


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_targets_of_pqn_from_tensors_are_those_of_arrays(backend, mode):
    found = []
    for tensors in (True, False):
        env, steps = (WalksOfTensors, "tensors") if tensors else (Walks, "vector_entry_point")
        config = quick(PQNConfig().framework(backend).debugging(seed=1))
        config = config.environment(
            env, env_config={"mode": mode, **({"backend": backend} if tensors else {})}
        )
        config = config.env_runners(vectorization_mode=steps, num_envs_per_env_runner=4)
        config = config.training(train_batch_size=32, num_epochs=1, minibatch_size=None, lr=0.1, epsilon=0.5)
        config = config.training(optimizer={"type": "sgd"})
        algorithm = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_algo()
        begun = weights(algorithm._learner)
        for _ in range(2):
            algorithm.train()
        found.append(weights(algorithm._learner))
        assert np.abs(found[-1] - begun).max() > 1e-2
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


def vtrace_config(backend, kind=IMPALAConfig, *, tensors=True, mode="SAME_STEP", **settings):
    env, steps = (WalksOfTensors, "tensors") if tensors else (Walks, "vector_entry_point")
    config = quick(kind().framework(backend).debugging(seed=1))
    config = config.environment(env, env_config={"mode": mode, **({"backend": backend} if tensors else {})})
    config = config.env_runners(
        vectorization_mode=steps, num_envs_per_env_runner=4, rollout_fragment_length=6
    )
    config = config.training(train_batch_size=40, lr=0.1, optimizer={"type": "sgd"}, **settings)
    return config.rl_module(model_config={"fcnet_hiddens": [4]})


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_targets_of_vtrace_from_tensors_are_those_of_arrays(backend, mode):
    """In sequences within which episodes terminate and are cut off."""
    found = []
    for tensors in (True, False):
        algorithm = vtrace_config(backend, tensors=tensors, mode=mode).build_algo()
        learner, episodes = algorithm._learner, algorithm.sample()
        if tensors:
            columns = dict(algorithm.env_runner.take_batch()[P])
            arrays = learner._convert_to_numpy(columns)
            assert (arrays[Columns.TERMINATEDS] | arrays[Columns.TRUNCATEDS])[:, :-1].sum() >= 4
            assert arrays[Columns.TRUNCATEDS][:, :-1].any()
        else:
            columns = learner.run_connectors(episodes)[P]
        there = learner._convert_batch_type(columns)
        ops = learner.ops
        values = learner.module[P].forward_train(there)[Columns.VF_PREDS]
        rhos = ops.exp(0.5 * there[Columns.REWARDS] - 1.5)  # as if other weights had acted
        vs, advantages = vtrace_of_sequences(learner, P, learner.config, there, values, rhos)
        rows = learner._convert_to_numpy({**there, "values": values, "vs": vs, "advantages": advantages})
        steps = np.arange(rows["vs"].shape[1]) < np.asarray(rows[Columns.SEQ_LENS])[:, None]
        kept = steps & rows.get(Columns.LOSS_MASK, np.ones_like(steps))
        order = np.lexsort(rows[Columns.OBS][kept].T)
        names = (*COLUMNS[:6], "values", "vs", "advantages")
        found.append({name: rows[name][kept][order] for name in names})
    assert np.abs(found[1]["vs"] - found[1]["values"]).max() > 0.5
    for name, expected in found[1].items():
        np.testing.assert_allclose(found[0][name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


BUFFER = {"circular_buffer_num_batches": 2, "circular_buffer_iterations_per_batch": 2}


@pytest.mark.parametrize(
    ("kind", "mode", "settings"),
    [(IMPALAConfig, "SAME_STEP", {}), (APPOConfig, "NEXT_STEP", BUFFER)],
    ids=["impala", "appo"],
)
def test_asynchronous_training_on_tensors_is_that_on_arrays(backend, kind, mode, settings, tmp_path):
    tensors, arrays = (
        vtrace_config(backend, kind, tensors=each, mode=mode, **settings).build_algo()
        for each in (True, False)
    )
    begun = weights(tensors._learner)
    for _ in range(3):
        results, others = tensors.train(), arrays.train()
    assert np.abs(weights(tensors._learner) - begun).max() > 1e-2
    np.testing.assert_allclose(weights(tensors._learner), weights(arrays._learner), rtol=0, atol=1e-5)
    numbers = ("sampled_lifetime", "trained_lifetime", "waiting", "dropped_lifetime")
    for name in ("learners/__all_modules__/weights_seq_no", *(f"num_env_steps_{each}" for each in numbers)):
        assert results[name] == others[name], name
    tensors.save_to_path(tmp_path / "saved")
    resumed = Algorithm.from_checkpoint(tmp_path / "saved", env=WalksOfTensors)
    arrays.restore_from_path(tmp_path / "saved")
    for each in (tensors, resumed, arrays):
        each.train()
    np.testing.assert_array_equal(weights(resumed._learner), weights(tensors._learner))
    np.testing.assert_allclose(weights(arrays._learner), weights(tensors._learner), rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_normalised_observations_of_tensors_are_those_of_arrays(backend, mode, tmp_path):
    """Also in evaluations, after a checkpoint of the other, and where numbers are far from 0 for float32."""
    tensors, arrays = (
        config_of(backend, tensors=each, mode=mode, far=1e4)
        .env_runners(normalize_observations=True)
        .training(optimizer={"type": "sgd"}, lr=0.01)
        .build_algo()
        for each in (True, False)
    )

    def assert_same_statistics(one, other):
        found, expected = (each.env_runner.normalizer.get_state() for each in (one, other))
        assert found["count"] == expected["count"]
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=0, atol=1e-4)
        np.testing.assert_allclose(found["m2"], expected["m2"], rtol=1e-4, atol=1e-4)

    for number in (1, 2):
        found, expected = rows_of(tensors, by=Columns.ACTION_LOGP), rows_of(arrays, by=Columns.ACTION_LOGP)
        for name in (Columns.OBS, Columns.REWARDS, Columns.TERMINATEDS, Columns.ADVANTAGES):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=2e-4, err_msg=name)
        assert_same_statistics(tensors, arrays)
        assert tensors.env_runner.normalizer.count > 32 * number
    if mode == "NEXT_STEP":  # what follows does not depend on it
        return
    for each in (tensors, arrays):
        each.train()
    assert tensors.evaluate(3) == pytest.approx(arrays.evaluate(3), rel=1e-4)
    arrays.save_to_path(tmp_path / "arrays")
    tensors.restore_from_path(tmp_path / "arrays")
    assert_same_statistics(tensors, arrays)
    for each in (tensors, arrays):
        each.train()
    assert_same_statistics(tensors, arrays)
    np.testing.assert_allclose(weights(tensors._learner), weights(arrays._learner), rtol=0, atol=1e-4)


def test_observations_that_are_not_finite_do_not_stay_in_the_statistics(backend):
    class Broken(WalksOfTensors):
        def step(self, actions):
            obs, *answers = super().step(actions)
            return (obs * self.tensor("nan", np.array([[1.0], [np.nan], [1.0], [1.0]], np.float32)), *answers)

    config = config_of(backend, mode="NEXT_STEP").environment(Broken).env_runners(normalize_observations=True)
    runner = config.build_algo().env_runner
    runner.sample(3)
    state = runner.normalizer.get_state()
    assert state["count"] == 4 + 3 * 3
    assert np.isfinite(state["mean"]).all()
    assert np.isfinite(state["m2"]).all()


def test_a_resumed_run_goes_on_as_one_that_did_not_stop(backend, tmp_path):
    algorithm = config_of(backend).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "saved")
    resumed = Algorithm.from_checkpoint(tmp_path / "saved", env=WalksOfTensors)
    assert (
        resumed.train()["num_env_steps_sampled_lifetime"]
        == algorithm.train()["num_env_steps_sampled_lifetime"]
    )
    np.testing.assert_array_equal(weights(resumed._learner), weights(algorithm._learner))
    arrays = config_of(backend, tensors=False).build_algo()
    arrays.restore_from_path(tmp_path / "saved")
    assert (arrays.iteration, arrays.env_runner.total_steps) == (1, 32)


def test_what_tensors_cannot_do_is_said_before_anything_is_built(backend):
    base = config_of(backend)
    spaces = {"env": WalksOfTensors, "env_config": {"backend": backend}}
    tensors = {"vectorization_mode": "tensors"}
    for config, words in (
        (base.env_runners(num_env_runners=1), "num_env_runners=1 sample in processes"),
        (
            BCConfig().framework(backend).environment(**spaces).env_runners(**tensors),
            "BCConfig learns from episodes",
        ),
        (base.env_runners(normalize_rewards=True), "normalize_rewards=True is for arrays"),
        (base.env_runners(clip_rewards=1.0), "clip_rewards=1.0 is for arrays"),
        (base.env_runners(time_limit=3), "time_limit=3 needs"),
        (
            base.learners(learner_connector=lambda *spaces: [lambda *, learner, batch, episodes: batch]),
            "connect_steps",
        ),
        (base.rl_module(model_config={"use_lstm": True, "lstm_cell_size": 4}), "recurrent state"),
        (base.environment("CartPole-v1", env_config={}), "gave observations of numpy's ndarray"),
        (base.environment("Pendulum-v1", env_config={}), "vector entry point"),
        (base.environment(gym.Env), "single environment"),
        (base.environment(env_config={"backend": backend, "actions": "parts"}), "no arrays of one shape"),
    ):
        with pytest.raises((ConfigError, EnvContractError), match=words):
            config.build_algo().train()
    for settings in ({"num_learners": 1}, {"launcher": "env"}):
        with pytest.raises(ConfigError, match="learners are in other processes"):
            OnPolicyTraining.check_config(base.learners(**settings))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda answer: (answer[0], answer[1][:2], *answer[2:]),
            r"gave rewards of shape \(2,\); expected: shape \(4,\)",
        ),
        (lambda answer: (answer[0][:, :2], *answer[1:]), r"gave observations of shape \(4, 2\)"),
        (lambda answer: (*answer[:4], {}), r"gave no infos\['final_obs'\]"),
    ],
    ids=["rewards", "observations", "no final_obs"],
)
def test_an_environment_that_breaks_its_contract_changes_nothing(backend, change, words):
    class Breaks(WalksOfTensors):
        def step(self, actions):
            return change(super().step(actions))

    algorithm = config_of(backend).environment(Breaks).build_algo()
    before = weights(algorithm._learner)
    with pytest.raises(EnvContractError, match=f"Breaks.* {words}"):
        algorithm.train()
    np.testing.assert_array_equal(weights(algorithm._learner), before)
    assert algorithm.env_runner.total_steps == 0
    assert MAKE.keys() >= {backend}
