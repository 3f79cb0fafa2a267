"""stable-baselines3 has trained each case of `tests/data/sb3` with PPO; plugrad gets the same from the same rollouts.

`benchmarks/sb3_numbers.py` wrote them: advantages, losses and weights of three updates.
"""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from plugrad import DEFAULT_MODULE_ID as P
from plugrad import Columns, SingleAgentEpisode
from plugrad.types import Array
from plugrad_ppo import PPOConfig

FOLDER = Path(__file__).parents[1] / "data" / "sb3"
ABOUT = json.loads((FOLDER / "cases.json").read_text())
SPACES = {"ppo_box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32), "ppo_discrete": gym.spaces.Discrete(3)}
UPDATES = 3


def read(name: str, folder: str) -> dict[str, Array]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
        return {
            key.removeprefix(f"{folder}/"): arrays[key]
            for key in arrays.files
            if key.startswith(f"{folder}/")
        }


def episodes(rollout: dict[str, Array]) -> list[SingleAgentEpisode]:
    """The rollout's episodes; the last one goes on."""
    ends = [*(np.flatnonzero(rollout["terminated"]) + 1), len(rollout["rewards"])]
    return [
        SingleAgentEpisode(
            observations=rollout["obs"][start : end + 1],
            actions=rollout["actions"][start:end],
            rewards=rollout["rewards"][start:end],
            terminated=bool(rollout["terminated"][end - 1]),
            extra_model_outputs={Columns.ACTION_LOGP: rollout["action_logp"][start:end]},
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def config(backend: str, mode: str) -> PPOConfig:
    settings = {**ABOUT["settings"], "minibatch_size": None, "num_epochs": ABOUT["num_epochs"]}
    adam = {"type": "adam", "eps": 1e-5}
    return (
        PPOConfig()
        .framework(backend, compile=mode)
        .training(**settings, optimizer=adam, normalize_advantages="minibatch")
        .rl_module(model_config={"fcnet_hiddens": ABOUT["hiddens"], "fcnet_activation": "tanh"})
    )


@pytest.mark.parametrize("mode", ["none", "auto"])
@pytest.mark.parametrize("name", SPACES)
def test_three_updates_of_ppo_are_those_of_stable_baselines3(backend: str, name: str, mode: str) -> None:
    observations = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    learner = config(backend, mode).build_learner(spaces={P: (observations, SPACES[name])})
    learner.set_weights({P: read(name, "weights/0")})
    for number in range(UPDATES):
        rollout = read(name, str(number))
        columns = learner.run_connectors(episodes(rollout))[P]
        for column in (Columns.ADVANTAGES, Columns.VALUE_TARGETS):
            np.testing.assert_allclose(columns[column], rollout[column], rtol=0.0, atol=2e-6)
        results = learner.update(episodes=episodes(rollout))[P]
        expected = read(name, f"weights/{number + 1}")
        found = learner.get_weights()[P]
        assert found.keys() == expected.keys()
        for parameter, values in expected.items():
            np.testing.assert_allclose(found[parameter], values, rtol=0.0, atol=2e-6, err_msg=parameter)
        assert results["vf_loss"] == pytest.approx(float(rollout["value_loss"]), rel=1e-5)
        assert results["policy_loss"] == pytest.approx(float(rollout["policy_gradient_loss"]), abs=1e-6)
