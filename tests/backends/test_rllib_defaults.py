"""Defaults: `rllib_defaults()` has RLlib 2.60's, value by value, and the table of docs/from-rllib.md is true."""

import ast
import re
from pathlib import Path

import pytest
import rllib_fixture as rllib

from plugrad import AlgorithmConfig
from plugrad.errors import ConfigError
from plugrad.module_spec import MODEL_CONFIG
from plugrad_sac import SACConfig

PAGE = Path(__file__).parents[2] / "docs/from-rllib.md"
RENAMED = {"lambda": "lambda_"}
WITHOUT = {
    *("use_critic", "use_gae", "adam_epsilon", "td_error_loss_fn", "num_atoms", "noisy", "bc_logstd_coeff"),
}
"""Settings of RLlib's that plugrad has not got; the errors about them say what to type."""
NOT_OF_Q_NETWORKS = {"vf_share_layers", "free_log_std", "use_lstm", "lstm_cell_size", "max_seq_len"}
BESIDE = ("PPO", "IMPALA", "APPO")
"""Sample with two env runners in RLlib."""
REPLAY = {"PrioritizedEpisodeReplayBuffer": "prioritized"}


def theirs(algorithm):
    """RLlib's defaults under plugrad's names; of the networks `model_config.<key>`."""
    found = {name: each for name, each in rllib.DEFAULTS[algorithm].items() if name not in WITHOUT}
    model = found.pop("model_config")
    if algorithm == "DQN":
        replay = dict(found.pop("replay_buffer_config"))
        replay["type"] = REPLAY[replay["type"]]
        found |= {f"replay_buffer_config.{key}": each for key, each in replay.items()}
        model = {key: each for key, each in model.items() if key not in NOT_OF_Q_NETWORKS}
    else:
        found.pop("rollout_fragment_length")  # follows from the batch, or nothing is sampled
    if algorithm in ("IMPALA", "APPO"):
        found.pop("epsilon")  # of an optimizer of RLlib's older code
    if algorithm in ("BC", "MARWIL"):
        found.pop("lambda")  # of GAE: returns are summed here
    found |= {f"model_config.{key}": each for key, each in model.items()}
    return {RENAMED.get(name, name): each for name, each in found.items()}


def here(config, names):
    """The same settings of a config of plugrad's."""
    learner = config.environment("CartPole-v1").framework("numpy").build_learner()
    networks = {**MODEL_CONFIG, **learner.module["default_policy"].model_config}
    found = {}
    for name in names:
        owner, _, key = name.partition(".")
        value = getattr(config, owner) if not key else {**getattr(config, owner), **networks}[key]
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


@pytest.mark.parametrize("algorithm", rllib.CONFIGS)
def test_rllib_defaults_are_rllibs_value_by_value(algorithm):
    config, expected = rllib.CONFIGS[algorithm].rllib_defaults(), theirs(algorithm)
    if algorithm in BESIDE:
        assert (expected.pop("num_env_runners"), config.num_env_runners) == (2, 0)  # as its docstring says
    if algorithm in ("IMPALA", "APPO"):
        assert (expected.pop("num_learners"), config.num_learners) == (1, 0)  # likewise
    assert here(config, expected) == expected


@pytest.mark.parametrize("algorithm", rllib.CONFIGS)
def test_rllib_defaults_can_be_changed_and_written(algorithm):
    config = rllib.CONFIGS[algorithm].rllib_defaults().environment("CartPole-v1").training(gamma=0.5)
    assert type(config) is rllib.CONFIGS[algorithm]
    assert AlgorithmConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_an_own_config_has_the_defaults_of_its_algorithm_and_others_say_which_are_known():
    class Mine(rllib.CONFIGS["PPO"]):
        pass

    assert Mine.rllib_defaults().lr == rllib.CONFIGS["PPO"].rllib_defaults().lr != Mine().lr
    with pytest.raises(ConfigError, match=r"SACConfig.*known for PPOConfig, IMPALAConfig"):
        SACConfig.rllib_defaults()


# --- the table ---


def rows():
    """`[(algorithm, setting, RLlib's, plugrad's)]` of the table of defaults."""
    lines = PAGE.read_text().split("## Defaults that differ")[1].split("\n## ")[0].splitlines()
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [
        (row[0], row[1].strip("`"), *map(value, row[2:])) for row in cells if re.fullmatch("[A-Z]+", row[0])
    ]


def value(cell):
    word = cell.strip("`")
    return float("inf") if word == "inf" else ast.literal_eval(word)


def test_the_table_has_every_default_that_differs_and_no_other():
    listed, expected = {}, {}
    for algorithm, name, rllibs, ours in rows():
        listed[algorithm, name] = rllibs, ours
    for algorithm in ("PPO", "DQN", "BC", "IMPALA", "APPO"):
        settings = theirs(algorithm)
        found = here(rllib.CONFIGS[algorithm](), settings)
        for name, each in settings.items():
            if each != found[name] and (algorithm, name) != ("BC", "model_config.vf_share_layers"):
                expected[algorithm, name] = each, found[name]
    assert listed == expected
