"""Weights of modules on disk, without a learner: a checkpoint of the kind "rl_module"."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NoReturn

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointError, ConfigError
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID

StrPath = str | PathLike[str]
KIND = "rl_module"


class SavesWeights:
    """The methods of `RLModule` and `MultiRLModule` that save and load weights."""

    def save_to_path(self, path: StrPath) -> str:
        """Save the weights to a directory, all or nothing. A later save replaces this one.

        Args:
            path: the directory; it is created if it does not exist.

        Returns:
            `path`.

        Raises:
            CheckpointError: it cannot be written.
        """
        weights = self.as_multi_rl_module().get_state()
        metadata = {"kind": KIND, "module_ids": list(weights)}
        return str(save_checkpoint(path, {COMPONENT_RL_MODULE: weights}, metadata=metadata, keep=1))

    def restore_from_path(self, path: StrPath) -> None:
        """Load the weights of a checkpoint from `save_to_path`, of a learner or of an algorithm.

        A single module loads the checkpoint's only module. A MultiRLModule loads each module by its id.

        Args:
            path: a checkpoint directory.

        Raises:
            CheckpointError: the checkpoint cannot be read or has no such weights.
            UnknownModuleError: the checkpoint has a module that is not here.
            RestoreMismatchError: names, shapes or dtypes differ. Nothing is changed.
        """
        weights = _read_weights(path)
        several = self.as_multi_rl_module()
        if several is not self:
            if len(weights) != 1:
                raise CheckpointError(
                    f"{path} has the weights of {len(weights)} modules ({', '.join(weights)}), and this is one: "
                    "MultiRLModule({module_id: module}).restore_from_path(path) takes each its own"
                )
            weights = {DEFAULT_MODULE_ID: next(iter(weights.values()))}
        several.set_state(weights)

    @classmethod
    def from_checkpoint(cls, path: StrPath) -> NoReturn:
        """Not possible: a checkpoint holds no code, so it cannot make a module.

        Raises:
            ConfigError: always, with what to write instead.
        """
        raise ConfigError(
            f"{cls.__name__}.from_checkpoint: a checkpoint holds weights and no code. Make the module and type "
            "module.restore_from_path(path); or Learner.from_checkpoint(path).module for what a learner has saved"
        )

    def as_multi_rl_module(self) -> Any:
        """This as a `MultiRLModule`."""
        raise NotImplementedError


def _read_weights(path: StrPath) -> dict[ModuleID, dict[str, Array]]:
    state: Any = load_checkpoint(path).state
    state = state.get("learner", state) if isinstance(state, Mapping) else None
    weights = state.get(COMPONENT_RL_MODULE) if isinstance(state, Mapping) else None
    if not isinstance(weights, dict) or not all(isinstance(each, dict) for each in weights.values()):
        raise CheckpointError(f"{path} holds no weights of modules")
    return weights
