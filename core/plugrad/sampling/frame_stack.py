"""The setting `frame_stack`: an observation is the last frames of an environment."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space


def stack_frames(env: gym.Env[Any, Any], frame_stack: int) -> gym.Env[Any, Any]:
    """Stack the last frames of an environment, by `gymnasium.wrappers.FrameStackObservation`.

    At the start of an episode the first frame is repeated.

    Args:
        env: of any observation space that can be batched, also Dict and Tuple.
        frame_stack: number of frames, >= 1.

    Returns:
        `env` itself for one frame.
    """
    if frame_stack == 1:
        return env
    return gym.wrappers.FrameStackObservation(_NewObservations(env), frame_stack)


def stacked_space(space: Space[Any], frame_stack: int) -> Space[Any]:
    """The space of stacked frames.

    Args:
        space: of one frame.
        frame_stack: number of frames, >= 1.

    Returns:
        A space whose arrays have a first axis of this length; `space` itself for one frame.
    """
    return space if frame_stack == 1 else batch_space(space, frame_stack)


class _NewObservations(gym.ObservationWrapper[Any, Any, Any]):
    """Copies observations: an environment may write each into the array of the one before."""

    def observation(self, observation: Any) -> Any:
        return deepcopy(observation)
