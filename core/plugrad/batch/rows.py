"""Rows: the columns of a minibatch, each taken when it is read."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from plugrad.batch.batch_errors import missing_column
from plugrad.batch.recurrent_state import STATE_COLUMNS, state_names
from plugrad.types import ModuleBatches, ModuleID, Tensor


class Rows(Mapping[str, Tensor]):
    """Some rows of one module's columns: a mapping that takes a column's rows when the column is first read.

    A recurrent state is read as one column: `rows["state_in"]` is `{name: tensor}`.

    Args:
        module_id: the module, for the error about a missing column.
        columns: `{column: tensor [N, ...]}`, all rows.
        take: gives the minibatch's rows [B, ...] of a column [N, ...].

    Attributes:
        taken: the columns that were read until now.
    """

    def __init__(
        self, module_id: ModuleID, columns: Mapping[str, Tensor], take: Callable[[Tensor], Tensor]
    ) -> None:
        self._module_id = module_id
        self._columns = columns
        self._take = take
        self.taken: dict[str, Tensor] = {}

    def __getitem__(self, column: str) -> Tensor:
        if column in self.taken:
            return self.taken[column]
        if column in STATE_COLUMNS and (names := state_names(self._columns, column)):
            taken: Tensor = {name: self._take(self._columns[f"{column}/{name}"]) for name in names}
        elif column in self._columns:
            taken = self._take(self._columns[column])
        else:
            raise missing_column(self._module_id, column, self._columns)
        self.taken[column] = taken
        return taken

    def with_columns(self, columns: Mapping[str, Tensor]) -> "Rows":
        """These rows with columns added or replaced; all others are still taken when they are read.

        Args:
            columns: `{column: tensor}`.

        Returns:
            Other rows.
        """
        takes: dict[str, Callable[[], Tensor]] = {name: partial(self.__getitem__, name) for name in self}
        takes |= {name: partial(columns.__getitem__, name) for name in columns}
        return Rows(self._module_id, takes, lambda take: take())

    def __contains__(self, column: object) -> bool:
        is_state = column in STATE_COLUMNS
        return column in self._columns or (is_state and bool(state_names(self._columns, str(column))))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def minibatch(
    columns: ModuleBatches, rows: Mapping[ModuleID, Tensor], take: Callable[[Tensor, Tensor], Tensor]
) -> dict[ModuleID, Rows]:
    """Some rows of each module.

    Args:
        columns: `{module_id: {column: tensor [N, ...]}}`.
        rows: `{module_id: int32 [B]}`, the numbers of the rows.
        take: `take(column, rows)` gives these rows [B, ...] of a column [N, ...].

    Returns:
        `{module_id: rows}`.
    """

    def take_own(own: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda column: take(column, own)

    return {module_id: Rows(module_id, columns[module_id], take_own(own)) for module_id, own in rows.items()}
