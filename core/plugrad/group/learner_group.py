"""`LearnerGroup` with a local learner. Knows learners, no framework; Ray is never imported."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from plugrad.errors import ConfigError
from plugrad.learner import Learner, build_learner, disk
from plugrad.learner.build import Spaces, with_spaces
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.types import COMPONENT_LEARNER, Array, ModuleID


class LearnerGroup:
    """The learners of a config: with `num_learners=0` one in this process.

    Args:
        config: an `AlgorithmConfig`.
        module_spec: in place of the config's.

    Raises:
        ConfigError: `num_learners` above 0, which this version cannot serve.
    """

    def __init__(self, *, config: Any, module_spec: RLModuleSpec | MultiRLModuleSpec | None = None) -> None:
        if config.num_learners:
            raise ConfigError(
                f"num_learners={config.num_learners}: remote learners are not part of this version; "
                "type config.learners(num_learners=0)"
            )
        if module_spec is not None:
            config = config.rl_module(rl_module_spec=module_spec)
        self.config = config
        self._learner = build_learner(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __len__(self) -> int:
        return 1

    @property
    def is_local(self) -> bool:
        """Whether the learner lives in this process."""
        return True

    @property
    def is_remote(self) -> bool:
        """Whether learners live in other processes."""
        return False

    def update(
        self, batch: Any = None, *, episodes: Sequence[Any] | None = None, **settings: Any
    ) -> list[dict[ModuleID, dict[str, Any]]]:
        """`Learner.update` on every learner; one result dict per learner."""
        return [self._learner.update(batch, episodes=episodes, **settings)]

    def foreach_learner(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """`[func(learner, ...)]` in rank order."""
        return [self._learner.apply(func, *args, **kwargs)]

    def get_state(self, components: str | Collection[str] | None = None) -> dict[str, Any]:
        """One learner's state under "learner"; all are equal."""
        return {COMPONENT_LEARNER: self._learner.get_state(components)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set every learner's state to `state["learner"]`."""
        self._learner.set_state(state[COMPONENT_LEARNER])

    def get_weights(self, module_ids: Collection[ModuleID] | None = None) -> dict[ModuleID, dict[str, Array]]:
        """Weights of all modules or of those named."""
        weights = self._learner.get_weights()
        return {
            module_id: weights[module_id] for module_id in (weights if module_ids is None else module_ids)
        }

    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Set every learner's weights."""
        self._learner.set_weights(weights)

    def save_to_path(self, path: disk.StrPath, *, keep: int = 2) -> str:
        """One learner writes; the checkpoint opens in a single Learner too."""
        return self._learner.save_to_path(path, keep=keep)

    def restore_from_path(self, path: disk.StrPath, *, component: str | None = None) -> None:
        """Every learner takes over the checkpoint."""
        self._learner.restore_from_path(path, component=component)

    def shutdown(self) -> None:
        """Stop the learners; calling it again does nothing."""
        self._learner.shutdown()


def build_learner_group(
    config: Any,
    env: Any = None,
    spaces: Spaces | None = None,
    rl_module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
) -> LearnerGroup:
    """What `config.build_learner_group()` calls; arguments as `build_learner`."""
    return LearnerGroup(config=with_spaces(config, env, spaces), module_spec=rl_module_spec)


def the_learner(group: LearnerGroup) -> Learner:
    """The learner of a local group: who acts for the env runners."""
    found: list[Learner] = group.foreach_learner(lambda learner: learner)
    return found[0]
