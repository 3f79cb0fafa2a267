"""stable-baselines3's SAC and TD3 for `sb3_numbers.py`: trained on made-up rows with made-up noise.

stable-baselines3 trains the policy on the critics of after their step, plugrad and RLlib on those of before. So one
case trains the critics alone, and one the policy and the temperature alone; the rest has a learning rate of 0.
"""

# mypy: disable-error-code="import-not-found"

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC, TD3

ROWS = 64
LR = 3e-3
SETTINGS = {"gamma": 0.98, "tau": 0.1}
TD3_SETTINGS = {"target_policy_noise": 0.3, "target_noise_clip": 0.4, "policy_delay": 1}
ACTIONS = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)


def make_sac(env: Any, hiddens: list[int], trained: str) -> Any:
    """A SAC of which only `trained` ("policy" or "critics") learns."""
    return _frozen(SAC("MlpPolicy", env, **_arguments(hiddens)), trained)


def make_td3(env: Any, hiddens: list[int], trained: str) -> Any:
    """A TD3 of which only `trained` ("policy" or "critics") learns."""
    return _frozen(TD3("MlpPolicy", env, **_arguments(hiddens), **TD3_SETTINGS), trained)


def learn_from_rows(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """One gradient step on a full buffer of made-up rows.

    The noise is that of a generator with the seed `noise_seed`, in the order in which plugrad draws it.
    """
    scaled = rng.uniform(-0.9, 0.9, (ROWS, 2)).astype(np.float32)
    rows: dict[str, Any] = {
        name: rng.standard_normal((ROWS, 3)).astype(np.float32) for name in ("obs", "new_obs")
    }
    rows |= {"actions": 2.0 * scaled, "rewards": 3.0 * rng.standard_normal(ROWS).astype(np.float32)}
    rows |= {"terminateds": rng.random(ROWS) < 0.1}
    draws = 2 if isinstance(model, SAC) else 1
    seed = int(rng.integers(2**32))
    noise = np.random.default_rng(seed).standard_normal((draws, ROWS, 2), np.float32)
    buffer = model.replay_buffer
    buffer.reset()
    for t in range(ROWS):
        of = {name: values[t : t + 1] for name, values in rows.items()}
        buffer.add(of["obs"], of["new_obs"], scaled[t : t + 1], of["rewards"], of["terminateds"], [{}])
    buffer.sample = lambda *_, **__: buffer._get_samples(np.arange(ROWS))
    with _normals(iter(torch.from_numpy(noise))):
        model.train(gradient_steps=1, batch_size=ROWS)
    found = {name.removeprefix("train/"): value for name, value in model.logger.name_to_value.items()}
    names = {"critic_loss": "qf_loss", "actor_loss": "policy_loss", "ent_coef_loss": "alpha_loss"}
    losses = {ours: found[theirs] for theirs, ours in names.items() if theirs in found}
    if isinstance(model, SAC):
        losses["qf_loss"] *= 2.0  # stable-baselines3 reports the half that it minimises
    return rows | {"noise_seed": seed} | losses


def weights(model: Any) -> dict[str, Any]:
    """The parameters by plugrad's names: those of both critics together, matrices as [inputs, outputs]."""
    state = {name: _matrix(each) for name, each in model.policy.state_dict().items() if "_target" not in name}
    found = {}
    for kind in ("weight", "bias"):
        for i in range(3):
            critics = [state[f"critic.qf{critic}.{2 * i}.{kind}"] for critic in range(2)]
            found[f"qf.{i}.{kind}"] = np.stack(critics)
        hidden = "actor.latent_pi" if isinstance(model, SAC) else "actor.mu"
        found |= {f"pi.{i}.{kind}": state[f"{hidden}.{2 * i}.{kind}"] for i in range(2)}
        heads = ["actor.mu", "actor.log_std"] if isinstance(model, SAC) else ["actor.mu.4"]
        found[f"pi.out.{kind}"] = np.concatenate([state[f"{head}.{kind}"] for head in heads], axis=-1)
    if isinstance(model, SAC):
        found["log_alpha"] = model.log_ent_coef.detach().numpy()[0].copy()
    return found


def _arguments(hiddens: list[int]) -> dict[str, Any]:
    networks = {"net_arch": hiddens}
    common = {"buffer_size": ROWS, "learning_rate": LR, "seed": 3, "device": "cpu"}
    return {**SETTINGS, **common, "policy_kwargs": networks}


def _frozen(model: Any, trained: str) -> Any:
    model._update_learning_rate = lambda optimizers: None
    idle = model.critic if trained == "policy" else model.actor
    optimizers = [idle.optimizer]
    if trained == "critics" and isinstance(model, SAC):
        optimizers.append(model.ent_coef_optimizer)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
    return model


def _matrix(values: Any) -> Any:
    return values.numpy().T.copy() if values.ndim == 2 else values.numpy().copy()


@contextmanager
def _normals(noise: Iterator[Any]) -> Iterator[None]:
    """Standard normals of SAC's distribution and of TD3's target policy are the next of `noise`."""
    normal: Any = torch.distributions.normal
    tensor: Any = torch.Tensor
    before: tuple[Callable[..., Any], Callable[..., Any]] = (normal._standard_normal, tensor.normal_)
    normal._standard_normal = lambda *_, **__: next(noise)
    tensor.normal_ = lambda values, mean, std: values.copy_(mean + std * next(noise))
    try:
        yield
    finally:
        normal._standard_normal, tensor.normal_ = before
