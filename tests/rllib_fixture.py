"""Reads what `benchmarks/rllib_numbers.py` wrote into `tests/data/rllib`, and says the same in plugrad's words.

RLlib's parameters are torch's: (out, in), convolutions (out, in, kernel, kernel), gates of an LSTM in the order input,
forget, candidate, output.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from learning import quick_mode

from plugrad import DEFAULT_MODULE_ID, Columns, Learner
from plugrad.episodes import SingleAgentEpisode
from plugrad_bc import BCConfig, MARWILConfig
from plugrad_dqn import DQNConfig
from plugrad_impala import APPOConfig, IMPALAConfig
from plugrad_ppo import PPOConfig

FOLDER = Path(__file__).parent / "data" / "rllib"
CASES: dict[str, dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text())["cases"]
DEFAULTS: dict[str, dict[str, Any]] = json.loads((FOLDER / "defaults.json").read_text())
CONFIGS = {
    "PPO": PPOConfig,
    "DQN": DQNConfig,
    "BC": BCConfig,
    "MARWIL": MARWILConfig,
    "IMPALA": IMPALAConfig,
    "APPO": APPOConfig,
}
LEFT_OUT = {"num_atoms", "noisy", "td_error_loss_fn"}
"""What plugrad's DQN always is: no distribution, no noise in the layers, the Huber loss."""


@cache
def arrays(name: str) -> dict[str, np.ndarray]:
    """All arrays of a case, by path."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def config(name: str, backend: str, **framework: Any) -> Any:
    """The case as plugrad's config."""
    case = CASES[name]
    training = {key: value for key, value in case["training"].items() if key not in LEFT_OUT}
    cut = {"minibatch_size": None, "num_epochs": 1, "shuffle_batch_per_epoch": False}
    return (
        CONFIGS[case["algorithm"]]()
        .framework(backend, **framework)
        .environment(observation_space=space(case["observations"]), action_space=space(case["actions"]))
        .rl_module(model_config=model_config(case["model"]))
        .training(**{"grad_clip": None, **training, **cut, **case["update"]})
        .debugging(seed=0)
    )


def model_config(model: dict[str, Any]) -> dict[str, Any]:
    """RLlib's networks have no dense layers on top of convolutions; plugrad's kernels never go beyond the image."""
    if "conv_filters" not in model:
        return model
    filters = [list(each[:3]) for each in model["conv_filters"]]
    return {**model, "conv_filters": filters, "fcnet_hiddens": []}


def space(described: dict[str, Any]) -> gym.Space:
    if described["type"] == "Box":
        return gym.spaces.Box(-np.inf, np.inf, tuple(described["shape"]), np.float32)
    if described["type"] == "Discrete":
        return gym.spaces.Discrete(described["n"])
    return gym.spaces.MultiDiscrete(described["nvec"])


def batch(name: str) -> dict[str, Any]:
    """The case's batch with plugrad's columns."""
    columns: dict[str, Any] = {}
    for path, values in arrays(name).items():
        if path.startswith("batch/state_in/"):
            names = path.removeprefix("batch/state_in/").split("/")
            key = names[-1] if len(names) == 1 else f"{'pi' if names[0] == 'actor' else 'vf'}_{names[-1]}"
            columns.setdefault(Columns.STATE_IN, {})[key] = values[:, 0]  # one layer
        elif path.startswith("batch/"):
            columns[path.removeprefix("batch/")] = values
    return columns


def tensors(name: str, folder: str) -> dict[str, np.ndarray]:
    """Arrays of RLlib's parameters by plugrad's names: `weights/20` or `gradients`."""
    found = {}
    for path, values in arrays(name).items():
        if path.startswith(f"{folder}/"):
            theirs = path.removeprefix(f"{folder}/")
            if not theirs.endswith("bias_hh_l0"):  # held at zero
                ours, values = translated(theirs, values)
                found[ours] = values
    return found


