"""Write what stable-baselines3 computes in three updates to `tests/data/sb3`: losses, weights, advantages.

Run it in the peers' environment, from the folder of the repository:

    peers/bin/python benchmarks/sb3_numbers.py

Each case becomes `<name>.npz`, arrays without pickle: `<update>/<column>` of a rollout of 64 steps of one environment,
or of 64 rows of a replay buffer; `<update>/<result>`; and `weights/<number of updates>/<parameter>`. Each minibatch is
the whole batch, so that the order of its rows decides nothing. Parameters have plugrad's names. `cases.json` has
settings and versions.
"""

# mypy: disable-error-code="import-not-found"

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_actor_critics as actor_critics
import stable_baselines3
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "sb3"
STEPS, UPDATES, EPOCHS, HIDDENS = 64, 3, 5, [8, 8]
PPO_SETTINGS = {
    "lr": 3e-3,
    "gamma": 0.98,
    "lambda_": 0.9,
    "clip_param": 0.2,
    "entropy_coeff": 0.01,
    "vf_loss_coeff": 0.7,
    "grad_clip": 0.6,
}
DQN_SETTINGS = {"lr": 3e-3, "gamma": 0.98, "grad_clip": 0.6}
BOX, DISCRETE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Discrete(3)
NAMES = {
    "log_std": "pi.log_std",
    "mlp_extractor.policy_net.0": "pi.0",
    "mlp_extractor.policy_net.2": "pi.1",
    "action_net": "pi.out",
    "mlp_extractor.value_net.0": "vf.0",
    "mlp_extractor.value_net.2": "vf.1",
    "value_net": "vf.out",
    "q_net.q_net.0": "encoder.0",
    "q_net.q_net.2": "encoder.1",
    "q_net.q_net.4": "q.out",
}


class Spaces(gym.Env[Any, Any]):
    """An environment for its spaces alone."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    write("ppo_box", make_ppo(BOX, seed=0), learn_from_rollout)
    write("ppo_discrete", make_ppo(DISCRETE, seed=1), learn_from_rollout)
    write("dqn", make_dqn(seed=2), learn_from_replay)
    env = DummyVecEnv([lambda: Spaces(actor_critics.ACTIONS)])
    for trained in ("policy", "critics"):
        write(f"sac_{trained}", actor_critics.make_sac(env, HIDDENS, trained), actor_critics.learn_from_rows)
        write(f"td3_{trained}", actor_critics.make_td3(env, HIDDENS, trained), actor_critics.learn_from_rows)
    about = {
        "stable_baselines3": stable_baselines3.__version__,
        "torch": torch.__version__,
        "hiddens": HIDDENS,
    }
    about |= {"ppo": {**PPO_SETTINGS, "num_epochs": EPOCHS}, "dqn": DQN_SETTINGS}
    off_policy = {**actor_critics.SETTINGS, "lr": actor_critics.LR}
    about |= {"sac": off_policy, "td3": off_policy | actor_critics.TD3_SETTINGS}
    (FOLDER / "cases.json").write_text(json.dumps(about, indent=1) + "\n")


def write(name: str, model: Any, learn: Callable[[Any, np.random.Generator], dict[str, Any]]) -> None:
    """Write the arrays of one case into a file."""
    model.set_logger(configure(None, []))
    found = labelled("weights/0", weights(model))
    for number in range(UPDATES):
        found |= labelled(str(number), learn(model, np.random.default_rng([len(name), number])))
        found |= labelled(f"weights/{number + 1}", weights(model))
    np.savez_compressed(FOLDER / f"{name}.npz", allow_pickle=False, **found)


def make_ppo(space: gym.Space[Any], seed: int) -> Any:
    return PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: Spaces(space)]),
        n_steps=STEPS,
        batch_size=STEPS,
        n_epochs=EPOCHS,
        learning_rate=PPO_SETTINGS["lr"],
        gamma=PPO_SETTINGS["gamma"],
        gae_lambda=PPO_SETTINGS["lambda_"],
        clip_range=PPO_SETTINGS["clip_param"],
        ent_coef=PPO_SETTINGS["entropy_coeff"],
        vf_coef=PPO_SETTINGS["vf_loss_coeff"],
        max_grad_norm=PPO_SETTINGS["grad_clip"],
        policy_kwargs={"net_arch": {"pi": HIDDENS, "vf": HIDDENS}, "activation_fn": nn.Tanh},
        seed=seed,
        device="cpu",
    )


def make_dqn(seed: int) -> Any:
    return DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: Spaces(DISCRETE)]),
        buffer_size=STEPS,
        learning_rate=DQN_SETTINGS["lr"],
        gamma=DQN_SETTINGS["gamma"],
        max_grad_norm=DQN_SETTINGS["grad_clip"],
        policy_kwargs={"net_arch": HIDDENS},
        seed=seed,
        device="cpu",
    )


def learn_from_rollout(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Train on a rollout of made-up observations and rewards, acted on by the model's policy.

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
    found |= {"value_targets": buffer.returns[:, 0].copy()}
    model.train()
    losses = {"vf_loss": "train/value_loss", "policy_loss": "train/policy_gradient_loss"}
    return found | {ours: model.logger.name_to_value[theirs] for ours, theirs in losses.items()}


def learn_from_replay(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Train on a full buffer of made-up rows, each of them once; the target network stays as it was made."""
    rows: dict[str, Any] = {"obs": rng.standard_normal((STEPS, 3)).astype(np.float32)}
    rows |= {
        "new_obs": rng.standard_normal((STEPS, 3)).astype(np.float32),
        "actions": rng.integers(3, size=STEPS),
    }
    rows |= {
        "rewards": 3.0 * rng.standard_normal(STEPS).astype(np.float32),
        "terminateds": rng.random(STEPS) < 0.1,
    }
    buffer = model.replay_buffer
    buffer.reset()
    for t in range(STEPS):
        of = {name: values[t : t + 1] for name, values in rows.items()}
        buffer.add(of["obs"], of["new_obs"], of["actions"], of["rewards"], of["terminateds"], [{}])
    buffer.sample = lambda *_, **__: buffer._get_samples(np.arange(STEPS))
    model.train(gradient_steps=1, batch_size=STEPS)
    return rows | {"total_loss": model.logger.name_to_value["train/loss"]}


def weights(model: Any) -> dict[str, Any]:
    """The parameters by plugrad's names, matrices as [inputs, outputs]."""
    if isinstance(model, SAC | TD3):
        return actor_critics.weights(model)
    found = {}
    for name, each in model.policy.state_dict().items():
        if name.startswith("q_net_target"):
            continue
        layer, _, kind = name.rpartition(".")
        named = NAMES[name] if name in NAMES else f"{NAMES[layer]}.{kind}"
        found[named] = each.numpy().T.copy() if each.ndim == 2 else each.numpy().copy()
    return found


def labelled(folder: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {f"{folder}/{name}": values for name, values in arrays.items()}


if __name__ == "__main__":
    main()
