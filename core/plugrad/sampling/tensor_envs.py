"""Environments whose observations, rewards and flags stay tensors of the learner's framework, on its device."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from plugrad.columns import Columns
from plugrad.config.sampling_settings import tensors_refused
from plugrad.errors import EnvContractError
from plugrad.ops import Ops
from plugrad.sampling.vector_envs import reset_seeds
from plugrad.spaces.kinds import array_space, first_choice, is_array, is_structured
from plugrad.types import Array, Tensor

FINAL_OBS = "final_obs"


class Tensors(NamedTuple):
    """What tensors are for a learner.

    Args:
        ops: tensor functions.
        make: a tensor on the learner's device of an array, or of anything with `__dlpack__`, which is not copied if it
            is there; its name is for errors.
        to_numpy: its values.
        computing: gives a context in which operations compute on that device.
        as_program: makes one program of a function of tensors, where single operations are slow.
        write_rows: of `BackendInfo`.
        free_memory: gives the bytes that are free on the device; None: it has the host's memory, or the framework does
            not say.
    """

    ops: Ops
    make: Callable[[str, Any], Tensor]
    to_numpy: Callable[[Tensor], Array]
    computing: Callable[[], AbstractContextManager[None]]
    as_program: Callable[[Callable[..., Any]], Callable[..., Any]]
    write_rows: Callable[..., Mapping[str, Tensor]] | None = None
    free_memory: Callable[[], int | None] = lambda: None


class Stepped(NamedTuple):
    """One step of N environments, as tensors.

    Args:
        observations: `[N, ...]`, what a policy sees next.
        led_to: `[N, ...]`, what the step led to: the last observation of an episode where one ended.
        rewards: float32 `[N]`.
        terminated: bool `[N]`.
        truncated: bool `[N]`.
    """

    observations: Tensor
    led_to: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


class TensorEnvs:
    """Steps a vector environment with tensors. Shapes are checked; to check values would copy them from the device.

    Args:
        env: the vector environment; nothing checked its answers.
        name: of the environment, for errors.
        tensors: of the learner.

    Attributes:
        name: of the environment.
        num_envs: how many step together.
        resets_in_same_step: whether an episode ends and the next one begins in one step.

    Raises:
        ConfigError: the action space has parts, or is of a kind of its own.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, name: str, tensors: Tensors) -> None:
        self._env, self._tensors = env, tensors
        self.name, self.num_envs = name, env.num_envs
        self.observation_space: Space[Any] = env.single_observation_space
        self.action_space: Space[Any] = env.single_action_space
        self.resets_in_same_step = AutoresetMode(env.metadata["autoreset_mode"]) == AutoresetMode.SAME_STEP
        self._to_env = tensors.as_program(self._action_converter())
        self._copied = tensors.as_program(self._copies)

    def reset(self, entropy: tuple[int, ...]) -> Tensor:
        """Begin new episodes everywhere.

        Args:
            entropy: whole numbers that seed the environments; none: from the system.

        Returns:
            Observations `[N, ...]`.

        Raises:
            EnvContractError: they have another shape, or are no tensor.
        """
        seeds = reset_seeds(entropy, 1)
        observations, infos = self._env.reset(seed=None if seeds is None else seeds[0])
        if Columns.ACTION_MASK in infos:
            self._refuse('gives action masks, which vectorization_mode="tensors" does not read', "none")
        return self._tensors.ops.concat([self._observations("observations", observations)])

    def step(self, actions: Tensor) -> Stepped:
        """Step every environment.

        Args:
            actions: `[N, ...]`, as the policy returned them; Box actions are clipped to the bounds.

        Returns:
            What happened. An environment that resets in the step after an end led to what a policy sees next.

        Raises:
            EnvContractError: a tensor has another shape, or there is no `infos["final_obs"]` where episodes end and
                begin in one step.
        """
        given, *others, infos = self._env.step(self._to_env(actions))
        observations = self._observations("observations", given)
        led_to = observations
        if self.resets_in_same_step:
            if FINAL_OBS not in infos:
                self._refuse(
                    f"gave no infos[{FINAL_OBS!r}]",
                    f"in every step a tensor of shape {self._shape}, with the last observation where an episode ended: "
                    "its other rows are not read",
                )
            led_to = self._observations(FINAL_OBS, infos[FINAL_OBS])
        names = (Columns.REWARDS, Columns.TERMINATEDS, Columns.TRUNCATEDS)
        columns = (
            self._checked(name, each, (self.num_envs,)) for name, each in zip(names, others, strict=True)
        )
        return Stepped(*self._copied(observations, led_to, *columns))

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        self._env.close()

    @property
    def env(self) -> VectorEnv[Any, Any, Any]:
        """The vector environment."""
        return self._env

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.num_envs, *(self.observation_space.shape or ()))

    def _observations(self, name: str, given: Any) -> Tensor:
        return self._checked(name, given, self._shape)

    def _copies(self, observations: Tensor, led_to: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `Stepped`; copies: an environment may write its next answers into the same ones."""
        ops, dtypes = self._tensors.ops, ("float32", "bool", "bool")
        cast = (ops.cast(each, dtype) for each, dtype in zip(others, dtypes, strict=True))
        seen, *columns = (ops.concat([each]) for each in (observations, *cast))
        final = seen
        if self.resets_in_same_step:  # else the step led to what a policy sees next
            ended = ops.logical_or(columns[1], columns[2])
            of_rows = ops.reshape(ended, (self.num_envs, *[1] * (len(self._shape) - 1)))
            final = ops.where(of_rows, led_to, seen)
        return (seen, final, *columns)

    def _checked(self, name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
        if isinstance(given, np.ndarray) or not hasattr(given, "__dlpack__"):
            self._refuse(
                f"gave {name} of {type(given).__module__.partition('.')[0]}'s {type(given).__name__}",
                'a tensor of the learner\'s framework. Arrays of numpy are for vectorization_mode="vector_entry_point"',
            )
        tensor = self._tensors.make(name, given)
        if (found := tuple(self._tensors.ops.shape(tensor))) != shape:
            self._refuse(f"gave {name} of shape {found}", f"shape {shape}", found)
        return tensor

    def _refuse(self, found: str, expected: str, value: Any = None) -> None:
        raise EnvContractError(
            f"the vectorised {self.name} {found}; expected: {expected}",
            env=self.name,
            expected=expected,
            found=found if value is None else value,
        )

    def _action_converter(self) -> Callable[[Tensor], Tensor]:
        """`plugrad.policy.actions.action_converter`, over tensors, which are new: environments write into them."""
        space, ops, make = self.action_space, self._tensors.ops, self._tensors.make
        if is_structured(space) or not is_array(space) or array_space(space) is not space:
            raise tensors_refused(
                f"actions of {self.name} are of {space}, whose values are no arrays of one shape, as a Box's are"
            )

        def copied(actions: Tensor) -> Tensor:
            return ops.concat([actions])

        if not isinstance(space, Box):
            start = np.asarray(first_choice(space))
            return (lambda actions: actions + make("actions", start)) if np.any(start) else copied
        if not np.issubdtype(space.dtype, np.floating):
            raise tensors_refused(
                f"actions of {self.name} are whole numbers of {space}",
                "declare a MultiDiscrete, or take float32",
            )
        if not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
            return copied
        low, high = (make("bounds", each.astype(np.float32)) for each in (space.low, space.high))
        return lambda actions: ops.minimum(ops.maximum(actions, low), high)


class ArraysOfTensors(VectorWrapper):
    """A vector environment of tensors as one of numpy arrays, for evaluations and recordings.

    Args:
        env: gives and takes tensors.
        tensors: of the learner.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], tensors: Tensors) -> None:
        super().__init__(env)
        self._tensors = tensors

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """Reset all."""
        with self._tensors.computing():
            observations, infos = self.env.reset(**settings)
        return self._array(observations), {name: self._array(each) for name, each in infos.items()}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all."""
        with self._tensors.computing():
            *answers, infos = self.env.step(self._tensors.make("actions", np.ascontiguousarray(actions)))
        observations, rewards, terminated, truncated = map(self._array, answers)
        arrays = {name: self._array(each) for name, each in infos.items()}
        if FINAL_OBS in arrays and f"_{FINAL_OBS}" not in arrays:  # it is in every step
            arrays[f"_{FINAL_OBS}"] = terminated | truncated
        return observations, rewards, terminated, truncated, arrays

    def _array(self, values: Any) -> Any:
        if isinstance(values, np.ndarray) or not hasattr(values, "__dlpack__"):
            return values
        return np.array(self._tensors.to_numpy(values))
