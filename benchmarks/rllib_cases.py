"""The cases that `rllib_numbers.py` runs in RLlib, by name, each with settings, networks, spaces and a batch.

Settings and keys of `model_config` are those of RLlib 2.60; `tests/rllib_fixture.py` has the same with plugrad's names.
Networks and batches are tiny, so that all files together have a few hundred kB.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Batch = dict[str, Array]

UPDATES = 20
STEPS_PER_UPDATE = 100
"""What `num_env_steps_sampled_lifetime` grows by between two updates: schedules and target networks go by it."""
BOX = {"type": "Box", "shape": [3]}
IMAGE = {"type": "Box", "shape": [6, 6, 2]}
TWO = {"type": "Discrete", "n": 2}
GAUSSIAN = {"type": "Box", "shape": [2]}
SEVERAL = {"type": "MultiDiscrete", "nvec": [2, 3]}


@dataclass(frozen=True)
class Case:
    """A learner, and the batch and arguments of its updates.

    Args:
        algorithm: "PPO", "DQN", "BC" or "MARWIL".
        training: arguments of RLlib's `.training(...)`, over `BASE`.
        model: keys of RLlib's `DefaultModelConfig`, over `MODEL`.
        actions: the action space.
        observations: the observation space.
        update: arguments of `Learner.update`.
        rows: of the batch; of sequences: how many there are.
        lengths: of the sequences, up to `TIME`; empty: rows.
    """

    algorithm: str = "PPO"
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    actions: dict[str, Any] = field(default_factory=lambda: TWO)
    observations: dict[str, Any] = field(default_factory=lambda: BOX)
    update: dict[str, Any] = field(default_factory=dict)
    rows: int = 24
    lengths: tuple[int, ...] = ()


TIME = 5
MODEL = {"fcnet_hiddens": [4], "fcnet_activation": "tanh", "vf_share_layers": False, "free_log_std": False}
BASE: dict[str, dict[str, Any]] = {
    "PPO": {
        "lr": 0.01,
        "clip_param": 0.2,
        "vf_clip_param": 1000.0,
        "vf_loss_coeff": 0.5,
        "entropy_coeff": 0.0,
        "use_kl_loss": False,
    },
    "DQN": {
        "lr": 0.01,
        "gamma": 0.9,
        "target_network_update_freq": 500,
        "tau": 1.0,
        "double_q": True,
        "dueling": True,
        "num_atoms": 1,
        "noisy": False,
        "n_step": 1,
        "td_error_loss_fn": "huber",
        "grad_clip": None,
    },
    "BC": {"lr": 0.01},
    "MARWIL": {
        "lr": 0.01,
        "beta": 1.0,
        "vf_coeff": 0.7,
        "moving_average_sqd_adv_norm_start": 4.0,
        "moving_average_sqd_adv_norm_update_rate": 0.0,
    },
}
MINIBATCHES = {"minibatch_size": 8, "num_epochs": 2, "shuffle_batch_per_epoch": False}
SCHEDULE = [[0, 0.02], [1500, 0.005]]
CONVOLUTIONS = {
    "conv_filters": [[3, 3, 1, "valid"], [4, 2, 2, "valid"]],
    "conv_activation": "relu",
}
CASES: dict[str, Case] = {
    "ppo": Case(),
    "ppo_kl": Case(training={"use_kl_loss": True, "kl_coeff": 0.3, "kl_target": 0.02}),
    "ppo_value_clip": Case(training={"vf_clip_param": 0.5}),
    "ppo_entropy": Case(training={"entropy_coeff": 0.05}),
    "ppo_clip_by_value": Case(training={"grad_clip": 0.02, "grad_clip_by": "value"}),
    "ppo_clip_by_norm": Case(training={"grad_clip": 0.05, "grad_clip_by": "norm"}),
    "ppo_clip_by_global_norm": Case(training={"grad_clip": 0.05, "grad_clip_by": "global_norm"}),
    "ppo_shared_layers": Case(model={"vf_share_layers": True}),
    "ppo_gaussian": Case(actions=GAUSSIAN),
    "ppo_gaussian_free_log_std": Case(actions=GAUSSIAN, model={"free_log_std": True}),
    "ppo_multi_discrete": Case(actions=SEVERAL, training={"entropy_coeff": 0.01}),
    "ppo_minibatches": Case(update=MINIBATCHES),
    "ppo_schedules": Case(training={"lr": SCHEDULE, "entropy_coeff": [[0, 0.1], [1000, 0.0]]}),
    "ppo_lstm": Case(model={"use_lstm": True, "lstm_cell_size": 3}, rows=4, lengths=(5, 3, 5, 1)),
    "ppo_lstm_shared_layers": Case(
        model={"use_lstm": True, "lstm_cell_size": 3, "vf_share_layers": True}, rows=3, lengths=(2, 5, 4)
    ),
    "ppo_convolutions": Case(observations=IMAGE, model=CONVOLUTIONS, rows=6),
    "dqn": Case("DQN"),
    "dqn_huber_weights_n_step": Case("DQN", training={"n_step": 3, "grad_clip": 0.5}),
    "dqn_single_not_dueling": Case("DQN", training={"double_q": False, "dueling": False, "tau": 0.5}),
    "dqn_minibatches": Case("DQN", update=MINIBATCHES),
    "bc": Case("BC"),
    "bc_gaussian": Case("BC", actions=GAUSSIAN),
    "marwil": Case("MARWIL"),
    "marwil_gaussian": Case("MARWIL", actions=GAUSSIAN),
    "marwil_minibatches": Case("MARWIL", update=MINIBATCHES),
    "marwil_moving_average": Case("MARWIL", training={"moving_average_sqd_adv_norm_update_rate": 0.1}),
}


def make_batch(case: Case, seed: int) -> Batch:
    """Make the columns that the loss of the case's algorithm reads, [rows, ...] or [sequences, TIME, ...]."""
    rng = np.random.default_rng(seed)
    shape = (case.rows, TIME) if case.lengths else (case.rows,)

    def normal(*inner: int, scale: float = 1.0) -> Array:
        return (scale * rng.standard_normal((*shape, *inner))).astype(np.float32)

    batch = {"obs": normal(*case.observations["shape"]), "actions": _actions(case, shape, rng)}
    if case.algorithm == "PPO":
        inputs = normal(_num_inputs(case.actions), scale=0.3)
        batch |= {
            "action_dist_inputs": inputs,
            "action_logp": log_probability(case.actions, inputs, batch["actions"]),
        }
        batch |= {"advantages": normal(), "value_targets": normal()}
    if case.algorithm == "DQN":
        batch |= {"new_obs": normal(*case.observations["shape"]), "rewards": normal()}
        batch |= {
            "terminateds": rng.random(shape) < 0.2,
            "weights": (0.5 + rng.random(shape)).astype(np.float32),
        }
        batch["n_step"] = rng.integers(1, case.training.get("n_step", 1) + 1, size=shape).astype(np.float32)
    if case.algorithm == "MARWIL":
        batch["value_targets"] = normal(scale=3.0)
    return batch | _of_sequences(case, rng)


