"""stable-baselines3 has trained each case of `tests/data/sb3`; plugrad gets the same from the same rollouts and rows.

`benchmarks/sb3_numbers.py` wrote them: advantages, losses and weights of three updates of PPO, DQN, SAC and TD3.
"""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from plugrad import DEFAULT_MODULE_ID as P
from plugrad import Columns, Learner, SingleAgentEpisode
from plugrad.types import Array
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

FOLDER = Path(__file__).parents[1] / "data" / "sb3"
ABOUT = json.loads((FOLDER / "cases.json").read_text())
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
PPO_SPACES = {"ppo_box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32), "ppo_discrete": gym.spaces.Discrete(3)}
ACTOR_CRITICS: dict[str, Any] = {"sac": SACConfig, "td3": TD3Config}
CASES = [(algorithm, trained) for algorithm in ACTOR_CRITICS for trained in ("policy", "critics")]
SPACES = {
    **PPO_SPACES,
    "dqn": gym.spaces.Discrete(3),
    **{"_".join(case): gym.spaces.Box(-2.0, 2.0, (2,), np.float32) for case in CASES},
}
UPDATES = 3
LOSSES = ("qf_loss", "policy_loss", "alpha_loss")


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


def build(config: Any, name: str, backend: str, mode: str) -> Learner:
    """A learner with the weights that stable-baselines3's had at first."""
    config = config.framework(backend, compile=mode).rl_module(
        model_config={"fcnet_hiddens": ABOUT["hiddens"]}
    )
    spaces = {P: (OBSERVATIONS, SPACES[name])}
    learner: Learner = config.build_learner(spaces=spaces)
    learner.set_weights({P: read(name, "weights/0")})
    return learner


def assert_weights(learner: Learner, name: str, number: int) -> None:
    found, expected = learner.get_weights()[P], read(name, f"weights/{number}")
    assert found.keys() == expected.keys()
    for parameter, values in expected.items():
        np.testing.assert_allclose(found[parameter], values, rtol=0.0, atol=2e-6, err_msg=parameter)


@pytest.mark.parametrize("mode", ["none", "auto"])
@pytest.mark.parametrize("name", PPO_SPACES)
def test_three_updates_of_ppo_are_those_of_stable_baselines3(backend: str, name: str, mode: str) -> None:
    config = PPOConfig().training(
        **ABOUT["ppo"],
        minibatch_size=None,
        optimizer={"type": "adam", "eps": 1e-5},
        normalize_advantages="minibatch",
    )
    learner = build(config, name, backend, mode)
    for number in range(UPDATES):
        rollout = read(name, str(number))
        columns = learner.run_connectors(episodes(rollout))[P]
        for column in (Columns.ADVANTAGES, Columns.VALUE_TARGETS):
            np.testing.assert_allclose(columns[column], rollout[column], rtol=0.0, atol=2e-6)
        results = learner.update(episodes=episodes(rollout))[P]
        assert_weights(learner, name, number + 1)
        assert results["vf_loss"] == pytest.approx(float(rollout["vf_loss"]), rel=1e-5)
        assert results["policy_loss"] == pytest.approx(float(rollout["policy_loss"]), abs=1e-6)


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_three_updates_of_dqn_are_those_of_stable_baselines3(backend: str, mode: str) -> None:
    config = DQNConfig().training(**ABOUT["dqn"], minibatch_size=None, double_q=False, dueling=False)
    learner = build(config, "dqn", backend, mode)
    learner.targets[P].update(tau=1.0)
    for number in range(UPDATES):
        rows = read("dqn", str(number))
        batch = {name: values for name, values in rows.items() if values.ndim}
        results = learner.update(batch)[P]
        assert_weights(learner, "dqn", number + 1)
        assert results["total_loss"] == pytest.approx(float(rows["total_loss"]), rel=1e-5)


@pytest.mark.parametrize("mode", ["none", "auto"])
@pytest.mark.parametrize(("algorithm", "trained"), CASES)
def test_three_updates_of_actor_critics_are_those_of_stable_baselines3(
    backend: str, algorithm: str, trained: str, mode: str
) -> None:
    """The policy alone learns, with SAC's temperature, or the critics alone: see `benchmarks/sb3_actor_critics.py`."""
    name = f"{algorithm}_{trained}"
    lr = {"policy": {"critic_lr": 0.0}, "critics": {"actor_lr": 0.0}}[trained]
    if algorithm == "sac" and trained == "critics":
        lr["alpha_lr"] = 0.0
    config = ACTOR_CRITICS[algorithm]().training(
        **ABOUT[algorithm], **lr, minibatch_size=None, target_network_update_freq=1
    )
    learner = build(config, name, backend, mode)
    learner.targets[P].update(tau=1.0)
    for number in range(UPDATES):
        rows = read(name, str(number))
        batch = {column: values for column, values in rows.items() if values.ndim}
        noise = np.random.default_rng(int(rows["noise_seed"]))
        learner.stream(P, "noise").bit_generator.state = noise.bit_generator.state
        results = learner.update(batch)[P]
        assert_weights(learner, name, number + 1)
        reported = ["qf_loss"] if trained == "critics" else [loss for loss in LOSSES if loss in rows]
        for loss in reported:
            assert results[loss] == pytest.approx(float(rows[loss]), rel=1e-5, abs=1e-6), loss
