"""`PartsModule`: a module of the parts of a user's plain model, such as an actor and critics."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.module_spec import RLModuleSpec
from plugrad.observations import is_structured, model_space, row_shape, row_space
from plugrad.rl_module.outputs import describe
from plugrad.rl_module.rl_module import RLModule
from plugrad.spaces.kinds import array_space
from plugrad.types import ModuleID, Tensor


class PartsModule(RLModule, has_modes=False):
    """The base of an algorithm's class for plain models (`Config.model_class`), written once for all frameworks.

    `of` joins it with the backend's class of modules. Parameters are named after the parts: `pi.0.weight`.
    """

    part_names: ClassVar[tuple[str, ...]]
    """Attributes that the model must have. The module gets these, and no others."""
    _model_name = ""

    @classmethod
    def of(
        cls,
        module_id: ModuleID,
        model: Any,
        spec: RLModuleSpec,
        config: Any,
        base: type[RLModule],
        device: str,
    ) -> "PartsModule":
        """Make the module.

        Args:
            module_id: its id, for errors.
            model: the user's.
            spec: complete, with spaces.
            config: the module's.
            base: the backend's class of modules (`BackendInfo.module_class`).
            device: the learner's.

        Returns:
            The module, on that device.

        Raises:
            ConfigError: the model lacks a part.
        """
        model_name = type(model).__name__
        if missing := [name for name in cls.part_names if not hasattr(model, name)]:
            raise ConfigError(
                f"module {module_id!r}: {type(config).__name__} needs a model with the parts "
                f"{', '.join(cls.part_names)}, and {model_name} has no {', '.join(missing)}: "
                "docs/module-contracts.md has what each part is called with and returns",
                module_id=module_id,
                expected=list(cls.part_names),
                found=missing,
            )
        joined: type[Any] = type(cls.__name__, (cls, base), {})
        module: Self = joined(**spec.arguments())
        module._model_name = model_name
        for name in cls.part_names:
            setattr(module, name, getattr(model, name))
        module.configure(config)
        module._move_to(device)
        module._call_once()
        return module

    @property
    def class_name(self) -> str:
        """That of the model."""
        return self._model_name

    def configure(self, config: Any) -> None:
        """Add what the algorithm needs beside the parts.

        Args:
            config: the module's.
        """

    def checked_part(self, name: str, outputs: Any, inner: tuple[int, ...]) -> Tensor:
        """Check what a part returned.

        Args:
            name: of the part.
            outputs: a tensor [B, *inner], or [B, 1] for [B].
            inner: lengths of the axes after the rows.

        Returns:
            The tensor [B, *inner].

        Raises:
            BatchError: it has another shape.
        """
        shape = tuple(getattr(outputs, "shape", ()))
        if not inner and len(shape) == 2 and shape[1] == 1:
            return outputs[:, 0]
        if len(shape) != 1 + len(inner) or shape[1:] != inner:
            expected = f"float32 [{', '.join(('B', *map(str, inner)))}]"
            raise BatchError(
                f"the part {name!r} of {self.class_name} returned {describe(outputs)}; expected {expected} for actions "
                f"of {self.action_space}: docs/module-contracts.md",
                column=name,
                expected=expected,
                found=describe(outputs),
            )
        return outputs

    if TYPE_CHECKING:  # the backend's class has both

        def new_scalar(self, value: float) -> Any:
            """A trained parameter that is one number, to be set as an attribute."""

        def without_gradient(self, word: str) -> AbstractContextManager[None]:
            """A context in which no gradient reaches the parameters whose names begin with a word."""

    def _call_once(self) -> None:
        """Lazy layers and Keras layers have no weights before their first call."""
        space: Any = self.observation_space
        stored = row_space(space) if is_structured(space) else model_space(space)
        obs = np.zeros((1, *row_shape(space)), stored.dtype)
        actions: Any = array_space(self.action_space)
        self.forward_inference(
            {
                Columns.OBS: self.ops.asarray(obs),
                Columns.ACTIONS: self.ops.asarray(np.zeros((1, *actions.shape), actions.dtype)),
            }
        )
