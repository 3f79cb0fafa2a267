"""Writes checkpoints of this version, and beside each what a learner did that went on from there.

`python tests/data/checkpoints/make.py` once for each release, before it; what is there already stays as it is. Every
later version must read them all (`tests/golden.py`): a file that has to be written anew is a promise that was broken.
"""

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from learning import OBSERVATIONS, ppo_batch, ppo_config, quick, with_modules  # noqa: E402

from plugrad import DEFAULT_MODULE_ID, Columns, Learner  # noqa: E402
from plugrad.algorithm import Algorithm  # noqa: E402
from plugrad.checkpoint import save_checkpoint  # noqa: E402
from plugrad_dqn import DQNConfig  # noqa: E402

P = DEFAULT_MODULE_ID
SETTINGS = {
    "hiddens": (3,),
    "minibatch_size": 8,
    "num_epochs": 2,
    "shuffle_batch_per_epoch": True,
    "use_kl_loss": True,
    "grad_clip": 0.5,
    "entropy_coeff": [[0, 0.01], [200, 0.0]],
    "lr": [[0, 0.01], [200, 0.001]],
    "seed": 11,
}
LSTM = {
    "fcnet_hiddens": [4],
    "use_lstm": True,
    "lstm_cell_size": 4,
    "max_seq_len": 4,
    "vf_share_layers": True,
}
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
CONFIGS = {
    "ppo-torch": lambda: ppo_config("torch", **SETTINGS),
    "ppo-tf2": lambda: with_modules(
        ppo_config("tf2", **SETTINGS).environment(action_space=BOX), "left", "right"
    ),
    "lstm-torch": lambda: ppo_config("torch", **SETTINGS).rl_module(model_config=LSTM),
}


def make_batch(learner: Learner, seed: int) -> dict[str, dict[str, object]]:
    """16 rows for each module; for a stateful one four sequences."""
    return {
        module_id: _sequences(learner, module_id, seed + n) if module.is_stateful else _rows(module, seed + n)
        for n, (module_id, module) in enumerate(learner.module.items())
    }


def _rows(module, seed):
    columns = ppo_batch(seed=seed)
    if isinstance(module.action_space, gym.spaces.Box):
        rng = np.random.default_rng(seed)
        columns[Columns.ACTIONS] = rng.normal(size=(16, 2)).astype(np.float32)
        columns[Columns.ACTION_DIST_INPUTS] = rng.normal(scale=0.2, size=(16, 4)).astype(np.float32)
    return columns


def _sequences(learner, module_id, seed):
    columns = {name: np.reshape(rows, (4, 4, *rows.shape[1:])) for name, rows in ppo_batch(seed=seed).items()}
    states = learner.module[module_id].get_initial_state()
    rng = np.random.default_rng(seed)
    columns[Columns.STATE_IN] = {
        name: rng.normal(size=(4, *np.shape(state))).astype(np.float32) for name, state in states.items()
    }
    return {**columns, Columns.SEQ_LENS: np.array([4, 3, 4, 1])}


def make_learner(name: str, folder: Path) -> dict[str, object]:
    """Train and save; go on: act, then learn once more."""
    learner = quick(CONFIGS[name]()).build_learner()
    for n in range(3):
        learner.update(make_batch(learner, 10 * n), timesteps={"num_env_steps_sampled_lifetime": 16 * n})
    learner.save_to_path(folder)
    observations = np.random.default_rng(5).normal(size=(8, *OBSERVATIONS.shape)).astype(np.float32)
    acted = {
        module_id: learner.compute_actions(observations, module_id=module_id) for module_id in learner.module
    }
    batch, timesteps = make_batch(learner, 100), {"num_env_steps_sampled_lifetime": 100}
    learner.update(batch, timesteps=timesteps)
    state = learner.get_state(["rl_module", "coefficients", "counters", "streams"])
    return {
        "observations": observations,
        "acted": acted,
        "batch": batch,
        "timesteps": timesteps,
        "state": state,
    }


def make_off_policy(folder: Path) -> dict[str, object]:
    """Train from a replay buffer of which the first rows are overwritten; save and go on for one iteration more."""
    settings = {"train_batch_size": 16, "minibatch_size": 8, "lr": 0.01, "n_step": 2}
    replay = {"type": "prioritized", "capacity": 40}
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .framework("torch")
        .rl_module(model_config={"fcnet_hiddens": [3]})
        .training(**settings, num_steps_sampled_before_learning_starts=16, replay_buffer_config=replay)
        .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=4)
        .debugging(seed=11)
    )
    return _go_on(quick(config).build_algo(), 8, folder)


def make_algorithm(folder: Path) -> dict[str, object]:
    """Train on CartPole and save in the middle of episodes; go on for one iteration more."""
    config = ppo_config("torch", **SETTINGS, train_batch_size=32).environment(
        "CartPole-v1", observation_space=None, action_space=None
    )
    config = quick(config).env_runners(num_envs_per_env_runner=2, normalize_observations=True)
    return _go_on(config.build_algo(), 2, folder)


def _go_on(algorithm: Algorithm, iterations: int, folder: Path) -> dict[str, object]:
    """Train, save, and train for one iteration more."""
    for _ in range(iterations):
        algorithm.train()
    algorithm.save_to_path(folder)
    algorithm.train()
    return {"weights": algorithm.learner_group.get_weights(), "training_iteration": algorithm.iteration}


def main() -> None:
    folder = HERE / version("plugrad")
    makers = {name: partial(make_learner, name) for name in CONFIGS} | {
        "algorithm-torch": make_algorithm,
        "dqn-torch": make_off_policy,
    }
    for name, make in makers.items():
        if (folder / name).exists():
            print(f"{folder / name} is there already and stays")
            continue
        expected = make(folder / name)
        save_checkpoint(folder / name / "expected", expected, metadata={"what": "was done from here on"})
        for lock in folder.rglob("*.lock"):
            lock.unlink()


if __name__ == "__main__":
    main()
