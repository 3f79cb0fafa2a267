"""SAC and TD3 in numpy, from their papers, and tiny learners and batches of off-policy algorithms, for the tests."""

from typing import Any

import gymnasium as gym
import numpy as np
from learning import OBSERVATIONS

from plugrad import Columns
from plugrad_dqn import DQNConfig
from plugrad_qrdqn import QRDQNConfig
from plugrad_sac import SACConfig, TD3Config
from plugrad_tqc import TQCConfig

BOX = gym.spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 0.5]))
"""Each dimension has bounds of its own."""
THREE_ACTIONS = gym.spaces.Discrete(3)
KINDS: dict[str, tuple[type[Any], gym.Space]] = {
    "sac": (SACConfig, BOX),
    "sac discrete": (SACConfig, THREE_ACTIONS),
    "td3": (TD3Config, BOX),
    "tqc": (TQCConfig, BOX),
    "dqn": (DQNConfig, THREE_ACTIONS),
    "qrdqn": (QRDQNConfig, THREE_ACTIONS),
}


def tiny(kind: str, backend: str, *, compile: str = "none", hiddens=(4,), **training: Any) -> Any:
    """A config of a few dozen parameters: one epoch of minibatches in their order."""
    cls, space = KINDS[kind]
    return (
        cls()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=space)
        .rl_module(model_config={"fcnet_hiddens": list(hiddens)})
        .training(**{"minibatch_size": None, "shuffle_batch_per_epoch": False, "lr": 0.01, **training})
        .debugging(seed=1)
    )


def transitions(kind: str, rows: int = 16, *, seed: int = 5, **columns: Any) -> dict[str, np.ndarray]:
    """Rows of a replay buffer; some of a Box's actions lie beyond its bounds, as those of an explorer."""
    rng, space = np.random.default_rng(seed), KINDS[kind][1]
    discrete = isinstance(space, gym.spaces.Discrete)
    beyond = rng.uniform(1.2 * BOX.low - 0.1, 1.2 * BOX.high, (rows, 2)).astype(np.float32)
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.ACTIONS: rng.integers(3, size=rows) if discrete else beyond,
        Columns.REWARDS: rng.normal(scale=2.0, size=rows).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.TERMINATEDS: rng.random(rows) < 0.3,
        **columns,
    }


def several_steps(rows: int = 16) -> dict[str, np.ndarray]:
    """The columns of n-step returns and prioritized replay."""
    return {
        Columns.N_STEP: np.resize([1.0, 2.0, 3.0], rows).astype(np.float32),
        Columns.WEIGHTS: np.linspace(0.1, 1.0, rows, dtype=np.float32),
    }


MASK = np.array([[0, 1, 1, 1], [1, 1, 1, 0]], bool)
"""One sequence with a step of burn-in, one that is padded."""
RECURRENT = {"fcnet_hiddens": [3], "use_lstm": True, "lstm_cell_size": 2, "max_seq_len": 3}


def recurrent(kind: str, backend: str, **training: Any) -> Any:
    """A config with LSTMs of two cells."""
    return tiny(kind, backend, gamma=0.9, **training).rl_module(model_config=RECURRENT)


def sequences(kind: str, seed: int = 0, copies: int = 1) -> dict[str, Any]:
    """Sequences [2 copies, 4, ...] as a replay buffer has them."""
    rng, mask = np.random.default_rng(seed), np.tile(MASK, (copies, 1))
    obs = rng.normal(size=(len(mask), 5, 3)).astype(np.float32)
    space = KINDS[kind][1]
    drawn = rng.uniform(0.0, 0.4, (*mask.shape, 2)) if space.shape else rng.integers(3, size=mask.shape)
    return {
        Columns.OBS: obs[:, :-1],
        Columns.NEXT_OBS: obs[:, 1:],
        Columns.ACTIONS: drawn.astype(space.dtype),
        Columns.REWARDS: rng.normal(size=mask.shape).astype(np.float32),
        Columns.TERMINATEDS: rng.random(mask.shape) < 0.3,
        Columns.LOSS_MASK: mask,
        Columns.SEQ_LENS: np.tile([4, 3], copies).astype(np.int32),
        Columns.STATE_IN: {
            name: rng.normal(size=(len(mask), 2)).astype(np.float32)
            for name in (("h", "c") if "dqn" in kind else ("pi_h", "pi_c", "qf_h", "qf_c"))
        },
    }