def _of_sequences(case: Case, rng: np.random.Generator) -> Batch:
    if not case.lengths:
        return {}
    lengths, cells = np.array(case.lengths), case.model["lstm_cell_size"]
    states = {} if case.model.get("vf_share_layers") else {"actor": None, "critic": None}
    names = [f"{each}/{key}" for each in states for key in "hc"] or ["h", "c"]
    columns: Batch = {f"state_in/{name}": _small(rng, (case.rows, 1, cells)) for name in names}
    return columns | {"seq_lens": lengths, "loss_mask": np.arange(TIME) < lengths[:, None]}


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return (0.3 * rng.standard_normal(shape)).astype(np.float32)


def _actions(case: Case, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if case.actions["type"] == "Discrete":
        return rng.integers(case.actions["n"], size=shape)
    if case.actions["type"] == "MultiDiscrete":
        return np.stack([rng.integers(n, size=shape) for n in case.actions["nvec"]], -1)
    return rng.standard_normal((*shape, *case.actions["shape"])).astype(np.float32)


def _num_inputs(space: dict[str, Any]) -> int:
    if space["type"] == "Discrete":
        return int(space["n"])
    return sum(space["nvec"]) if space["type"] == "MultiDiscrete" else 2 * int(space["shape"][0])


def log_probability(space: dict[str, Any], inputs: Array, actions: Array) -> Array:
    """Log-probability of actions under the distribution with these inputs."""
    if space["type"] == "Discrete":
        return _categorical(inputs, actions)
    if space["type"] == "MultiDiscrete":
        parts = np.split(inputs, np.cumsum(space["nvec"])[:-1], axis=-1)
        return np.sum([_categorical(part, actions[..., n]) for n, part in enumerate(parts)], 0).astype(
            np.float32
        )
    mean, log_std = np.split(inputs, 2, axis=-1)
    terms = -0.5 * ((actions - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return terms.sum(-1).astype(np.float32)


def _categorical(logits: Array, actions: Array) -> Array:
    normed = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen: Array = np.take_along_axis(normed, actions[..., None], -1)[..., 0].astype(np.float32)
    return chosen
