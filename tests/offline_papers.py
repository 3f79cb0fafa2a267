"""IQL and CQL in numpy, from their papers, and tiny learners and batches of both, for the tests."""

from math import erf
from typing import Any

import numpy as np
from actor_critics import BOX, Paper, dense, policy_outputs, q_values, scaled
from learning import OBSERVATIONS

from plugrad import Columns
from plugrad_offline import CQLConfig, IQLConfig

NUM_ACTIONS = 3
KINDS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "iql": (IQLConfig, {"gamma": 0.9, "beta": 1.5, "max_weight": 4.0}),
    "cql": (CQLConfig, {"gamma": 0.9, "num_actions": NUM_ACTIONS, "temperature": 0.7}),
    "cql lagrangian": (
        CQLConfig,
        {
            "gamma": 0.9,
            "num_actions": NUM_ACTIONS,
            "lagrangian": True,
            "lagrangian_thresh": 1.0,
            "deterministic_backup": False,
        },
    ),
}


def tiny(kind: str, backend: str, *, compile: str = "none", hiddens=(4,), **training: Any) -> Any:
    """A config of a few dozen parameters: one epoch of minibatches in their order."""
    cls, settings = KINDS[kind]
    more = {"minibatch_size": None, "shuffle_batch_per_epoch": False, "lr": 0.01, "actor_lr": None}
    return (
        cls()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=BOX)
        .rl_module(model_config={"fcnet_hiddens": list(hiddens)})
        .training(**{**more, **settings, **training})
        .debugging(seed=1)
    )


class OfflinePaper:
    """What the losses of IQL and CQL have in common; each is a function of the weights that it trains.

    Args:
        config: the settings.
        weights: of the module.
        target: of its target critics.
        rows: the batch.
        noise: standard normals by column.
    """

    def __init__(self, config: Any, weights: Any, target: Any, rows: Any, noise: Any) -> None:
        as_float64 = lambda each: {name: np.array(values, np.float64) for name, values in each.items()}  # noqa: E731
        self.config, self.rows, self.noise = config, rows, as_float64(noise)
        self.weights, self.target = as_float64(weights), as_float64({**weights, **target})

    def q_of(self, weights: Any, actions: np.ndarray, column: str = Columns.OBS) -> np.ndarray:
        """Of both critics [2, ...]; actions [B, d] or [B, n, d] where the bounds are [-1, 1]."""
        obs = self.rows[column]
        obs = obs if actions.ndim == 2 else np.repeat(obs[:, None], actions.shape[1], 1)
        return q_values(weights, np.concatenate([obs, np.clip(actions, -1.0, 1.0)], -1))[..., 0]

    @property
    def taken(self) -> np.ndarray:
        return scaled(np.float64(self.rows[Columns.ACTIONS]))

    def squared_errors(self, weights: Any, next_values: np.ndarray) -> float:
        """Of both critics, added up; rows weighed."""
        rows, config = self.rows, self.config
        discount = config.gamma ** rows.get(Columns.N_STEP, 1.0)
        targets = rows[Columns.REWARDS] + discount * ~rows[Columns.TERMINATEDS] * next_values
        squares = ((self.q_of(weights, self.taken) - targets) ** 2).sum(0)
        return float((squares * rows.get(Columns.WEIGHTS, 1.0)).mean())


