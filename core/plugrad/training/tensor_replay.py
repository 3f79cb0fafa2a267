"""Replay on a device: steps of environments of tensors become transitions there, and a buffer's columns are tensors."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from plugrad.batch import portable
from plugrad.columns import Columns
from plugrad.config.sampling_settings import tensors_refused
from plugrad.errors import RestoreMismatchError
from plugrad.losses import n_step_returns
from plugrad.replay.observation_rows import StoredPart
from plugrad.replay.storage import Rows, RowStorage
from plugrad.sampling.tensor_env_runner import TensorSample
from plugrad.sampling.tensor_envs import Tensors
from plugrad.types import Array, Tensor


def check_replays_tensors(config: Any) -> None:
    """Refuse settings of replay that are for arrays of numpy, before anything is built.

    Args:
        config: an `OffPolicyConfig`.

    Raises:
        ConfigError: one of them is set.
    """
    for own in (config, *map(config.get_config_for_module, config.algorithm_config_overrides_per_module)):
        kind = own.replay_buffer_config["type"]
        for name, found, is_for_arrays, instead in (
            ("replay_buffer_config", {"type": kind}, kind != "uniform", {"type": "uniform"}),
            ("n_step", own.n_step, not isinstance(own.n_step, int), 1),
            ("hindsight", own.hindsight, own.hindsight is not None, None),
            ("demonstrations", own.demonstrations, bool(own.demonstrations), None),
        ):
            if is_for_arrays:
                raise tensors_refused(
                    f"{name}={found!r} is for arrays of numpy",
                    f'set {name}={instead!r}, or take vectorization_mode="vector_entry_point"',
                )


class TensorTransitions:
    """`NStepTransitions` of steps of environments of tensors, made on the device.

    The host knows where episodes end, one boolean a step, and so of which steps a row is: it gives the device their
    numbers.

    Args:
        n: steps per row.
        gamma: discount per step.
        tensors: of the learner.
    """

    def __init__(self, n: int, gamma: float, tensors: Tensors) -> None:
        self._n, self._gamma, self._tensors = n, gamma, tensors
        self._rows = tensors.as_program(self._rows_of)
        self._forget()

    def _forget(self) -> None:
        self._steps: Mapping[str, Tensor] | None = None
        self._ended = self._waits = np.zeros((0, 0), bool)
        self._was_end: Array | None = None

    def __call__(self, sample: TensorSample) -> tuple[Mapping[str, Tensor], Array]:
        """The rows of one sample.

        Args:
            sample: T steps of N environments. Steps that wait are forgotten if it begins new episodes everywhere.

        Returns:
            Rows of all steps that are known, `{column: [B, ...]}` as `plugrad.replay.transitions` names them; and which
            of them are complete and were not returned before, int64 [K], in the order in which `NStepTransitions`
            returns them: by episodes, those that have ended first.
        """
        if sample.begins:
            self._forget()
        steps = {name: sample.steps[name] for name in _STEPS}
        ended, counts = self._flags(sample.steps)
        if self._steps is not None:
            ops = self._tensors.ops
            steps = {name: ops.concat([self._steps[name], each]) for name, each in steps.items()}
            ended, counts = np.concatenate([self._ended, ended]), np.concatenate([self._waits, counts])
        number, num_envs = ended.shape
        at, env = np.indices(ended.shape)
        # Where the episode of each step ends: `number` if it is running.
        ends = np.minimum.accumulate(np.where(ended, at, number)[::-1])[::-1]
        is_ready = counts & ((ends < number) | (at + self._n <= number))
        order = np.flatnonzero(is_ready)
        order = order[np.lexsort([each.ravel()[order] for each in (at, env, ends)])]
        lengths = np.minimum(ends + 1 - at, self._n).clip(1, number - at)
        lasts = (at + lengths - 1) * num_envs + env
        numbers = () if self._n == 1 else (np.stack([lasts.ravel(), lengths.ravel()]),)
        rows = self._rows(steps, *(self._tensors.make("rows", each) for each in numbers))
        if self._n > 1:
            self._steps = {name: each[1 - self._n :] for name, each in steps.items()}
            self._ended, self._waits = ended[1 - self._n :], (counts & ~is_ready)[1 - self._n :]
        return rows, order

    def _flags(self, steps: Mapping[str, Tensor]) -> tuple[Array, Array]:
        """Where episodes end and which steps count, bool [T, N]: one copy from the device."""
        ops = self._tensors.ops
        ended = self._tensors.to_numpy(
            ops.logical_or(steps[Columns.TERMINATEDS], steps[Columns.TRUNCATEDS])
        ).astype(bool)
        counts = np.ones_like(ended)
        if Columns.LOSS_MASK in steps:  # the step after an end only resets
            counts[1:] = ~ended[:-1]
            counts[0] = True if self._was_end is None else ~self._was_end
        self._was_end = ended[-1]
        return ended, counts

    def _rows_of(self, given: Mapping[str, Tensor], numbers: Tensor | None = None) -> dict[str, Tensor]:
        """Rows of steps [S, N, ...], from each on; of several steps with its last one and their number, int [2, B].

        Source: see `plugrad.losses.n_step_returns`.
        """
        ops, steps = self._tensors.ops, dict(given)
        truncateds = steps.pop(Columns.TRUNCATEDS)
        flat = {name: ops.reshape(each, (-1, *ops.shape(each)[2:])) for name, each in steps.items()}
        if numbers is None:
            return {**flat, Columns.N_STEP: ops.ones_like(flat[Columns.REWARDS])}
        lasts, lengths = numbers[0], numbers[1]
        has_ended = ops.logical_or(steps[Columns.TERMINATEDS], truncateds)
        sums = n_step_returns(ops, steps[Columns.REWARDS], has_ended, self._gamma, self._n)
        ends = {name: ops.take(flat[name], lasts) for name in (Columns.NEXT_OBS, Columns.TERMINATEDS)}
        sums = ops.reshape(sums, (-1,))
        return {**flat, **ends, Columns.REWARDS: sums, Columns.N_STEP: ops.cast(lengths, "float32")}

    def get_state(self) -> dict[str, Any]:
        """Nothing: a run that saves begins new episodes, whose steps do not follow those that wait."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Forget the steps that wait: those of a state are of episodes that are not played on."""
        self._forget()


