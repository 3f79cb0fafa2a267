"""Environments whose tensors never pass numpy: `python examples/tensor_envs.py torch|jax cart-pole|pendulum COPIES`.

Many copies of an environment are one tensor on the learner's device. `vectorization_mode="tensors"` gives it actions
and trains on what it returns: the device gets random numbers and row numbers, the host gets the results.

The equations are those of Gymnasium's CartPole-v1 and Pendulum-v1, written once: `xp` is torch or jax.numpy.
"""

import sys
from importlib import import_module
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from plugrad_ppo import PPOConfig


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


EQUATIONS = {"cart-pole": CartPole, "pendulum": Pendulum}


class TensorEnv(VectorEnv[Any, Any, Any]):
    """Copies of an environment that step as one tensor.

    Args:
        num_envs: copies.
        backend: "torch", "jax", or "numpy" for `vectorization_mode="vector_entry_point"`.
        name: of the equations.
        device: of torch's tensors; jax has its own.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, backend: str, name: str, device: str = "cpu") -> None:
        xp = self.xp = import_module({"jax": "jax.numpy"}.get(backend, backend))
        self.equations, self.num_envs = EQUATIONS[name](xp), num_envs
        self.single_observation_space = self.equations.observations
        self.single_action_space = self.equations.actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.bounds = xp.asarray(self.equations.begins)
        if backend == "torch":
            self.bounds = self.bounds.to(device)
            self.generator = xp.Generator(device)
        self.backend, self.random = backend, import_module("jax.random") if backend == "jax" else None
        # Each operation that JAX calls by itself takes longer than all of them in one program.
        self.transition = import_module("jax").jit(self._transition) if backend == "jax" else self._transition

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin everywhere."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31))
        if self.backend == "torch":
            self.generator.manual_seed(number)
        elif self.random is not None:
            self.key = self.random.key(number)
        self.state = self._beginnings()
        self.ages = 0.0 * self.state[:, 0]
        return self.equations.observe(self.state), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all; where an episode ends the next one begins."""
        self.state, self.ages, *answers = self.transition(self.state, self.ages, actions, self._beginnings())
        observations, rewards, terminated, truncated, final = answers
        infos = {"final_obs": final}
        if self.backend == "numpy":
            infos["_final_obs"] = terminated | truncated
        return observations, rewards, terminated, truncated, infos

    def _transition(self, state: Any, ages: Any, actions: Any, fresh: Any) -> Any:
        """What follows a state, a fresh one where an episode ended, and the answers of `step`."""
        after, rewards, terminated = self.equations.step(state, actions)
        truncated = (ages + 1.0 >= self.equations.most_steps) & ~terminated
        ends = terminated | truncated
        goes_on = self.xp.where(ends[:, None], fresh, after)
        seen, final = self.equations.observe(goes_on), self.equations.observe(after)
        return goes_on, self.xp.where(ends, 0.0, ages + 1.0), seen, rewards, terminated, truncated, final

    def _beginnings(self) -> Any:
        shape = (self.num_envs, len(self.bounds))
        if self.backend == "torch":
            numbers = self.xp.rand(shape, generator=self.generator, device=self.bounds.device)
        elif self.random is None:
            numbers = self.np_random.random(shape, np.float32)
        else:
            self.key, key = self.random.split(self.key)
            numbers = self.random.uniform(key, shape)
        return (2.0 * numbers - 1.0) * self.bounds


def config(backend: str, name: str, copies: int, *, steps: int = 32, device: str = "auto") -> PPOConfig:
    """PPO on copies of an environment.

    Args:
        backend: "torch" or "jax".
        name: of the environment.
        copies: of it.
        steps: of each copy between two updates.
        device: of environment and learner.
    """
    rows = steps * copies
    made = PPOConfig().framework(backend, device=device).debugging(seed=0)
    on = {"device": "cuda" if device.startswith("cuda") else "cpu"} if backend == "torch" else {}
    made = made.environment(TensorEnv, env_config={"backend": backend, "name": name, **on})
    made = made.env_runners(vectorization_mode="tensors", num_envs_per_env_runner=copies)
    made = made.training(
        train_batch_size=rows, minibatch_size=max(1, rows // 4), num_epochs=4, lr=3e-3, gamma=0.98
    )
    return made.rl_module(model_config={"fcnet_hiddens": [32, 32]})


if __name__ == "__main__":
    given = [*sys.argv[1:], *("torch", "cart-pole", "4096")[len(sys.argv) - 1 :]]
    algorithm = config(given[0], given[1], int(given[2])).build_algo()
    for _ in range(10):
        results = algorithm.train()
        mean = results.get("env_runners/episode_return_mean", float("nan"))
        print(f"{results['num_env_steps_sampled_lifetime']} steps: mean return {mean:.1f}")
    algorithm.stop()