def num_held_at_zero(name: str) -> int:
    """How many of RLlib's parameters are the second biases of its LSTMs: they are one with the first here."""
    return sum(
        values.size
        for path, values in arrays(name).items()
        if path.startswith("weights/0/") and path.endswith("bias_hh_l0")
    )


HEADS = {"pi": "pi", "_pi_head": "pi", "vf": "vf"}
DUELING_HEADS = {"af": "advantage", "vf": "value"}
ENCODERS = {"actor_encoder": "pi", "critic_encoder": "vf", "encoder": "encoder"}
LSTM = {"weight_ih_l0": "input_weight", "weight_hh_l0": "recurrent_weight", "bias_ih_l0": "bias"}


def translated(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """One parameter of RLlib under plugrad's name and in its layout."""
    parts = name.split(".")
    if "log_std" in parts:
        return "pi.log_std", values
    if parts[0] in ("encoder", "_encoder"):
        return _of_encoder(parts, values)
    return f"{parts[0]}.out.{parts[-1]}", _dense(values)


def _of_encoder(parts: list[str], values: np.ndarray) -> tuple[str, np.ndarray]:
    encoder = ENCODERS.get(parts[1], parts[0])
    if "lstm" in parts:
        return f"{encoder}.lstm.{LSTM[parts[-1]]}", _gates(values)
    kind, number, last = parts[-3:]
    layer = int(number) // 2
    if kind == "cnn":
        return f"{encoder}.conv.{layer}.{last}", values.transpose(2, 3, 1, 0) if last == "weight" else values
    return f"{encoder}.{layer}.{last}", _dense(values)


def _dense(values: np.ndarray) -> np.ndarray:
    return values.T


def _gates(values: np.ndarray) -> np.ndarray:
    i, f, candidate, o = np.split(values, 4)
    return np.concatenate([i, f, o, candidate]).T


def names_of(name: str, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with the names of the networks of the case's algorithm."""
    case = CASES[name]
    if case["algorithm"] == "DQN":
        heads = DUELING_HEADS if case["training"]["dueling"] else {"af": "q"}
        return {_renamed(each, {**heads, "_encoder": "encoder"}): values for each, values in found.items()}
    if case["algorithm"] == "BC":
        return {
            _renamed(each, {"_encoder": "pi", "_pi_head": "pi"}): values for each, values in found.items()
        }
    return found


def _renamed(name: str, heads: dict[str, str]) -> str:
    first, rest = name.split(".", 1)
    return f"{heads.get(first, first)}.{rest}"


def build(name: str, backend: str, *, compile: str = "", **training: Any) -> Learner:
    """A learner with RLlib's first weights."""
    learner = (
        config(name, backend, compile=compile or quick_mode(backend)).training(**training).build_learner()
    )
    set_weights(name, learner)
    return learner


def set_weights(name: str, learner: Learner) -> None:
    """Of the module, and of its target network where it has one."""
    first = {DEFAULT_MODULE_ID: weights(name, 0)}
    targets = {"targets": first} if learner.targets else {}
    learner.set_state({"rl_module": first, **targets})


def weights(name: str, updates: int) -> dict[str, np.ndarray]:
    """RLlib's weights after so many updates, as plugrad's learners have them."""
    return names_of(name, tensors(name, f"weights/{updates}"))


def gradients(name: str) -> dict[str, np.ndarray]:
    """RLlib's clipped gradients of the first minibatch."""
    return names_of(name, tensors(name, "gradients"))


def episodes() -> list[SingleAgentEpisode]:
    """Those of which RLlib computed `advantages.npz`: one terminated, one truncated, one that goes on."""
    found = arrays("advantages")
    return [
        SingleAgentEpisode(
            **{key: found[f"episodes/{n}/{key}"] for key in ("observations", "actions", "rewards")},
            terminated=found["terminated"][n],
            truncated=found["truncated"][n],
            extra_model_outputs={
                Columns.ACTION_LOGP: np.full(length, -0.7, np.float32),
                Columns.ACTION_DIST_INPUTS: np.zeros((length, 2), np.float32),
            },
        )
        for n, length in enumerate(found["lengths"])
    ]
