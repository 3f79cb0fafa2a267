"""The setting `atari`: the preprocessing of Atari games that is standard in the field.

Sources: Mnih et al. (2015), "Human-level control through deep reinforcement learning", doi:10.1038/nature14236,
Methods; Machado et al. (2018), "Revisiting the Arcade Learning Environment", arXiv:1709.06009.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing

from plugrad.errors import ConfigError, MissingFrameworkError

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config

LIFE_LOST: Final = "plugrad_life_lost"
"""Where `info` says whether a life was lost; a name that no environment has by chance, as `life_lost` might be."""
FRAMES: Final = 4
"""How many frames one observation has, unless `frame_stack` says otherwise."""
FILTERS: Final = "nature"
"""The convolutions of networks for such frames, unless `conv_filters` says otherwise: those of Mnih et al. (2015)."""
FRAMESKIP: Final = MappingProxyType({"frameskip": 1})
"""Arguments that games are made with, since the preprocessing itself skips frames."""
STANDARD: Final = MappingProxyType({"terminal_on_life_loss": True})
"""Where the standard differs from the defaults of `gymnasium.wrappers.AtariPreprocessing`."""


def is_atari(config: "Config") -> bool:
    """Whether the settings ask for the preprocessing of Atari games."""
    return config.atari is not False


def preprocess_atari(env: gym.Env[Any, Any], changes: Mapping[str, Any], name: str) -> gym.Env[Any, Any]:
    """Put the standard preprocessing around a game, by `gymnasium.wrappers.AtariPreprocessing`.

    It starts with up to 30 steps that do nothing, repeats each action for 4 frames, takes the maximum of the last two,
    and makes it grey and 84x84. Where a life is lost, `info["plugrad_life_lost"]` says so; the game goes on.

    Args:
        env: a game that skips no frames.
        changes: keyword arguments of `AtariPreprocessing` in place of the standard ones. Without
            `terminal_on_life_loss` lost lives are not reported.
        name: of the environment, for errors.

    Returns:
        A game with observations uint8 [84, 84].

    Raises:
        ConfigError: it is no Atari game, or skips frames itself; or an argument has an unknown name or value.
        MissingFrameworkError: opencv is not installed.
    """
    settings = {**STANDARD, **changes}
    marks_lives = settings.pop("terminal_on_life_loss")
    try:
        game = AtariPreprocessing(env, **settings)
    except gym.error.DependencyNotInstalled as error:
        raise MissingFrameworkError(
            'atari=True needs opencv: pip install "plugrad[atari]"', requires="cv2"
        ) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"atari={dict(changes) or True}: {name} cannot be preprocessed as an Atari game: {error}. Expected: a "
            "game of the Arcade Learning Environment without a frame skip of its own, such as 'ALE/Pong-v5'",
            field="atari",
            env=name,
        ) from error
    return _LifeLosses(game) if marks_lives else game


class _LifeLosses(gym.Wrapper[Any, Any, Any, Any]):
    """Says in `info` in which steps a life is lost and the game goes on."""

    def reset(self, **settings: Any) -> Any:
        observation, info = self.env.reset(**settings)
        self._lives = info["lives"]
        return observation, {**info, LIFE_LOST: False}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        # Some games show 0 lives for a few frames before they end.
        lost = 0 < info["lives"] < self._lives and not (terminated or truncated)
        self._lives = info["lives"]
        return observation, reward, terminated, truncated, {**info, LIFE_LOST: lost}
