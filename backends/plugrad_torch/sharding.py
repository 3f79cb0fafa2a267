"""`sharding="fsdp"`: flat vectors of which each process of a group keeps its part between updates.

Parameters, the slots of optimizers and target networks are divided, as in the third stage of ZeRO (Rajbhandari et al.
2020, arXiv:1910.02054). Each optimizer's vector is one unit: what first reads it in an update, or to act, puts it
together from the parts of all processes, and it is divided again when the update ends. In a step each process computes
its rows with whole weights and whole gradients, so that hooks see them by name; it steps its own part of parameters and
slots, and the parts are exchanged.

torch's `fully_shard` would make `DTensor`s of the parameters of users' modules: their `p.data` could be no views of a
flat vector, and losses that compute with parameters would mix two kinds of tensors.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.collective import Collective
from plugrad.errors import ConfigError
from plugrad.ops import Variable
from plugrad.optimizers import OPTIMIZERS, undelayed
from plugrad.types import Array
from plugrad_torch.variables import FlatParameters, TensorVariable

PIECE = 1 << 20
"""Entries that are exchanged at once: 4 MB, so that little memory is needed beside the vector."""


def parts_of(vector: Tensor) -> Iterator[Tensor]:
    """Views of a vector, one after the other.

    Args:
        vector: [size].
    """
    for start in range(0, len(vector), PIECE):
        yield vector[start : start + PIECE]


class Shard:
    """The part of this process of each vector.

    Args:
        rank: of this process.
        size: the number of processes.
        connected: gives the collective of the group; another one after a failure.
    """

    def __init__(self, rank: int, size: int, connected: Callable[[], Collective]) -> None:
        self._rank, self._size, self._connected = rank, size, connected

    def of(self, size: int) -> slice:
        """Where this process's part of a vector of `size` entries is."""
        most = -(-size // self._size)
        return slice(min(self._rank * most, size), min((self._rank + 1) * most, size))

    def complete(self, vector: Tensor) -> None:
        """Fill a float32 vector, of which this process has its own part, with the parts of the others."""
        collective: Any = self._connected()
        own = self.of(len(vector))
        for number, piece in enumerate(parts_of(vector)):
            start = number * PIECE
            first, last = (min(max(each - start, 0), len(piece)) for each in (own.start, own.stop))
            # As whole numbers, which are added without rounding: the others bring zeros.
            bits = torch.zeros(len(piece), dtype=torch.int32, device=vector.device)
            bits[first:last] = piece[first:last].view(torch.int32)
            if vector.device.type in collective.devices:
                found = collective.all_reduce(bits)
            else:
                found = torch.from_numpy(collective.all_reduce(bits.cpu().numpy()))
            piece.view(torch.int32).copy_(found)

    def whole(self, part: Tensor, size: int) -> Tensor:
        """Put a vector together.

        Args:
            part: of this process.
            size: entries of the vector.

        Returns:
            The vector, float32 [size].
        """
        vector = part.new_empty(size)
        vector[self.of(size)] = part
        self.complete(vector)
        return vector


class Part(NamedTuple):
    """A copy of this process's part, for `assign`."""

    tensor: Tensor


class DividedVector:
    """A float32 vector that is whole at first and, after `divide`, whole only from its next reading on.

    Attributes:
        is_divided: whether it is kept in parts between updates. What each process has then differs.
    """

    shard: Shard | None = None
    _size = 0
    _is_whole = True
    _steps_part = False

    vector: Any
    """The tensor: the whole vector, or this process's part."""

    @property
    def is_divided(self) -> bool:
        """See the class."""
        return self.shard is not None

    def divide(self, shard: Shard) -> None:
        """Keep the part of this process alone."""
        self.shard = shard
        if self._is_whole:
            self._size = len(self.vector)
            self._keep(self.vector[shard.of(self._size)].detach().clone(), is_whole=False)

    def gather(self) -> None:
        """Put the vector together, if it is not: all processes call this."""
        if not self._is_whole:
            assert self.shard is not None
            self._keep(self.shard.whole(self.vector, self._size), is_whole=True)

    def _keep(self, tensor: Tensor, *, is_whole: bool) -> None:
        self.vector, self._is_whole = tensor, is_whole

    @contextmanager
    def stepping_part(self) -> Iterator[None]:
        """A block in which `read` and `assign` mean the part of this process."""
        self._steps_part = True
        try:
            yield
        finally:
            self._steps_part = False

    def _own(self) -> Tensor:
        """The part of this process, live."""
        assert self.shard is not None
        vector: Tensor = self.vector
        return vector[self.shard.of(self._size)] if self._is_whole else vector

    def _read(self) -> Tensor:
        if self._steps_part:
            return self._own()
        self.gather()
        vector: Tensor = self.vector
        return vector

    def _assign(self, value: Any) -> None:
        assert self.shard is not None
        if isinstance(value, Part):
            self._keep(value.tensor.clone(), is_whole=False)
        elif self._steps_part:
            self._own().copy_(value)
        else:
            whole = torch.as_tensor(value).detach()
            self.vector.copy_(whole if self._is_whole else whole[self.shard.of(self._size)])

    def _numpy(self) -> Array:
        """The whole vector, which is divided afterwards if it was before."""
        assert self.shard is not None
        whole = self.vector if self._is_whole else self.shard.whole(self.vector, self._size)
        array: Array = whole.cpu().numpy()
        return array.copy() if self._is_whole else array


class ShardedVariable(DividedVector, TensorVariable):
    """A vector such as a slot of an optimizer or a target network."""

    @property
    def vector(self) -> Tensor:
        """See `DividedVector`."""
        return self.value

    @vector.setter
    def vector(self, tensor: Tensor) -> None:
        self.value = tensor

    def read(self) -> Tensor:
        """See `TensorVariable`."""
        return TensorVariable.read(self) if self.shard is None else self._read()

    def assign(self, value: Any) -> None:
        """See `TensorVariable`."""
        TensorVariable.assign(self, value) if self.shard is None else self._assign(value)

    def snapshot(self) -> Any:
        """See `TensorVariable`: of the own part."""
        return TensorVariable.snapshot(self) if self.shard is None else Part(self._own().clone())

    def numpy(self) -> Array:
        """See `TensorVariable`."""
        return TensorVariable.numpy(self) if self.shard is None else self._numpy()


class ShardedParameters(DividedVector, FlatParameters):
    """The flat vector of an optimizer. Between updates a parameter is NaN in its own shape, and takes no memory."""

    @property
    def vector(self) -> Tensor:
        """See `DividedVector`."""
        return self._flat

    def divide(self, shard: Shard) -> None:
        """See `DividedVector`."""
        if self._is_whole:
            self._take_back()
        super().divide(shard)

    def _keep(self, tensor: Tensor, *, is_whole: bool) -> None:
        self._flat, self._is_whole, self._places = tensor, is_whole, []
        self.gradient = tensor.new_empty(0)
        missing = tensor.new_full((), float("nan"))
        views = self._views(tensor) if is_whole else [missing.expand(each) for each in self.layout.shapes]
        for param, view in zip(self._params, views, strict=True):
            param.grad, param.data = None, view

    def _take_back(self) -> None:
        """Copy parameters that somebody gave another storage."""
        for param, view in zip(self._params, self._views(self._flat), strict=True):
            if param.data_ptr() != view.data_ptr():
                view.copy_(param.detach())
                param.data = view

    def attach(self) -> None:
        """See `FlatParameters`: also make place for gradients."""
        if self.shard is None:
            FlatParameters.attach(self)
            return
        self.gather()
        self._take_back()
        if len(self.gradient) != self._size:
            self.gradient = torch.zeros_like(self._flat)
        for param, slope in zip(self._params, self._views(self.gradient), strict=True):
            param.grad = slope

    def complete(self) -> None:
        """Take over what the others have stepped."""
        if self._is_whole:
            assert self.shard is not None
            self.shard.complete(self._flat)

    def read(self) -> Tensor:
        """See `FlatParameters`."""
        return FlatParameters.read(self) if self.shard is None else self._read()

    def assign(self, value: Any) -> None:
        """See `FlatParameters`."""
        FlatParameters.assign(self, value) if self.shard is None else self._assign(value)

    def snapshot(self) -> Any:
        """See `FlatParameters`: of the own part."""
        if self.shard is None:
            return FlatParameters.snapshot(self)
        if self._is_whole:
            self._take_back()
        return Part(self._own().clone())

    def numpy(self) -> Array:
        """See `FlatParameters`."""
        return FlatParameters.numpy(self) if self.shard is None else self._numpy()


@contextmanager
def stepping_parts(parameters: ShardedParameters, slots: Iterable[Variable]) -> Iterator[slice]:
    """A block in which an optimizer steps the part of this process; afterwards the parts are exchanged.

    Args:
        parameters: of the optimizer, divided.
        slots: its other vectors; scalars stay as they are.

    Yields:
        Where the part is in the vector.
    """
    shard = parameters.shard
    assert shard is not None
    with ExitStack() as stack:
        for each in (parameters, *slots):
            if isinstance(each, DividedVector):
                stack.enter_context(each.stepping_part())
        yield shard.of(parameters.layout.size)
    parameters.complete()


def divide(learner: LearnerProtocol, rank: int, size: int, connected: Callable[[], Collective]) -> None:
    """Divide what a learner keeps between updates; again after each update, in which vectors were put together.

    Args:
        learner: built, in each process.
        rank: of this process.
        size: the number of processes.
        connected: gives the collective of the group; another one after a failure.

    Raises:
        ConfigError: the update is compiled, or an optimizer is none of `plugrad.optimizers`.
    """
    config = learner.config
    if config.compile in ("complete_update", "forward_train"):
        raise _cannot(learner, f'compile={config.compile!r}: type .framework(compile="none")', "compile")
    shard = Shard(rank, size, connected)
    vectors: dict[str, list[ShardedParameters]] = {}
    for name, each in learner.registered_optimizers.items():
        optimizer = undelayed(each.optimizer_adapter)
        if type(optimizer) not in OPTIMIZERS.values():
            raise _cannot(
                learner,
                f"optimizer {name!r} ({type(each.optimizer).__name__}), which may look at a whole vector: type one of "
                f'.training(optimizer={{"type": ...}}): {", ".join(OPTIMIZERS)}',
                "optimizer",
            )
        parameters = cast("ShardedParameters", optimizer.parameters)
        for module_id in each.modules:
            vectors.setdefault(module_id, []).append(parameters)
        for variable in (parameters, *optimizer.slots.values()):
            if isinstance(variable, DividedVector):
                variable.divide(shard)
    for target in learner.targets.values():
        cast("ShardedVariable", target.variable).divide(shard)
    for module_id, own in vectors.items():
        learner.module[module_id].__dict__["divided"] = own


def _cannot(learner: LearnerProtocol, what: str, field: str) -> ConfigError:
    return ConfigError(
        f"sharding={learner.config.sharding!r} does not go with {what}, or leave .learners(sharding=...) out",
        field=field,
    )
