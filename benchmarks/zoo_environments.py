"""The environments of the zoo: as they are evaluated, and stepped with ready actions."""

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from zoo_cell import Cell

ATARI_FRAMES = 4
"""Frames that are one observation."""


def make_env(cell: Cell) -> gym.Env[Any, Any]:
    """Make one environment of a cell, with its own rewards and whole episodes.

    Args:
        cell: an Atari game gets the standard preprocessing, without what only helps training.

    Returns:
        The environment; observations of Atari games are uint8 [4, 84, 84].
    """
    if not cell.is_atari:
        return gym.make(cell.env)
    return FrameStackObservation(AtariPreprocessing(make_atari_game(cell)), ATARI_FRAMES)


def make_atari_game(cell: Cell) -> gym.Env[Any, Any]:
    """Make an Atari game as it is: each step is one frame."""
    return gym.make(f"ale_py:{cell.env}", frameskip=1)
