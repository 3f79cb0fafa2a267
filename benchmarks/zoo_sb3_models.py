"""The models of stable-baselines3 with the settings of the zoo; what they do not name is its default."""

# mypy: disable-error-code="import-not-found, misc"

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from sb3_contrib import QRDQN, TQC, RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from torch import nn
from zoo_cell import Cell
from zoo_cells import SECONDS_RANDOM_STEPS
from zoo_environments import ATARI_FRAMES, make_atari_game
from zoo_settings import DQNSettings, OffPolicySettings, PPOSettings, QRDQNSettings

OFF_POLICY = {"sac": SAC, "td3": TD3, "tqc": TQC}


def make_model(cell: Cell, seed: int, *, only_seconds: bool) -> Any:
    """Make the model of a cell.

    Args:
        cell: what is trained.
        seed: of the run.
        only_seconds: learn early, whatever the cell says.

    Returns:
        A model of stable-baselines3 with its environments.
    """
    options = cell.options
    if isinstance(options, PPOSettings):
        return _make_ppo(cell, options, seed)
    if isinstance(options, DQNSettings):
        return _make_dqn(cell, options, seed)
    return _make_off_policy(
        cell, options, seed, SECONDS_RANDOM_STEPS if only_seconds else options.random_steps
    )


def _make_off_policy(cell: Cell, options: OffPolicySettings, seed: int, random_steps: int) -> Any:
    env = gym.make(cell.env)
    more = {} if options.lr is None else {"learning_rate": _schedule(options.lr, cell.steps)}
    if cell.algorithm == "td3":
        shape = env.action_space.shape or ()
        more["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, options.td3_action_noise))
    return OFF_POLICY[cell.algorithm](
        "MlpPolicy",
        env,
        batch_size=options.batch_size,
        buffer_size=options.capacity,
        gamma=options.gamma,
        tau=options.tau,
        learning_starts=random_steps,
        train_freq=options.steps_per_update,
        gradient_steps=options.steps_per_update,
        policy_kwargs={"net_arch": options.hiddens},
        seed=seed,
        device="cpu",
        **more,
    )


def _make_dqn(cell: Cell, options: DQNSettings, seed: int) -> Any:
    model, networks = DQN, {"net_arch": options.hiddens}
    if isinstance(options, QRDQNSettings):
        model, networks = QRDQN, networks | {"n_quantiles": options.num_quantiles}
    return model(
        "MlpPolicy",
        gym.make(cell.env),
        learning_rate=options.lr,
        batch_size=options.batch_size,
        gamma=options.gamma,
        buffer_size=options.capacity,
        learning_starts=options.learning_starts,
        train_freq=options.steps_per_update,
        gradient_steps=options.gradient_steps,
        target_update_interval=options.target_every,
        exploration_fraction=options.epsilon_steps / cell.steps,
        exploration_final_eps=options.epsilon,
        policy_kwargs=networks,
        seed=seed,
        device="cpu",
    )


def _make_ppo(cell: Cell, options: PPOSettings, seed: int) -> Any:
    policy = "CnnPolicy" if options.atari else "MlpLstmPolicy" if options.lstm else "MlpPolicy"
    return (RecurrentPPO if options.lstm else PPO)(
        policy,
        _make_envs(cell, options),
        n_steps=options.num_steps,
        batch_size=options.batch_size,
        n_epochs=options.num_epochs,
        learning_rate=_schedule(options.lr, cell.steps),
        clip_range=_schedule(options.clip_param, cell.steps),
        gamma=options.gamma,
        gae_lambda=options.lambda_,
        ent_coef=options.entropy_coeff,
        vf_coef=options.vf_loss_coeff,
        max_grad_norm=options.grad_clip,
        policy_kwargs=_networks(options),
        seed=seed,
        device="cpu",
    )


def _make_envs(cell: Cell, options: PPOSettings) -> Any:
    envs: Any = DummyVecEnv([partial(_make_env, cell)] * options.num_envs)
    if options.atari:
        return VecFrameStack(envs, ATARI_FRAMES)
    return VecNormalize(envs, gamma=options.gamma) if options.normalize else envs


def _make_env(cell: Cell) -> Any:
    return AtariWrapper(Monitor(make_atari_game(cell))) if cell.is_atari else Monitor(gym.make(cell.env))


def _networks(options: PPOSettings) -> dict[str, Any]:
    if options.atari:
        (features,) = options.hiddens
        return {"features_extractor_kwargs": {"features_dim": features}, "net_arch": []}
    # Its layers stand behind the LSTM, plugrad's before it.
    memory = {"lstm_hidden_size": options.lstm} if options.lstm else {}
    return memory | {
        "net_arch": {"pi": options.hiddens, "vf": options.hiddens},
        "activation_fn": {"relu": nn.ReLU, "tanh": nn.Tanh}[options.activation],
        "log_std_init": options.log_std_init,
        "ortho_init": options.ortho_init,
    }


def _schedule(value: Any, steps: int) -> Any:
    """A schedule as stable-baselines3 takes it: a float, or a function of the share of steps that remain."""
    if isinstance(value, float):
        return value
    at, values = np.asarray(value, dtype=float).T
    return lambda remaining: float(np.interp((1.0 - remaining) * steps, at, values))
