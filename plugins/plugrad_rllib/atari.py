"""Atari games as RLlib wraps them."""

from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from plugrad.sampling.atari import preprocess_atari
from plugrad.sampling.environments import create_env, is_multi_agent


def is_atari(config: Any) -> bool:
    """Whether the environment of a config is a game of the Arcade Learning Environment: one is made and closed.

    Raises:
        ConfigError: it cannot be made.
    """
    if config.env is None or is_multi_agent(config):
        return False
    with closing(create_env(config.env, config.env_config)) as env:
        return hasattr(env.unwrapped, "ale")


def wrap_atari_for_new_api_stack(
    env: gym.Env[Any, Any],
    dim: int = 64,
    frameskip: int = 4,
    framestack: int | None = None,
    grayscale: bool = True,
) -> gym.Env[Any, Any]:
    """RLlib's preprocessing of Atari games; the setting `env_runners(atari=True)` is the standard one.

    A lost life ends what is learned from, as with RLlib, and the game goes on; reported returns are of whole games.

    Args:
        env: a game that skips no frames, such as `gym.make("ALE/Pong-v5", frameskip=1)`.
        dim: height and width of an image.
        frameskip: for how many frames an action is repeated.
        framestack: how many of the last images are one observation; None: one.
        grayscale: images are grey, else coloured.

    Returns:
        A game with observations float32 `[dim, dim, channels]` from -1 to 1.

    Raises:
        ConfigError: it is no Atari game, or skips frames itself.
    """
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    changes = {
        "screen_size": dim,
        "frame_skip": frameskip,
        "grayscale_obs": grayscale,
        "grayscale_newaxis": True,
    }
    game = preprocess_atari(gym.wrappers.TimeLimit(env, 108_000), changes, name)
    if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        game = _FiresFirst(game)
    if framestack:
        game = gym.wrappers.FrameStackObservation(game, framestack)
    shape = game.observation_space.shape or ()
    channels = shape[-1] * (framestack or 1)
    space = Box(-1.0, 1.0, (dim, dim, channels), np.float32)
    return gym.wrappers.TransformObservation(game, _scaled if not framestack else _scaled_stack, space)


def _scaled(image: Any) -> Any:
    return image.astype(np.float32) / 128.0 - 1.0


def _scaled_stack(images: Any) -> Any:
    return _scaled(np.concatenate(list(images), axis=-1))


class _FiresFirst(gym.Wrapper[Any, Any, Any, Any]):
    """Begins a game that waits for its first shot."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env`."""
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)
