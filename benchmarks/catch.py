"""Catch: a ball falls, and a paddle must catch it. An environment with image observations, for benchmarks and tests.

    plugrad train ppo catch:Catch        (from this folder)

Similar to the game of Mnih et al. 2014, "Recurrent Models of Visual Attention", section 4.2, arXiv:1406.6247, on a
board of 10 by 10 shown as an image of 40 by 40.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SCALE = 4
"""Pixels per field, in each direction."""
STAY = 1


class Catch(gym.Env[NDArray[np.uint8], Any]):
    """A ball falls from a random place in the top row, one row a step. A paddle of two fields moves in the bottom row.

    Observations are uint8 [40, 40, 1]: 255 for ball and paddle, 0 elsewhere. Actions: 0 left, 1 stay, 2 right. The
    reward is 0 until the ball is down, then 1 if the paddle catches it, else -1. A random policy gets about -0.6.

    Args:
        board: fields in each direction; an episode has one step less.
    """

    def __init__(self, board: int = 10) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (board * SCALE, board * SCALE, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self._board = board

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Place the ball at random in the top row, and the paddle at random in the bottom row."""
        super().reset(seed=seed)
        self._row = 0
        self._column = int(self.np_random.integers(self._board))
        self._paddle = int(self.np_random.integers(self._board - 1))
        return self._image(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move the paddle by one field, and the ball down by one."""
        self._paddle = min(max(self._paddle + int(action) - STAY, 0), self._board - 2)
        self._row += 1
        done = self._row == self._board - 1
        caught = self._column in (self._paddle, self._paddle + 1)
        reward = (1.0 if caught else -1.0) if done else 0.0
        return self._image(), reward, done, False, {}

    def _image(self) -> NDArray[np.uint8]:
        board = np.zeros((self._board, self._board), np.uint8)
        board[self._row, self._column] = 255
        board[-1, self._paddle : self._paddle + 2] = 255
        return board.repeat(SCALE, 0).repeat(SCALE, 1)[..., None]