class IQLPaper(OfflinePaper):
    """Equations 5, 6 and 7 of arXiv:2110.06169."""

    networks = {"actor": "pi", "critic": "qf", "value": "vf"}  # noqa: RUF012

    def losses(self, **changed: Any) -> dict[str, float]:
        """Of value, critics and policy, with the weights of each changed."""
        weights, config = {**self.weights, **changed}, self.config
        errors = self.q_of(self.target, self.taken).min(0) - self._value(weights, Columns.OBS)
        asymmetry = np.abs(config.expectile - (errors < 0.0))
        advantages = self.q_of(self.target, self.taken).min(0) - self._value(self.weights, Columns.OBS)
        importance = np.minimum(np.exp(config.beta * advantages), config.max_weight)
        return {
            "value": float((asymmetry * errors**2).mean()),
            "critic": self.squared_errors(weights, self._value(self.weights, Columns.NEXT_OBS)),
            "actor": float(-(importance * self._logp(weights)).mean()),
        }

    def _value(self, weights: Any, column: str) -> np.ndarray:
        hidden = np.maximum(dense(self.rows[column], weights, "vf.0"), 0.0)
        return dense(hidden, weights, "vf.out")[:, 0]

    def _logp(self, weights: Any) -> np.ndarray:
        """In the actions' own units."""
        half = (np.float64(BOX.high) - BOX.low) / 2.0
        mean = BOX.low + half * (1.0 + np.tanh(policy_outputs(weights, self.rows[Columns.OBS])))
        std = np.exp(weights["pi.log_std"]) * half
        z = (self.rows[Columns.ACTIONS] - mean) / std
        return (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)).sum(-1)


class CQLPaper(OfflinePaper):
    """Equation 4 and appendix F of arXiv:2006.04779, with SAC's losses of policy and temperature."""

    networks = {  # noqa: RUF012
        "actor": "pi",
        "critic": "qf",
        "alpha": "log_alpha",
        "alpha_prime": "lagrange.log_alpha_prime",
    }

    def losses(self, **changed: Any) -> dict[str, float]:
        """Of policy, critics, temperature and multiplier, with the weights of each changed."""
        weights, config = {**self.weights, **changed}, self.config
        action, logp = Paper.draw(self.weights, self.rows[Columns.NEXT_OBS], self.noise["next_policy_noise"])
        next_values = self.q_of(self.target, action, Columns.NEXT_OBS).min(0)
        if not config.deterministic_backup:
            next_values = next_values - np.exp(self.weights["log_alpha"]) * logp
        gap = self.gap(weights)
        multiplier = np.exp(self.weights["lagrange.log_alpha_prime"]) if config.lagrangian else 1.0
        threshold = 2.0 * config.lagrangian_thresh if config.lagrangian else 0.0
        conservative = config.min_q_weight * gap - threshold
        found = {
            "critic": 0.5 * self.squared_errors(weights, next_values) + multiplier * conservative,
            "actor": self._actor(weights),
            "alpha": float(weights["log_alpha"] * (self._entropy + 2.0)),
        }
        if config.lagrangian:
            excess = config.min_q_weight * self.gap(self.weights) - threshold
            found["alpha_prime"] = float(-0.5 * np.exp(weights["lagrange.log_alpha_prime"]) * excess)
        return found

    def gap(self, weights: Any) -> float:
        """`log sum exp Q - Q(s, a)` of both critics, added up."""
        n, obs = NUM_ACTIONS, self.rows[Columns.OBS]
        z = self.noise["sampled_actions_noise"]
        uniform = np.vectorize(erf)(z[:, :n] / np.sqrt(2.0))
        drawn = [(uniform, np.full(uniform.shape[:2], 2.0 * np.log(0.5)))]
        for seen, noise in ((obs, z[:, n : 2 * n]), (self.rows[Columns.NEXT_OBS], z[:, 2 * n :])):
            drawn.append(Paper.draw(self.weights, np.repeat(seen[:, None], n, 1), noise))
        actions, logp = (np.concatenate(each, 1) for each in zip(*drawn, strict=True))
        values = (self.q_of(weights, actions) - logp) / self.config.temperature
        largest = self.config.temperature * np.log(np.exp(values).sum(-1))
        return float((largest - self.q_of(weights, self.taken)).sum(0).mean())

    @property
    def _entropy(self) -> float:
        return float(-Paper.draw(self.weights, self.rows[Columns.OBS], self.noise["policy_noise"])[1].mean())

    def _actor(self, weights: Any) -> float:
        action, logp = Paper.draw(weights, self.rows[Columns.OBS], self.noise["policy_noise"])
        return float(
            (np.exp(self.weights["log_alpha"]) * logp - self.q_of(self.weights, action).min(0)).mean()
        )