_STEPS = (
    *(Columns.OBS, Columns.ACTIONS, Columns.REWARDS),
    *(Columns.NEXT_OBS, Columns.TERMINATEDS, Columns.TRUNCATEDS),
)


class TensorRows(RowStorage):
    """`RowStorage` whose columns are tensors on the learner's device, allocated when the first rows come.

    A column has one place more than `capacity`, for rows that are not kept: so as many rows are written in each call,
    and programs have one shape. States have arrays, as those of a `RowStorage`.

    Args:
        capacity: rows.
        example: a row, `{column: [1, ...]}`: the columns and the dtypes of states.
        tensors: of the learner.
    """

    def __init__(self, capacity: int, example: Rows, tensors: Tensors) -> None:
        super().__init__(capacity)
        self._example, self._tensors = example, tensors
        self._names = tuple(example)
        self._there: Mapping[str, Tensor] = {}
        self._taken = tensors.as_program(
            lambda columns, places: {name: tensors.ops.take(each, places) for name, each in columns.items()}
        )

    def add(self, rows: Mapping[str, Tensor], order: Array | None = None) -> Array:
        """See `RowStorage.add`; rows are tensors or arrays.

        Raises:
            RestoreMismatchError: they are not those of the example.
        """
        shapes = {name: tuple(np.shape(each)) for name, each in self._example.items()}
        make, ops = self._tensors.make, self._tensors.ops
        with self._tensors.computing():
            given = {name: make(name, each) for name, each in rows.items()}
            found = {name: (1, *map(int, ops.shape(each)[1:])) for name, each in given.items()}
            if found != shapes:
                raise RestoreMismatchError(
                    f"a replay buffer has rows of the columns {shapes}, and found are {found}"
                )
            number = int(ops.shape(given[Columns.REWARDS])[0])
            order = np.arange(number) if order is None else order
            kept = order[-self.capacity :]
            own = np.arange(self.added + len(order) - len(kept), self.added + len(order)) % self.capacity
            places = np.full(number, self.capacity)
            places[kept] = own
            if not self._there:
                self._there = self._allocated()
            given = {name: ops.cast(given[name], _dtype(each)) for name, each in self._example.items()}
            self._there = self._written(places, given)
        self.added += len(order)
        return own

    def _allocated(self) -> dict[str, Tensor]:
        """Columns of zeros."""
        try:
            return {
                name: self._tensors.ops.zeros((self.capacity + 1, *each.shape[1:]), _dtype(each))
                for name, each in self._example.items()
            }
        except Exception as error:
            error.add_note(
                f"a replay buffer of capacity={self.capacity} rows takes {self.nbytes} bytes of the learner's device: "
                'set a smaller one, as in replay_buffer_config={"capacity": 10000}'
            )
            raise

    def _written(self, places: Array, rows: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        write, make, ops = self._tensors.write_rows, self._tensors.make, self._tensors.ops
        if write is not None:
            return write(self._there, make("places", places), rows)
        sources = np.arange(self.capacity + 1)
        sources[places] = self.capacity + 1 + np.arange(len(places))
        taken = make("sources", sources)
        return {name: ops.take(ops.concat([each, rows[name]]), taken) for name, each in self._there.items()}

    def rows(self, places: Array) -> dict[str, Tensor]:
        """The rows at some places, as tensors."""
        with self._tensors.computing():
            return dict(self._taken(self._there, self._tensors.make("places", places)))

    def row_forms(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """See `RowStorage.row_forms`: those of states."""
        return {name: (each.shape[1:], each.dtype) for name, each in self._example.items() if self.added}

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, full or not."""
        return self.full_bytes(self.capacity + 1, self._example)

    @classmethod
    def full_bytes(cls, capacity: int, rows: Mapping[str, Array], parts: Sequence[StoredPart] = ()) -> int:
        """The bytes of a full storage; see `RowStorage.full_bytes`.

        Args:
            capacity: rows.
            rows: one row or more.
            parts: not used: columns are stored whole.

        Returns:
            Bytes on the device.
        """
        return sum(capacity * portable(each[:1]).nbytes for each in rows.values())

    def _emptied(self) -> Self:
        return type(self)(self.capacity, self._example, self._tensors)

    def _take(self, begin: int, end: int) -> Rows:
        rows = self._tensors.to_numpy(self.rows(np.arange(begin, end) % self.capacity))
        return {name: rows[name].astype(each.dtype) for name, each in self._example.items()}


def _dtype(values: Array) -> str:
    """The dtype of the tensor of an array."""
    return str(portable(values).dtype)
