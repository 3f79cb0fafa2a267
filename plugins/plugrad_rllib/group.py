"""Older methods of a LearnerGroup: each does what its name did, by the methods of today."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.learner import Learner
from plugrad.learner.state.checkpoint import load_state
from plugrad.types import COMPONENT_RL_MODULE, ModuleID, StrPath
from plugrad_rllib.overrides import (
    Bridge,
    adapt_subclasses,
    add_names,
    honour_overrides,
    newer,
    older,
    older_method,
    same_arguments,
)
from plugrad_rllib.saving import OlderSaving, cross_restore, cross_save
from plugrad_rllib.warning import warn_older

ResultsList = list[dict[str, Any]]


def _takes_spec(init: Callable[..., None]) -> Callable[..., None]:
    """`LearnerGroup.__init__` that may be given `(learner_spec, max_queue_len=20)`.

    As then, a full queue drops its oldest batch.
    """

    @wraps(init)
    def init_group(group: Any, *specs: Any, **settings: Any) -> None:
        spec: Any = settings.pop("learner_spec", specs[0] if specs else None)
        if spec is None:
            return init(group, *specs, **settings)
        warn_older("LearnerGroup(learner_spec)", "LearnerGroup(config=...)")
        if spec.module is not None:
            raise ConfigError(
                "LearnerGroup(learner_spec): a group builds its modules: give module_spec, not module"
            )
        limit: Any = settings.pop("max_queue_len", specs[1] if len(specs) > 1 else 20)
        config = spec.to_config().changed(
            learner_class=spec.learner_class, max_requests_in_flight_per_learner=limit, on_full="drop_oldest"
        )
        return init(group, config=config, module_spec=spec.module_spec)

    return init_group


class OlderLearnerGroup:
    """What a LearnerGroup was called with before Ray 2.44."""

    update_from_batch = older_method("update_from_batch", "update")

    @property
    def _learner(self: Any) -> Learner | None:
        """The learner of this process; None if the learners are remote."""
        warn_older("LearnerGroup._learner", "foreach_learner(function)")
        learner: Learner | None = None if self.is_remote else self._learners.learner
        return learner

    def update_from_episodes(self, episodes: Sequence[Any], **settings: Any) -> ResultsList:
        """`update(episodes=episodes, **settings)`."""
        return newer(self, "update", "update_from_episodes")(episodes=episodes, **settings)  # type: ignore[no-any-return]

    def async_update(self, batch: Any, **settings: Any) -> ResultsList:
        """`update(batch, async_update=True, **settings)`: the results of earlier calls."""
        update = newer(self, "update", "async_update", "update(async_update=True)")
        return update(batch, async_update=True, **settings)  # type: ignore[no-any-return]

    def get_in_queue_stats(self) -> dict[str, Any]:
        """`get_stats()`, and how many updates wait and were dropped under RLlib's older keys.

        `learner_group_queue_size` counts what is in flight, `learner_group_queue_ts_dropped` dropped updates, where
        RLlib counted their steps.
        """
        stats = newer(self, "get_stats", "get_in_queue_stats")()
        older = {
            "learner_group_queue_size": stats["in_flight"],
            "learner_group_queue_ts_dropped": stats["dropped"],
        }
        return {**stats, **older}

    def additional_update(self: Any, *, reduce_fn: Any = None, **kw: Any) -> Any:
        """`Learner.additional_update` on every learner; a list of results, or what `reduce_fn` makes of it."""
        warn_older("LearnerGroup.additional_update()", "update(timesteps=...), which does it")
        results = [self._change("additional_update", **kw)] * len(self)
        return results if reduce_fn is None else reduce_fn(results)

    def load_module_state(
        self: Any,
        *,
        multi_rl_module_ckpt_dir: StrPath | None = None,
        modules_to_load: Collection[ModuleID] | None = None,
        rl_module_ckpt_dirs: Mapping[ModuleID, StrPath] | None = None,
        marl_module_ckpt_dir: StrPath | None = None,
    ) -> None:
        """Load the weights of modules from checkpoints of learners or groups: all of them or none.

        Args:
            multi_rl_module_ckpt_dir: a checkpoint with these modules.
            modules_to_load: which of them; None: all.
            rl_module_ckpt_dirs: `{module_id: a checkpoint that has this module, or has only one}`.
            marl_module_ckpt_dir: the same as `multi_rl_module_ckpt_dir`.

        Raises:
            ConfigError: a module is in `modules_to_load` and in `rl_module_ckpt_dirs`, or in no checkpoint.
        """
        warn_older("load_module_state()", "restore_from_path(path, component='rl_module/<module id>')")
        several = multi_rl_module_ckpt_dir or marl_module_ckpt_dir
        singles = rl_module_ckpt_dirs or {}
        twice = set(modules_to_load or ()) & set(singles)
        if twice:
            raise ConfigError(f"in modules_to_load and in rl_module_ckpt_dirs: {', '.join(sorted(twice))}")
        weights = {} if several is None else _weights_in(several, modules_to_load)
        for module_id, path in singles.items():
            weights.update(_weights_in(path, [module_id], rename=True))
        self.set_weights(weights)

    def set_is_module_trainable(
        self: Any, is_module_trainable: Callable[..., Any] | Collection[ModuleID] | None
    ) -> None:
        """Set `policies_to_train` of every learner.

        Args:
            is_module_trainable: module ids, None for all, or a rule `rule(module_id, batch)`. It is asked now, with
                None for the batch; for a rule that reads the batch, override `Learner.should_module_be_updated`.
        """
        warn_older("set_is_module_trainable()", "AlgorithmConfig.multi_agent(policies_to_train=...)")
        chosen: Any = is_module_trainable
        if callable(chosen):
            chosen = [module_id for module_id in self.get_weights() if chosen(module_id, None)]
        self._change("apply", _train_only, chosen)


def _train_only(learner: Learner, module_ids: Collection[ModuleID] | None) -> None:
    learner.config = learner.config.changed(
        policies_to_train=None if module_ids is None else list(module_ids)
    )


def _weights_in(
    path: StrPath, module_ids: Collection[ModuleID] | None, *, rename: bool = False
) -> dict[ModuleID, Any]:
    found = load_state(path, kind="learner").state[COMPONENT_RL_MODULE]
    if rename and len(found) == 1:
        return dict.fromkeys(module_ids or (), *found.values())
    missing = [module_id for module_id in module_ids or () if module_id not in found]
    if missing:
        raise ConfigError(f"{path} has no module {', '.join(missing)}; there are: {', '.join(found)}")
    return {module_id: found[module_id] for module_id in (found if module_ids is None else module_ids)}


# --- overrides, called by the methods of today ---------------------------------------------------------------------


def _cross_update(group: Any, below: Any, *args: Any, async_update: bool = False, **settings: Any) -> Any:
    given = {name: value for name, value in settings.items() if value is not None}
    episodes = given.pop("episodes", None)
    if async_update:
        return older(group, "async_update")(*args, **given)
    if episodes is None:
        return older(group, "update_from_batch")(*args, **given)
    return older(group, "update_from_episodes")(episodes, **given)


BRIDGES = (
    Bridge("update", ("async_update", "update_from_batch", "update_from_episodes"), _cross_update),
    same_arguments("get_stats", "get_in_queue_stats"),
    Bridge("save_to_path", ("save_state",), cross_save),
    Bridge("restore_from_path", ("load_state",), cross_restore),
)


def adapt() -> None:
    """Make the older names and arguments of a LearnerGroup work, and overrides by them."""
    add_names(LearnerGroup, OlderLearnerGroup, OlderSaving)
    LearnerGroup.__init__ = _takes_spec(LearnerGroup.__init__)  # type: ignore[method-assign]
    adapt_subclasses(LearnerGroup, partial(honour_overrides, LearnerGroup, BRIDGES))
