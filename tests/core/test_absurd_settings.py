"""Settings that cannot be meant are refused with the limit and the reason; no number hangs or ends in a raw error."""

import signal
from math import inf

import numpy as np
import pytest

from plugrad.errors import ConfigError, PlugradError
from plugrad.sampling.rollout_fragment import RolloutFragment
from plugrad_dqn import DQNConfig
from plugrad_impala import APPOConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

OFF_POLICY = {"train_batch_size": 8, "minibatch_size": 8, "num_steps_sampled_before_learning_starts": 8}
SMALL = {
    PPOConfig: {"train_batch_size": 16, "minibatch_size": 8, "num_epochs": 1},
    APPOConfig: {"train_batch_size": 16},
    DQNConfig: OFF_POLICY,
    SACConfig: OFF_POLICY,
}
ABSURD = (inf, 1e300, 10**30, 10**15)
NUMBERS = {
    name: config
    for config in reversed(SMALL)
    for name, info in config.fields().items()
    if info.kinds & {int, float} and name != "time_limit"  # Gymnasium's own limit of CartPole comes first
}
"""Each setting with the first of these algorithms that has it."""


def changed(config, name, value):
    small = config().framework("numpy").environment("Pendulum-v1" if config is SACConfig else "CartPole-v1")
    small = small.rl_module(model_config={"fcnet_hiddens": [4]}).env_runners(num_envs_per_env_runner=2)
    small = small.training(**SMALL[config]).debugging(seed=0)
    try:
        return getattr(small, config.fields()[name].section)(**{name: value})
    except ConfigError:
        return None


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_hangs_or_ends_in_a_raw_error(name):
    """The largest number that a setting takes; two minutes are a hang."""
    accepted = [settings for value in ABSURD if (settings := changed(NUMBERS[name], name, value)) is not None]
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(120)
    try:
        outcomes = {outcome_of(settings) for settings in accepted[:1]}
    finally:
        signal.alarm(0)
    assert outcomes <= {"trained", "refused"}


def outcome_of(settings):
    try:
        algorithm = settings.build_algo()
    except PlugradError:
        return "refused"
    try:
        algorithm.train()
    except PlugradError:
        return "refused"
    finally:
        algorithm.stop()
    return "trained"


def _hangs(*_):
    raise TimeoutError("the setting hangs")


LIMITED = (
    "timeout_s build_timeout_s num_learners num_standby_learners num_env_runners num_envs_per_env_runner "
    "max_requests_in_flight_per_learner max_requests_in_flight_per_env_runner train_batch_size "
    "minibatch_size num_epochs accumulate rollout_fragment_length frame_stack evaluation_num_episodes "
    "min_sample_timesteps_per_iteration training_intensity n_step circular_buffer_num_batches "
    "circular_buffer_iterations_per_batch"
)


@pytest.mark.parametrize("name", LIMITED.split())
def test_a_number_above_its_limit_is_refused_with_the_reason(name):
    config = next(each for each in SMALL if name in each.fields())
    info = config.fields()[name]
    limit = info.maximum
    with pytest.raises(ConfigError) as caught:
        getattr(config(), info.section)(**{name: limit + 1})
    assert str(limit) in str(caught.value)
    assert str(caught.value).endswith(f": {info.reason}")


@pytest.mark.parametrize(
    "model",
    [
        {"fcnet_hiddens": [4, 10**9]},
        {"use_lstm": True, "lstm_cell_size": 10**9},
        {"use_gru": True, "gru_cell_size": 10**9},
        {"use_lstm": True, "max_seq_len": 10**12},
        {"conv_filters": [[10**9, 3, 1]]},
    ],
)
def test_a_network_that_no_memory_holds_is_refused_by_its_setting(model):
    config = PPOConfig().framework("numpy").environment("CartPole-v1").rl_module(model_config=model)
    with pytest.raises(
        ConfigError, match=f"{[*model][-1]}=.*10{{9}}.* is above 1000000; layers and sequences"
    ):
        config.build_learner()


def test_a_sample_that_does_not_fit_into_memory_is_an_error_that_names_the_setting():
    with pytest.raises(
        ConfigError, match=r"10000000 steps in each of 8 .*rollout_fragment_length to fewer steps"
    ):
        RolloutFragment(np.broadcast_to(np.uint8(0), (8, 4096, 4096, 64)), 10**7)
