"""`Policy`: a trained module that acts in an environment."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Space

from plugrad.errors import BatchError
from plugrad.policy.actions import action_converter, first_action_function
from plugrad.policy.observations import ObservationEncoder, split_action_mask
from plugrad.policy.onnx_file import RecordFunction, write_onnx
from plugrad.policy.policy_file import PolicyFile, write_policy_file
from plugrad.types import Array, StrPath

State = Mapping[str, Array]
"""A recurrent state, `{name: [N, ...]}`."""


class ActFunction(Protocol):
    """Acts with a module: rows of observations to actions."""

    def __call__(
        self, rows: Array, *, explore: bool, state: State | None, action_mask: Any = None
    ) -> tuple[Array, State | None]:
        """Act.

        Args:
            rows: encoded observations [N, ...].
            explore: draw actions; else take the most probable.
            state: of a stateful module, `{name: [N, ...]}`; None: episodes begin.
            action_mask: [N, choices]; None: all actions are allowed.

        Returns:
            Actions of the module's distribution [N, ...], and the state for the next call; None without a state.
        """
        ...


class Policy:
    """A trained module that acts in an environment: it takes observations and returns actions for `env.step`.

    `plugrad.load_policy`, `Algorithm.get_policy`, `LearnerGroup.get_policy` and `Learner.get_policy` make policies.

    ```python
    policy = plugrad.load_policy("runs/my-run")
    observation, _ = env.reset()
    action, state = policy.predict(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    action, state = policy.predict(observation, state)  # a stateful policy needs the state of the call before
    policy.save("policy.safetensors")  # plugrad.load_policy opens it
    policy.export_onnx("policy.onnx")
    ```

    Args:
        act: calls the module.
        encoder: makes the rows that the module reads of observations.
        action_space: of the environment.
        initial_state: gives the state of a stateful module at the start of an episode, `{name: array}` of one row;
            empty for others.
        content: gives what `save` writes.
        record: adds the module to an ONNX graph.
        begin: is told the rows in which episodes begin, bool [N]; None: nobody.
    """

    def __init__(
        self,
        *,
        act: ActFunction,
        encoder: ObservationEncoder,
        action_space: Space[Any],
        initial_state: Callable[[], State],
        content: Callable[[], PolicyFile],
        record: RecordFunction,
        begin: Callable[[Array], None] | None = None,
    ) -> None:
        self._act = act
        self._encoder = encoder
        self._action_space = action_space
        self._to_env = action_converter(action_space)
        self._first = first_action_function(action_space)
        self._initial_state = initial_state
        self._content = content
        self._record = record
        self._begin = begin

    def __repr__(self) -> str:
        state = f", state={sorted(initial)}" if (initial := self._initial_state()) else ""
        return f"Policy(observation_space={self.observation_space}, action_space={self._action_space}{state})"

    @property
    def observation_space(self) -> Space[Any]:
        """The space of one observation that `predict` takes: without what only critics read."""
        return self._encoder.read_space

    @property
    def action_space(self) -> Space[Any]:
        """The space of one action that `predict` returns."""
        return self._action_space

    def predict(
        self,
        observation: Any,
        state: State | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, dict[str, Array] | None]:
        """Act on one observation or on a batch.

        Args:
            observation: one, or a batch of N, in the structure of `observation_space`. For a Dict space it is a dict,
                whose arrays have a leading dimension N in a batch.
            state: of a stateful policy, the state that the call before returned, `{name: [N, ...]}`, with N = 1 for one
                observation. None: episodes begin.
            episode_start: bool [N]: the rows in which an episode begins; they get the initial state, and new noise if
                it is held (gSDE). None: no row.
            deterministic: take the most probable action; else draw one, as in training.
            action_masks: the actions that are allowed, bool [choices], or [N, choices] for a batch, as
                `plugrad.action_masks` says. None: those of the observation's key `action_mask`; without it, all.

        Returns:
            `(actions, state)`. For one observation `actions` is one action of `action_space`, for a batch an array
            [N, ...] of the space's dtype, or the space's dict or tuple of arrays. `state` is for the next call; None
            for a policy without a state.

        Raises:
            BatchError: `observation`, `state`, `episode_start` or `action_masks` has another structure, shape or dtype;
                the observation holds NaN or infinity; or a mask forbids everything.
        """
        observation, masks = split_action_mask(self.observation_space, observation)
        rows, is_single = self._encoder.encode(observation, must_be_finite=True)
        before = state if episode_start is None else self._reset_rows(state, episode_start, len(rows))
        masks = masks if action_masks is None else action_masks
        given = {} if masks is None else {"action_mask": [masks] if is_single else masks}
        chosen, after = self._act(rows, explore=not deterministic, state=before, **given)
        actions = self._to_env(np.asarray(chosen))
        if is_single:
            actions = self._first(actions)
        return actions, None if after is None else dict(after)

    def save(self, path: StrPath) -> str:
        """Write the policy into one file: network, weights, spaces and normalisation; no code.

        `plugrad.load_policy(path)` opens it, where the policy's algorithm is installed. Built-in networks need no
        framework there. A module of your own has to be given: `load_policy(path, module=...)`.

        Args:
            path: the file, such as "policy.safetensors". One that is there is replaced all at once.

        Returns:
            `path`.

        Raises:
            CheckpointError: the disk refused; a file that was there is as it was.
            ConfigError: a setting or a space cannot be written.
        """
        write_policy_file(path, self._content())
        return str(path)

    def export_onnx(self, path: StrPath, *, action_mask: bool = False, guard: bool = False) -> str:
        """Write the policy as an ONNX model, which computes what `predict(..., deterministic=True)` does.

        Its inputs are observations [N, ...] of any N: `obs`, or one input for each key of a Dict space, named by the
        key. Its output `action` is what `env.step` takes, [N, ...]; of a Dict or Tuple space it has one for each part,
        `action.<key>`. A stateful policy also has an input `state_in.<name>` and an output `state_out.<name>` for each
        array of its state.

        Args:
            path: the file, such as "policy.onnx". One that is there is replaced all at once.
            action_mask: whether the model has an input `action_mask`, bool [N, choices]: the actions that are allowed.
            guard: whether it has an output `observation_is_finite`, bool [N]: False where an observation has NaN or
                infinity, which `predict` refuses. A model cannot refuse: do not send such an action to a robot.

        Returns:
            `path`.

        Raises:
            MissingFrameworkError: `onnx`, or the exporter of a framework, is not installed.
            ConfigError: the module cannot be exported, or `action_mask` is set and the action space has a Box.
            CheckpointError: the disk refused; a file that was there is as it was.
        """
        write_onnx(
            path,
            encoder=self._encoder,
            action_space=self._action_space,
            initial_state=self._initial_state(),
            record=self._record,
            action_mask=action_mask,
            guard=guard,
        )
        return str(path)

    def _reset_rows(self, state: State | None, episode_start: Any, number: int) -> State | None:
        """The state, with the initial one in the rows of `episode_start`, which are told to who holds noise."""
        starts = np.atleast_1d(np.asarray(episode_start))
        if starts.shape != (number,) or starts.dtype.kind not in "bi":
            found = f"{starts.dtype}{list(starts.shape)}"
            raise BatchError(
                f"episode_start: expected bool [{number}], one for each observation; found {found}",
                column="episode_start",
                expected=f"bool[{number}]",
                found=found,
            )
        if self._begin is not None:
            self._begin(starts.astype(bool))
        if state is None:
            return None
        return {name: self._reset_array(name, np.asarray(value), starts) for name, value in state.items()}

    def _reset_array(self, name: str, value: Array, starts: Array) -> Array:
        initial = self._initial_state().get(name)
        if initial is None or value.shape != (len(starts), *initial.shape):
            return value  # the module refuses it and says why
        mask = starts.astype(bool).reshape(-1, *[1] * initial.ndim)
        return np.asarray(np.where(mask, initial, value))
