"""Weights of modules: two sides compared, copies made on demand, and weights on disk without a learner."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointError, ConfigError, RestoreMismatchError
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID, StrPath

# --- two sides compared, and every difference named ---

_MAX_LISTED = 1000
"""The most entries that an error lists; a damaged file may have millions."""


def check_same_arrays(have: Mapping[str, Any], given: Any, *, where: str) -> None:
    """Check that a nested dict has the same entries as another: names, shapes, dtypes and types.

    Args:
        have: the expected nested dict, of arrays and plain values.
        given: the nested dict to check.
        where: the name of the checked object, for the message.

    Raises:
        RestoreMismatchError: they differ; lists every missing, unexpected and mismatched entry.
    """
    found: dict[str, list[str]] = {"missing": [], "unexpected": [], "mismatched": []}
    _compare({"": have}, {"": given}, "", found)
    if any(found.values()):
        listed = "; ".join(f"{kind}: {_join(paths)}" for kind, paths in found.items() if paths)
        raise RestoreMismatchError(f"the state does not fit {where}: {listed}. Nothing was changed.", **found)


def weights_of_state(state: Any) -> Mapping[str, Any]:
    """The weights in a state: the state itself, or its entry "rl_module".

    Raises:
        RestoreMismatchError: the weights are not a dict.
    """
    weights = state.get(COMPONENT_RL_MODULE, state) if isinstance(state, Mapping) else state
    if not isinstance(weights, Mapping):
        raise RestoreMismatchError(
            f"weights are a dict, found {type(weights).__name__}. Nothing was changed."
        )
    return weights


def _compare(
    have: Mapping[str, Any], given: Mapping[str, Any], path: str, found: dict[str, list[str]]
) -> None:
    for name in {**have, **given}:
        place = f"{path}/{name}" if path else str(name)
        if name not in given:
            _extend(found["missing"], _leaf_paths(have[name], place))
        elif name not in have:
            _extend(found["unexpected"], _leaf_paths(given[name], place))
        elif isinstance(have[name], Mapping) and isinstance(given[name], Mapping):
            _compare(have[name], given[name], place, found)
        else:
            expected, present = have[name], given[name]
            is_like = (
                type(expected) is type(present)
                and getattr(expected, "shape", None) == getattr(present, "shape", None)
                and getattr(expected, "dtype", None) == getattr(present, "dtype", None)
            )
            if not is_like and (one := _describe(expected)) != (other := _describe(present)):
                _extend(found["mismatched"], [f"{place} (expected {one}, found {other})"])


def _extend(paths: list[str], more: Iterable[str]) -> None:
    paths += islice(more, _MAX_LISTED - len(paths))


def _join(paths: list[str]) -> str:
    return ", ".join(paths) + (", and perhaps more" if len(paths) >= _MAX_LISTED else "")


def _leaf_paths(value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield place
        return
    for name, each in value.items():
        yield from _leaf_paths(each, f"{place}/{name}")


def _describe(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None or dtype is None else f"{dtype}{list(shape)}"


# --- copies on demand ---


class WeightsOnDemand(Mapping[str, Array]):
    """`{parameter name: numpy copy}`, each copied when it is first read: acting does not read the critic.

    Args:
        weights: `{parameter name: parameter}` of the framework.
        copy: makes a numpy copy of a parameter.
    """

    def __init__(self, weights: Mapping[str, Any], copy: Callable[[Any], Array]) -> None:
        self._weights = weights
        self._copy = copy
        self._copies: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._copies:
            self._copies[name] = self._copy(self._weights[name])
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


# --- on disk: a checkpoint of the kind "rl_module" ---

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
