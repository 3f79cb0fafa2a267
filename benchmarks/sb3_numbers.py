"""Write the advantages, losses and weights of stable-baselines3's PPO of three rollouts to `tests/data/sb3`.

Run it in the peers' environment, from the folder of the repository:

    peers/bin/python benchmarks/sb3_numbers.py

Each case becomes `<name>.npz`, arrays without pickle: `<update>/<column>` of rollouts of 64 steps of one environment,
`<update>/<result>`, and `weights/<number of updates>/<parameter>`. Each minibatch is a whole rollout, so that the order
of its rows decides nothing. Parameters have plugrad's names. `cases.json` has settings and versions.
"""

# mypy: disable-error-code="import-not-found"

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "sb3"
STEPS, UPDATES, EPOCHS, HIDDENS = 64, 3, 5, [8, 8]
SETTINGS = {
    "lr": 3e-3,
    "gamma": 0.98,
    "lambda_": 0.9,
    "clip_param": 0.2,
    "entropy_coeff": 0.01,
    "vf_loss_coeff": 0.7,
}
SETTINGS |= {"grad_clip": 0.6}
CASES: dict[str, gym.Space[Any]] = {
    "ppo_box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
    "ppo_discrete": gym.spaces.Discrete(3),
}
NAMES = {
    "log_std": "pi.log_std",
    "mlp_extractor.policy_net.0": "pi.0",
    "mlp_extractor.policy_net.2": "pi.1",
    "action_net": "pi.out",
    "mlp_extractor.value_net.0": "vf.0",
    "mlp_extractor.value_net.2": "vf.1",
    "value_net": "vf.out",
}


class Spaces(gym.Env[Any, Any]):
    """An environment for its spaces alone."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed, (name, space) in enumerate(CASES.items()):
        np.savez_compressed(FOLDER / f"{name}.npz", allow_pickle=False, **numbers(space, seed))
    about = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    about |= {"settings": SETTINGS, "num_epochs": EPOCHS, "hiddens": HIDDENS}
    (FOLDER / "cases.json").write_text(json.dumps(about, indent=1) + "\n")


def numbers(space: gym.Space[Any], seed: int) -> dict[str, Any]:
    """The arrays of one case."""
    model = build(space, seed)
    found = labelled("weights/0", weights(model))
    for number in range(UPDATES):
        rollout = collect(model, np.random.default_rng([seed, number]))
        model.train()
        results = {
            name: model.logger.name_to_value[f"train/{name}"]
            for name in ("value_loss", "policy_gradient_loss")
        }
        found |= labelled(str(number), rollout | results)
        found |= labelled(f"weights/{number + 1}", weights(model))
    return found


def build(space: gym.Space[Any], seed: int) -> Any:
    """Build the model."""
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: Spaces(space)]),
        n_steps=STEPS,
        batch_size=STEPS,
        n_epochs=EPOCHS,
        learning_rate=SETTINGS["lr"],
        gamma=SETTINGS["gamma"],
        gae_lambda=SETTINGS["lambda_"],
        clip_range=SETTINGS["clip_param"],
        ent_coef=SETTINGS["entropy_coeff"],
        vf_coef=SETTINGS["vf_loss_coeff"],
        max_grad_norm=SETTINGS["grad_clip"],
        policy_kwargs={"net_arch": {"pi": HIDDENS, "vf": HIDDENS}, "activation_fn": nn.Tanh},
        seed=seed,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    return model


def collect(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Fill the model's buffer with a rollout of made-up observations and rewards, acted on by its policy.

    Some steps terminate an episode; the last step ends none. `obs` has one row more, the last observation.
    """
    obs = rng.standard_normal((STEPS + 1, 3)).astype(np.float32)
    rewards = rng.standard_normal(STEPS).astype(np.float32)
    terminated = rng.random(STEPS) < 0.1
    terminated[-1] = False
    starts = np.concatenate([[True], terminated])
    with torch.no_grad():
        actions, values, logp = model.policy(torch.from_numpy(obs[:-1]))
        last = model.policy.predict_values(torch.from_numpy(obs[-1:]))
    buffer = model.rollout_buffer
    buffer.reset()
    for t in range(STEPS):
        row = slice(t, t + 1)
        buffer.add(obs[row], actions[row].numpy(), rewards[row], starts[row], values[t], logp[row])
    buffer.compute_returns_and_advantage(last, starts[-1:])
    found = {"obs": obs, "actions": actions.numpy(), "rewards": rewards, "terminated": terminated}
    found |= {"action_logp": logp.numpy(), "advantages": buffer.advantages[:, 0].copy()}
    return found | {"value_targets": buffer.returns[:, 0].copy()}


def weights(model: Any) -> dict[str, Any]:
    """The parameters by plugrad's names, matrices as [inputs, outputs]."""
    found = {}
    for name, each in model.policy.state_dict().items():
        layer, _, kind = name.rpartition(".")
        named = NAMES[name] if name in NAMES else f"{NAMES[layer]}.{kind}"
        found[named] = each.numpy().T.copy() if each.ndim == 2 else each.numpy().copy()
    return found


def labelled(folder: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {f"{folder}/{name}": values for name, values in arrays.items()}


if __name__ == "__main__":
    main()
