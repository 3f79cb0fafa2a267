"""An environment whose running episode can be saved and replayed.

Environments themselves cannot be saved. But by Gymnasium's contract an episode is determined by the seed of its reset
and by its actions, and these are data. So a resumed run continues in the middle of its episodes.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.policy.actions import action_copier, stack_actions, unstack_actions
from plugrad.sampling.env_checker import Contract, replaying
from plugrad.sampling.flat_observations import env_observation_space
from plugrad.types import Array

_NUMBERS = frozenset({float, int, np.float64, np.float32, np.int64, np.int32})
"""Of rewards; one of another type is checked, such as an array of one number."""
_FLAGS = frozenset({bool, np.bool_})

MAX_ACTIONS = 10_000
"""Longer episodes are not recorded: replaying takes long, and one without end would fill the memory."""


class ReplayableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that seeds every episode by itself and records the actions of the running one.

    Episode `k` after `reset(seed=s)` is seeded by the pair `(s, k)`: resets without a seed, as vector
    environments do them, begin the next episode of the same series. Without any seed the series is drawn
    from the system.

    Args:
        env: with a Box of observations.
        name: of the environment, for errors.
        index: its index in a vector environment, for errors.

    Raises:
        EnvContractError: by `reset` and `step`, if the environment does not keep Gymnasium's contract.
    """

    def __init__(self, env: gym.Env[Any, Any], *, name: str = "the environment", index: int = 0) -> None:
        super().__init__(env)
        rows: Any = env.observation_space
        self._copy_of = action_copier(env.action_space)
        self._contract = Contract(name, index, rows, env.action_space, env_observation_space(env))
        self._series: int | None = None
        self._episode = 0
        self._actions: list[Any] | None = None
        self._is_first = True
        self._reset_answer: Any = None
        self._step_answer: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new series if a seed is given, else the next episode of the present one.

        Args:
            seed: of the series.
            options: for the environment.

        Returns:
            `(observation, info)`.

        Raises:
            EnvContractError: see the class.
        """
        if seed is not None or self._series is None:
            self._series = int(np.random.SeedSequence(seed).generate_state(1)[0])
            self._episode = -1
        self._episode += 1
        return self._begin(options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Record the action and take the step."""
        if self._actions is not None:
            self._actions.append(action)
            if len(self._actions) > MAX_ACTIONS:
                self._actions = None
        try:
            self._step_answer = answer = self.env.step(self._copy_of(action))
        except Exception as error:
            self._contract.annotate_error("step()", error)
            raise
        # The first step checks the whole contract; later ones only what would pass unnoticed.
        if (
            self._is_first
            or type(answer) is not tuple
            or len(answer) != 5
            or answer[1].__class__ not in _NUMBERS
            or answer[2].__class__ not in _FLAGS
            or answer[3].__class__ not in _FLAGS
        ):
            self._is_first = False
            return self._contract.checked_step(answer)
        return answer

    def check_last_answers(self) -> None:
        """Check everything that the last reset and the last step returned.

        Raises:
            EnvContractError: see the class.
        """
        if self._reset_answer is not None:
            self._contract.checked_reset(self._reset_answer)
        if self._step_answer is not None:
            self._contract.checked_step(self._step_answer)

    @property
    def place(self) -> str:
        """Which environment this is, for errors."""
        return str(self._contract)

    @property
    def last_observation(self) -> Any:
        """The present observation, while the running episode is recorded."""
        return (self._step_answer if self._actions else self._reset_answer)[0]

    @property
    def last_info(self) -> Mapping[str, Any]:
        """The info of the present observation, while the running episode is recorded."""
        info: Mapping[str, Any] = self._step_answer[4] if self._actions else self._reset_answer[1]
        return info

    @property
    def num_steps(self) -> int:
        """Recorded steps of the running episode."""
        return len(self._actions or ())

    def get_state(self) -> dict[str, Any]:
        """The running episode: its series, its number in it, and its actions (None: too many to replay)."""
        actions = None if self._actions is None else stack_actions(self.action_space, self._actions)
        return {"series": self._series, "episode": self._episode, "actions": actions}

    def set_state(self, state: Mapping[str, Any]) -> Array | None:
        """Replay the episode of a state of `get_state`.

        Returns:
            The last observation, to be compared with the saved one; None if the replayed episode ended early: the
            environment does not repeat itself and needs a `reset()`.

        Raises:
            EnvContractError: the environment raised an error.
        """
        self._series, self._episode = int(state["series"]), int(state["episode"])
        actions = list(unstack_actions(self.action_space, state["actions"]))
        with replaying(self._contract):
            observation, _ = self._begin(None)
            for action in actions:
                observation, _, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    return None
        return np.asarray(observation)

    def _begin(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._actions = []
        try:
            self._reset_answer = answer = self.env.reset(
                seed=episode_seed(self._series or 0, self._episode), options=options
            )
        except Exception as error:
            self._contract.annotate_error("reset()", error)
            raise
        if self._is_first or type(answer) is not tuple or len(answer) != 2 or type(answer[1]) is not dict:
            return self._contract.checked_reset(answer)
        return answer


def episode_seed(series: int, episode: int) -> int:
    """The seed of an environment for one episode.

    Args:
        series: seed of a series of episodes.
        episode: number in the series.

    Returns:
        The seed. Seeds of 2**31 episodes all differ, since the factor is odd, and are small enough for simulators in C.
        They need not look random: generators mix their seeds themselves.
    """
    return (series + episode * 0x9E3779B1) % 2**31
