"""Environments whose tensors never pass numpy: `python examples/tensor_envs.py torch|jax cart-pole|pendulum COPIES`.

Many copies of an environment are one tensor on the learner's device. Actions are computed from it and given to it, and
the learner trains on what was collected: the device gets random numbers and row numbers, the host gets the results.

The equations are those of Gymnasium's CartPole-v1 and Pendulum-v1, written once: `xp` is torch or jax.numpy.
"""

import sys
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad import losses
from plugrad_ppo import PPOConfig

P = "default_policy"


class CartPole:
    """A pole on a cart, pushed left or right: 1 for each step until it falls."""

    observations = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    actions = gym.spaces.Discrete(2)
    most_steps = 500
    begins = np.array([0.05, 0.05, 0.05, 0.05], np.float32)
    """States begin between minus this and this."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def observe(self, state: Any) -> Any:
        """Position, speed, angle and angular speed [copies, 4]: the whole state."""
        return state

    def step(self, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        """The next state [copies, 4], rewards [copies], and which poles have fallen, bool [copies]."""
        xp = self.xp
        x, speed, angle, turning = (state[:, n] for n in range(4))
        force = 10.0 * (2.0 * actions - 1.0)
        sin, cos = xp.sin(angle), xp.cos(angle)
        pushed = (force + 0.05 * turning * turning * sin) / 1.1
        angular = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        linear = pushed - 0.05 * angular * cos / 1.1
        moved = [x + 0.02 * speed, speed + 0.02 * linear, angle + 0.02 * turning, turning + 0.02 * angular]
        after = xp.stack(moved, -1)
        fallen = (xp.abs(after[:, 0]) > 2.4) | (xp.abs(after[:, 2]) > 12 * 2 * np.pi / 360)
        return after, xp.ones_like(x), fallen


class Pendulum:
    """A pendulum that a weak motor has to swing up; it never ends by itself."""

    observations = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    actions = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
    most_steps = 200
    begins = np.array([np.pi, 1.0], np.float32)

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def observe(self, state: Any) -> Any:
        """Cosine and sine of the angle, and angular speed [copies, 3]."""
        xp = self.xp
        return xp.stack([xp.cos(state[:, 0]), xp.sin(state[:, 0]), state[:, 1]], -1)

    def step(self, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        """The next state [copies, 2], rewards [copies], and which have ended: none."""
        xp = self.xp
        angle, turning, torque = state[:, 0], state[:, 1], xp.clip(actions[:, 0], -2.0, 2.0)
        from_top = xp.remainder(angle + np.pi, 2 * np.pi) - np.pi
        costs = from_top * from_top + 0.1 * turning * turning + 0.001 * torque * torque
        turning = xp.clip(turning + 0.05 * (15.0 * xp.sin(angle) + 3.0 * torque), -8.0, 8.0)
        return xp.stack([angle + 0.05 * turning, turning], -1), -costs, turning != turning


ENVIRONMENTS = {"cart-pole": CartPole, "pendulum": Pendulum}


def train(
    backend: str, name: str, copies: int, *, steps: int = 32, iterations: int = 10, device: str = "auto"
) -> list[float]:
    """Train PPO.

    Args:
        backend: "torch" or "jax".
        name: of the environment.
        copies: of it.
        steps: of each copy between two updates.
        iterations: updates.
        device: of environment and learner.

    Returns:
        The mean reward of the steps before each update.
    """
    xp = import_module("torch" if backend == "torch" else "jax.numpy")
    env = ENVIRONMENTS[name](xp)
    rows = steps * copies
    config = PPOConfig().framework(backend, device=device).debugging(seed=0)
    config = config.training(lr=3e-3, num_epochs=4, minibatch_size=max(1, rows // 4), gamma=0.98)
    config = config.rl_module(model_config={"fcnet_hiddens": [32, 32]})
    learner = config.build_learner(spaces={P: (env.observations, env.actions)})
    ops, rng = learner.ops, np.random.default_rng(0)
    begins = rng.uniform(-env.begins, env.begins, (copies, len(env.begins)))
    state, ages = ops.asarray(begins, "float32"), ops.zeros((copies,))
    means = []
    for _ in range(iterations):
        # All random beginnings in one copy.
        fresh = ops.asarray(rng.uniform(-env.begins, env.begins, (steps, *begins.shape)), "float32")
        seen = []
        for t in range(steps):
            obs = env.observe(state)
            acted = learner.compute_actions(obs, rng=rng, as_tensors=True)
            after, rewards, terminated = env.step(state, acted["actions"])
            ages = ages + 1.0
            ends = terminated | (ages >= env.most_steps)
            seen.append(
                {**acted, "obs": obs, "next": env.observe(after), "r": rewards, "t": terminated, "e": ends}
            )
            state, ages = xp.where(ends[:, None], fresh[t], after), xp.where(ends, 0.0, ages)
        all_steps: dict[str, Any] = {key: ops.stack([each[key] for each in seen]) for key in seen[0]}
        next_obs = ops.reshape(all_steps.pop("next"), (rows, *env.observations.shape))
        values = learner.compute_actions(next_obs, rng=rng, as_tensors=True)["vf_preds"]
        next_values = xp.where(all_steps.pop("t"), 0.0, ops.reshape(values, (steps, copies)))
        # The last rows go on in the next batch: their values stand for what follows.
        last = ops.expand_dims(ops.ones_like(all_steps["e"][0]), 0)
        ends = ops.concat([all_steps.pop("e")[:-1], last])
        rewards = all_steps.pop("r")
        advantages, targets = losses.generalized_advantage_estimation(
            ops, rewards, all_steps["vf_preds"], next_values, ends, 0.98, 0.95
        )
        all_steps |= {"advantages": advantages, "value_targets": targets}
        batch = {key: ops.reshape(each, (rows, *ops.shape(each)[2:])) for key, each in all_steps.items()}
        learner.update(batch)
        means.append(float(ops.mean(rewards)))
    return means


if __name__ == "__main__":
    given = [*sys.argv[1:], *("torch", "cart-pole", "4096")[len(sys.argv) - 1 :]]
    for number, mean in enumerate(train(given[0], given[1], int(given[2]))):
        print(f"update {number}: mean reward {mean:.3f}")
