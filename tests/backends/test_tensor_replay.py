"""Off-policy training in environments of tensors: the rows, weights and checkpoints of arrays, on the device."""

import numpy as np
import pytest
from learning import quick, weights
from walks import Walks, WalksOfTensors

from plugrad import DEFAULT_MODULE_ID, Algorithm, Columns
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.replay.storage import RowStorage
from plugrad.training.tensor_replay import TensorRows
from plugrad_dqn import DQNConfig
from plugrad_qrdqn import QRDQNConfig
from plugrad_sac import SACConfig, TD3Config
from plugrad_tqc import TQCConfig

P = DEFAULT_MODULE_ID


def config_of(backend, kind=DQNConfig, *, tensors=True, mode="SAME_STEP", actions="discrete", **settings):
    env, steps = (WalksOfTensors, "tensors") if tensors else (Walks, "vector_entry_point")
    config = kind().framework(backend).debugging(seed=1)
    config = config.environment(
        env, env_config={"mode": mode, "actions": actions, **({"backend": backend} if tensors else {})}
    )
    config = config.env_runners(
        vectorization_mode=steps, num_envs_per_env_runner=3, rollout_fragment_length=4
    )
    given = {"train_batch_size": 16, "minibatch_size": 8, "num_steps_sampled_before_learning_starts": 10}
    config = config.rl_module(model_config={"fcnet_hiddens": [4]})
    return quick(config.training(lr=1e-2, **given, **settings))


def rows_of(algorithm):
    """The rows of the buffer from the oldest on, as a checkpoint has them."""
    parts = list(algorithm._training.get_state()[P]["replay"]["rows"].values())
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}


def assert_same(algorithm, other):
    found, expected = rows_of(algorithm), rows_of(other)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(weights(algorithm._learner), weights(other._learner), rtol=0, atol=1e-5)


CASES = {
    "dqn": (DQNConfig, "start", "SAME_STEP", {"n_step": 3, "replay_buffer_config": {"capacity": 20}}),
    "resets": (DQNConfig, "discrete", "NEXT_STEP", {"n_step": 2, "epsilon": 0.5}),
    "sac": (SACConfig, "box", "SAME_STEP", {"random_steps": 15}),
}
OTHERS = {
    "td3": (TD3Config, "box", "NEXT_STEP", {}),
    "qr-dqn": (QRDQNConfig, "discrete", "SAME_STEP", {"num_quantiles": 3}),
    "tqc": (TQCConfig, "box", "SAME_STEP", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_training_from_tensors_is_training_from_arrays(backend, name):
    assert_trains_alike(backend, *CASES[name])


@pytest.mark.parametrize("name", OTHERS)
def test_other_algorithms_train_from_tensors_as_from_arrays(backend, name):
    assert_trains_alike(backend, *OTHERS[name])


def assert_trains_alike(backend, kind, actions, mode, settings):
    tensors, arrays = (
        config_of(backend, kind, tensors=each, actions=actions, mode=mode, **settings).build_algo()
        for each in (True, False)
    )
    begun = weights(tensors._learner)
    for _ in range(3):  # episodes of 2 to 5 steps go on from sample to sample
        results, others = tensors.train(), arrays.train()
    assert np.abs(weights(tensors._learner) - begun).max() > 1e-3
    assert_same(tensors, arrays)
    for each in ("num_env_steps_sampled_lifetime", "env_runners/num_episodes"):
        assert results[each] == others[each]


def test_either_mode_goes_on_from_a_checkpoint_of_the_other(backend, tmp_path):
    kept = {"n_step": 2, "replay_buffer_config": {"capacity": 25}}
    algorithm, arrays = (config_of(backend, tensors=each, **kept).build_algo() for each in (True, False))
    for _ in range(2):
        algorithm.train()
    algorithm.save_to_path(tmp_path / "tensors")
    resumed = Algorithm.from_checkpoint(tmp_path / "tensors", env=WalksOfTensors)
    arrays.restore_from_path(tmp_path / "tensors")
    for each in (algorithm, resumed, arrays):
        each.train()
    for each in (resumed, arrays):
        assert_same(algorithm, each)
    arrays.save_to_path(tmp_path / "arrays")
    resumed.restore_from_path(tmp_path / "arrays")
    for each in (resumed, arrays):
        each.train()
    assert_same(resumed, arrays)


def test_a_ring_of_tensors_holds_what_one_of_arrays_holds(backend):
    """Also by a backend without `write_rows`, and where more rows come at once than it holds."""
    tensors = config_of(backend).build_algo().env_runner.tensors
    rng = np.random.default_rng(0)

    def rows(number):
        return {
            Columns.REWARDS: rng.random(number, np.float32),
            Columns.ACTIONS: rng.integers(9, size=(number, 2)),
            Columns.TERMINATEDS: rng.random(number) < 0.5,
        }

    example = rows(1)
    rings = [TensorRows(5, example, each) for each in (tensors, tensors._replace(write_rows=None))]
    expected = RowStorage(5)
    for number in (1, 3, 2, 9, 4):
        given, order = rows(number), rng.permutation(number)[: number - number // 3]
        places = expected.add(given, order)
        for ring in rings:
            np.testing.assert_array_equal(ring.add(given, order), places)
            found = tensors.to_numpy(ring.rows(np.arange(len(expected))))
            for name, values in expected.rows(np.arange(len(expected))).items():
                np.testing.assert_array_equal(found[name], values, err_msg=name)
    wrong = {**example, Columns.ACTIONS: example[Columns.ACTIONS][:, :1]}
    with pytest.raises(RestoreMismatchError, match=r"'actions': \(1, 2\).*'actions': \(1, 1\)"):
        rings[0].add(wrong)
    assert rings[0].added == expected.added


def test_a_buffer_that_the_device_cannot_hold_is_said_with_the_memory_of_the_device(backend):
    """Of the host's memory on a CPU, and where a framework does not say; a number stands for that of a GPU here."""
    algorithm = config_of(backend, replay_buffer_config={"capacity": 1000}).build_algo()
    info = algorithm._learner.backend_info
    assert info.free_memory is None or info.free_memory("cpu") is None
    object.__setattr__(info, "free_memory", lambda device: 10_000 + len(device))
    free = f"the learner's device has free {10_000 + len(algorithm._learner.device)} bytes"
    with pytest.warns(UserWarning, match=f"{free} .* when the first rows come.*capacity"):
        type(algorithm._training)(algorithm)


def test_what_replay_of_tensors_cannot_do_is_said_before_anything_is_built(backend):
    goals = {"hindsight": "future", "hindsight_goals": 4}
    for settings, words in (
        (
            {"replay_buffer_config": {"type": "prioritized"}},
            "'prioritized'.*set replay_buffer_config={'type': 'unif",
        ),
        ({"n_step": [1, 3]}, r"n_step=\[1, 3\] is for arrays of numpy: set n_step=1, or take"),
        (goals, "hindsight='future'"),
        ({"demonstrations": ["here"]}, "demonstrations"),
    ):
        with pytest.raises(ConfigError, match=words):
            config_of(backend, **settings).build_algo()
    for config, words in (
        (config_of(backend).env_runners(normalize_rewards=True), "normalize_rewards=True is for arrays"),
        (config_of(backend).rl_module(model_config={"use_gru": True, "gru_cell_size": 4}), "recurrent state"),
    ):
        with pytest.raises(ConfigError, match=words):
            config.build_algo()
