"""How the suites see what a learner trains on, what of it is read, and by which gradients; nothing of it is changed."""

from collections.abc import Generator, Mapping
from typing import Any

from plugrad.columns import Columns
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner.update.data_parallel import only_modules
from plugrad.types import Array, ModuleID


class BatchRecordedError(Exception):
    """An update was about to train on `batch`, `{module_id: {column: array}}`."""

    def __init__(self, batch: dict[ModuleID, dict[str, Array]]) -> None:
        super().__init__("this learner trains on nothing, it only shows what it was given")
        self.batch = batch


def batch_recorder(cls: type[Any]) -> type[Any]:
    """A learner class like this one whose first update raises `BatchRecordedError`, before there is a loss."""

    class Recorder(cls):  # type: ignore[misc]
        """Looks at what goes to the device."""

        def _convert_batch_type(self, batch: Mapping[str, Any]) -> dict[str, Any]:
            columns = {m: dict(each) for m, each in batch.items() if isinstance(each, Mapping)}
            if any(Columns.OBS in each for each in columns.values()):
                raise BatchRecordedError(only_modules(columns))
            converted: dict[str, Any] = super()._convert_batch_type(batch)
            return converted

    return Recorder


class GradientRecorder:
    """Keeps the gradients of the last step, `{param ref: array}`: of a step that is not traced."""

    def __init__(self) -> None:
        self.gradients: dict[str, Array] = {}

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """See `LearnerSpec.postprocess_gradients`: before they are clipped."""
        self.gradients = learner._convert_to_numpy(dict(gradients_dict))
        return (yield)


class ReadColumns(dict[str, Any]):
    """Columns that remember which of them were read."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, column: str) -> Any:
        self.read.add(column)
        return super().__getitem__(column)

    def get(self, column: str, default: Any = None) -> Any:
        """As of a dict.

        Args:
            column: which counts as read.
            default: where there is none.

        Returns:
            The column or the default.
        """
        self.read.add(column)
        return super().get(column, default)