def dense(x: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def remembered(weights: Any, name: str, x: Any, h: Any, c: Any) -> Any:
    """The outputs [T, cells] of an LSTM, step by step."""
    found = []
    for each in x:
        gates = each @ weights[f"{name}.input_weight"] + h @ weights[f"{name}.recurrent_weight"]
        i, f, o, candidate = np.split(gates + weights[f"{name}.bias"], 4)
        i, f, o = (1.0 / (1.0 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(candidate)
        h = o * np.tanh(c)
        found.append(h)
    return np.array(found)


def policy_outputs(weights: dict[str, np.ndarray], obs: np.ndarray) -> np.ndarray:
    """One hidden layer of ReLU, one linear layer."""
    return dense(np.maximum(dense(obs, weights, "pi.0"), 0.0), weights, "pi.out")


def q_values(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Of both critics [2, B, values]."""
    found = []
    for n in range(2):
        own = {name: values[n] for name, values in weights.items() if name.startswith("qf")}
        found.append(dense(np.maximum(dense(x, own, "qf.0"), 0.0), own, "qf.1"))
    return np.stack(found)


def scaled(actions: np.ndarray) -> np.ndarray:
    """From the bounds to [-1, 1]."""
    return 2.0 * (actions - BOX.low) / (BOX.high - BOX.low) - 1.0


class Paper:
    """The losses of one algorithm, each a function of the weights that it trains; all else as it was.

    Args:
        kind: see `KINDS`.
        weights: of the module.
        target: of its target network.
        rows: the batch.
        noise: standard normals by column.
    """

    gamma, target_policy_noise, target_noise_clip = 0.9, 0.3, 0.4

    def __init__(self, kind: str, weights: Any, target: Any, rows: Any, noise: Any) -> None:
        as_float64 = lambda each: {name: np.float64(values) for name, values in each.items()}  # noqa: E731
        self.kind, self.rows, self.noise = kind, rows, noise
        self.weights = as_float64(weights)
        self.target = {name: np.float64(target.get(name, each)) for name, each in self.weights.items()}

    def losses(self, **changed: Any) -> dict[str, float]:
        """Of critics, policy and temperature, with the weights of each changed; targets are constants."""
        weights = {**self.weights, **changed}
        found = {"critic": self._critic(weights), "actor": self._actor(weights)}
        return found | ({"alpha": self._alpha(weights)} if self.kind != "td3" else {})

    @property
    def alpha(self) -> float:
        """The temperature, a constant of the losses of critics and policy."""
        return float(np.exp(self.weights["log_alpha"]))

    def td_errors(self, weights: Any) -> np.ndarray:
        rows, taken = self.rows, self.q_of(weights, self.rows[Columns.OBS], self.rows[Columns.ACTIONS])
        discount = self.gamma ** rows.get(Columns.N_STEP, 1.0)
        target = rows[Columns.REWARDS] + discount * ~rows[Columns.TERMINATEDS] * self._next_value()
        return taken - target

    def q_of(self, weights: Any, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Of both critics [2, B]; actions in their own units."""
        if self.kind == "sac discrete":
            return q_values(weights, obs)[:, np.arange(len(obs)), actions]
        inside = np.clip(scaled(np.float64(actions)), -1.0, 1.0)
        return q_values(weights, np.concatenate([obs, inside], -1))[..., 0]

    def _critic(self, weights: Any) -> float:
        squares = (self.td_errors(weights) ** 2).sum(0) * self.rows.get(Columns.WEIGHTS, 1.0)
        return float(squares.mean() * (1.0 if self.kind == "td3" else 0.5))

    def _next_value(self) -> np.ndarray:
        obs = self.rows[Columns.NEXT_OBS]
        if self.kind == "td3":
            noise = np.clip(self.target_policy_noise * self.noise["target_noise"], *self._limits)
            smooth = np.clip(np.tanh(policy_outputs(self.target, obs)) + noise, -1.0, 1.0)
            return q_values(self.target, np.concatenate([obs, smooth], -1))[..., 0].min(0)
        if self.kind == "sac discrete":
            p, logp = self.probabilities(self.weights, obs)
            return (p * (q_values(self.target, obs).min(0) - self.alpha * logp)).sum(-1)
        action, logp = self.draw(self.weights, obs, self.noise["next_policy_noise"])
        return q_values(self.target, np.concatenate([obs, action], -1))[..., 0].min(0) - self.alpha * logp

    @property
    def _limits(self) -> tuple[float, float]:
        return -self.target_noise_clip, self.target_noise_clip

    def _actor(self, weights: Any) -> float:
        obs = self.rows[Columns.OBS]
        if self.kind == "td3":
            action = np.tanh(policy_outputs(weights, obs))
            return float(-q_values(self.weights, np.concatenate([obs, action], -1))[0].mean())
        if self.kind == "sac discrete":
            p, logp = self.probabilities(weights, obs)
            return float((p * (self.alpha * logp - q_values(self.weights, obs).min(0))).sum(-1).mean())
        action, logp = self.draw(weights, obs, self.noise["policy_noise"])
        values = q_values(self.weights, np.concatenate([obs, action], -1))[..., 0].min(0)
        return float((self.alpha * logp - values).mean())

    def _alpha(self, weights: Any) -> float:
        return float(weights["log_alpha"] * (self.entropy - self.target_entropy))

    @property
    def entropy(self) -> float:
        """Of the policy, or its estimate."""
        obs = self.rows[Columns.OBS]
        if self.kind == "sac discrete":
            p, logp = self.probabilities(self.weights, obs)
            return float(-(p * logp).sum(-1).mean())
        return float(-self.draw(self.weights, obs, self.noise["policy_noise"])[1].mean())

    @property
    def target_entropy(self) -> float:
        """What "auto" means."""
        return float(0.98 * np.log(3)) if self.kind == "sac discrete" else -2.0

    @staticmethod
    def probabilities(weights: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of all actions, and their logarithms."""
        logits = policy_outputs(weights, obs)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return p, np.log(p)

    @staticmethod
    def draw(weights: Any, obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions in [-1, 1] and the logs of their densities there."""
        mean, log_std = np.split(policy_outputs(weights, obs), 2, -1)
        action = np.tanh(mean + np.exp(log_std) * noise)
        normal = -0.5 * np.float64(noise) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        return action, (normal - np.log(1.0 - action**2)).sum(-1)
