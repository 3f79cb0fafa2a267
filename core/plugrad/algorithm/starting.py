"""Starting from the weights of another run: of all that fits, or exactly of one component."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plugrad import numpy_ops
from plugrad.algorithm.policies import ActingAlgorithm
from plugrad.checkpoint import Checkpoint, load_checkpoint
from plugrad.checkpoint.runs import checkpoint_of
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.group import LearnerGroup
from plugrad.learner.acting.saved_policy import acting_learner
from plugrad.learner.state.checkpoint import as_checkpoint_error, part_of
from plugrad.model_config import MODEL_CONFIG
from plugrad.networks import Network
from plugrad.networks.actor_critic import LOG_STD, NAME
from plugrad.types import COMPONENT_LEARNER, COMPONENT_RL_MODULE, Array, ModuleID, StrPath

_MEANING = ("fcnet_activation", "conv_activation", "conv_filters", "image_layout", "uint8_scale")
"""Keys of `model_config` in which networks differ whose weights may have equal names and shapes."""
SHOWN = 3
"""How many parameters of other shapes a text has."""
Shape = tuple[int, ...]
_Weights = Mapping[ModuleID, Mapping[str, Any]]
_SAME_WIDTHS = "Give both runs layers of the same widths: .rl_module(model_config={'fcnet_hiddens': [...]})"


@dataclass(frozen=True, kw_only=True)
class StartedFrom:
    """What `Algorithm.start_from_path` loaded, and what it left: names `<module id>/<parameter>`.

    Attributes:
        path: the checkpoint.
        loaded: what has the checkpoint's values now.
        left: what keeps its values, because the checkpoint has none of this name, shape and meaning.
        unused: what the checkpoint has and nothing here takes.
        differing: what is here and in the checkpoint in other shapes, `{name: (here, in the checkpoint)}`.
        statistics: the modules that have the checkpoint's statistics of `normalize_observations`.
    """

    path: str
    loaded: tuple[str, ...]
    left: tuple[str, ...]
    unused: tuple[str, ...]
    differing: Mapping[str, tuple[Shape, Shape]]
    statistics: tuple[ModuleID, ...]

    def __str__(self) -> str:
        lines = [f"started from {self.path}: {len(self.loaded)} arrays of weights are loaded"]
        lines += [f"as they were here: {', '.join(self.left)}"] if self.left else []
        lines += [f"not used of the checkpoint: {', '.join(self.unused)}"] if self.unused else []
        lines += (
            [f"of other shapes: {_shape_words(self.differing)}. {_SAME_WIDTHS}"] if self.differing else []
        )
        lines += (
            [f"with statistics of observations of {', '.join(self.statistics)}"] if self.statistics else []
        )
        return "\n".join(lines)


class StartingAlgorithm(ActingAlgorithm):
    """The part of an `Algorithm` that takes weights of other runs."""

    learner_group: LearnerGroup

    def start_from_path(self, path: StrPath) -> StartedFrom:
        """Take of another run's weights what fits, such as the policy that imitation trained: not all has to fit.

        ```python
        started = PPOConfig().environment("Pendulum-v1").build_algo().start_from_path("runs/bc")
        print(started)  # the value network is left as it was
        ```

        Of modules with equal ids, parameters of equal names and shapes are loaded, and the statistics of
        `normalize_observations` with them. Target networks become equal to the weights. Where the policies' outputs
        mean other numbers, as a Gaussian's and a squashed Gaussian's do, the head of the policy is left. Optimizers,
        counters and settings stay as they are. `restore_from_path(path, component="rl_module")` is exact: all has to
        fit.

        Args:
            path: a run directory of `plugrad train`, whose best (else last) checkpoint is taken, or a checkpoint, of
                any algorithm and backend. Code that it names is never run.

        Returns:
            What was loaded and what was left; its text lists both.

        Raises:
            CheckpointError: there is no checkpoint, or it is damaged.
            SpaceMismatchError: it was trained in other spaces.
            RestoreMismatchError: nothing fits; its networks compute otherwise, such as with another activation; or one
                of both runs normalises observations and the other does not. Nothing was changed.
        """
        whole = load_checkpoint(checkpoint_of(Path(path)))
        checkpoint = part_of(whole, kind="learner")
        with as_checkpoint_error(checkpoint):
            saved = checkpoint.state[COMPONENT_RL_MODULE]
            own = self.learner_group.get_weights()
            merged = {
                each: self._fitting(checkpoint, each, saved[each], own[each]) for each in own if each in saved
            }
            loaded = {name: new for name, new in merged.items() if new}
            differing = _differing(own, saved)
        if not loaded:
            here, there = (", ".join(_names(each)[:8]) for each in (own, saved))
            shapes = f"Of other shapes are {_shape_words(differing)}. {_SAME_WIDTHS}"
            names = f"Here are {here}; there are {there}. Give both runs the same module ids"
            raise RestoreMismatchError(
                f"{checkpoint.path}: no weights have the name and shape of any here. {shapes if differing else names}"
                ". Nothing was changed",
                missing=_names(own),
                unexpected=_names(saved),
            )
        statistics = self._statistics_in(whole, checkpoint, tuple(loaded))
        taken = _names(loaded)
        self.learner_group._change("set_weights", {each: {**own[each], **loaded[each]} for each in loaded})
        self.set_statistics(statistics)
        return StartedFrom(
            path=str(checkpoint.path),
            loaded=tuple(taken),
            left=tuple(name for name in _names(own) if name not in taken),
            unused=tuple(name for name in _names(saved) if name not in taken),
            differing=differing,
            statistics=tuple(statistics.get("observations", ())),
        )

    def _fitting(
        self, checkpoint: Checkpoint, module_id: ModuleID, saved: Mapping[str, Any], own: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The saved values of parameters of equal names, shapes and meaning."""
        fitting = {
            name: each
            for name, each in saved.items()
            if name in own and np.shape(each) == own[name].shape and each.dtype == own[name].dtype
        }
        module = self._learner.module[module_id]
        if module.network is None or not fitting:
            return fitting
        try:
            theirs = acting_learner(checkpoint, module_id).module[module_id]
        except ConfigError:  # of a user's own class, which only its author knows
            return fitting
        if theirs.network is None:
            return fitting
        one, other = ({**MODEL_CONFIG, **each.model_config} for each in (theirs, module))
        if differing := [key for key in _MEANING if one[key] != other[key]]:
            wanted = ", ".join(f"{key!r}: {one[key]!r}" for key in differing)
            raise RestoreMismatchError(
                f"{checkpoint.path}: module {module_id!r} was trained with other layers, in which its weights mean "
                f"other numbers: set .rl_module(model_config={{{wanted}}}). Nothing was changed",
                unexpected=differing,
            )
        if _outputs(theirs) != _outputs(module):
            fitting = {name: each for name, each in fitting.items() if not name.startswith((NAME, LOG_STD))}
        return fitting

    def _restore_component(self, path: StrPath, component: str) -> None:
        """Restore a part of the learners, with the statistics of the modules whose weights it has."""
        whole = load_checkpoint(path)
        checkpoint = part_of(whole, kind="learner")
        component = component.removeprefix(f"learner_group/{COMPONENT_LEARNER}/")  # where RLlib has it
        name, _, module_id = component.partition("/")
        statistics: dict[str, Any] = {}
        if name == COMPONENT_RL_MODULE:
            loaded = [module_id] if module_id else checkpoint.state.get(name, ())
            statistics = self._statistics_in(whole, checkpoint, loaded)
        self.learner_group._restore(checkpoint.path, component=component)
        self.set_statistics(statistics)


def _differing(own: _Weights, saved: _Weights) -> dict[str, tuple[Shape, Shape]]:
    """The shapes here and there of parameters of equal names, where they differ."""
    pairs = {
        f"{module_id}/{name}": (np.shape(each), np.shape(saved[module_id][name]))
        for module_id, named in own.items()
        for name, each in named.items()
        if name in saved.get(module_id, ())
    }
    return {name: (here, there) for name, (here, there) in pairs.items() if here != there}


def _shape_words(differing: Mapping[str, tuple[Shape, Shape]]) -> str:
    shown = list(differing.items())[:SHOWN]
    words = [f"{name}, here {list(here)}, there {list(there)}" for name, (here, there) in shown]
    return "; ".join([*words, *(["..."] if len(differing) > SHOWN else [])])


def _names(weights: Mapping[ModuleID, Mapping[str, Any]]) -> list[str]:
    return [f"{module_id}/{name}" for module_id, named in weights.items() for name in named]


def _outputs(module: Any) -> tuple[str, str]:
    """What the outputs of a policy mean: the kind of the distribution that takes them."""
    network: Network = module.network
    found = network.distribution_class(module.action_space, numpy_ops)
    return found.__module__, found.__name__
