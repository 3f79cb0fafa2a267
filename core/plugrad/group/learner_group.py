"""`LearnerGroup`: one learner in this process, or several in Ray actors, with the same interface.

Ray is imported only for `num_learners >= 1`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from os.path import abspath
from typing import Any, Self

from plugrad.config import RAY, Config
from plugrad.deprecation import HasOlderNames, call_with_older_arguments
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import ConfigError, RestoreMismatchError, UnfinishedStepError, UnknownModuleError
from plugrad.group.acting_learner import ActingLearner, LocalLearner
from plugrad.group.remote_learners import RemoteLearners
from plugrad.group.request_queue import (
    BackgroundRequestQueue,
    Dropped,
    RequestQueue,
    Results,
    UpdateFuture,
    first_done,
)
from plugrad.learner.acting.module_policy import make_policy, warn_without_statistics
from plugrad.learner.state.checkpoint import Hyperparameters
from plugrad.learner.state.state import warn_of_unwritable
from plugrad.learner.state.untrusted import config_to_build
from plugrad.losses import Loss
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.policy import Policy
from plugrad.types import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID, StrPath

STATE_AFTER_UPDATE = "_rl_module_state_after_update"
"""The key of the modules' state in the first learner's results with `return_state=True`; the name is RLlib's."""

OPTIM_STEP = "optim_step"

SETTINGS_OF_UPDATE = frozenset(
    {"minibatch_size", "num_epochs", "shuffle_batch_per_epoch", "num_total_minibatches"}
)
"""Arguments of `update` that the learners take."""


class LearnerGroup(HasOlderNames):
    """Trains with one learner in this process (`num_learners=0`) or with several in Ray actors.

    With `learners(launcher="env")` each process that a cluster has started has a group of its own with one learner,
    which is one of several: see `Learner.update`.

    Each learner computes its share of a batch; gradients, losses and metrics are reduced over all learners, so that
    results do not depend on their number. Every method that changes the learners either changes all of them, or raises
    and changes none. A group is a context manager that shuts it down.

    ```python
    with config.learners(num_learners=2).build_learner_group(spaces=spaces) as group:
        results = group.update(batch)
    ```

    Args:
        config: an `AlgorithmConfig`.
        module_spec: used instead of the config's `rl_module_spec`.
        plugins: listener objects, in addition to those that the config names; learners in other processes have copies.

    A warning names a setting that cannot be saved, such as a lambda.

    Raises:
        ConfigError: the settings cannot be used.
        MissingFrameworkError: Ray, or the framework of the backend, is not installed.
        LearnerTimeoutError: the learners were not built within `build_timeout_s`.
    """

    def __init__(
        self,
        *,
        config: Config,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        plugins: Sequence[Any] = (),
    ) -> None:
        if module_spec is not None:
            config = config.rl_module(rl_module_spec=module_spec)
        warn_of_unwritable(config)
        self._requests = RequestQueue()
        self._learners: LocalLearner | RemoteLearners
        if config.num_learners and config.launcher == RAY:
            if not config.undo:
                raise ConfigError(
                    "undo=False: a group undoes an update on all learners: type config.training(undo=True) "
                    "or .learners(num_learners=0)",
                    field="undo",
                )
            self._learners = RemoteLearners(config, plugins)
            limit = config.max_requests_in_flight_per_learner
            self._requests = BackgroundRequestQueue(limit, config.on_full)
        else:
            self._learners = LocalLearner(config, plugins)
        self._unread: list[UpdateFuture] = []
        self._verbs: list[tuple[str, UpdateFuture]] = []  # since the last step, and that step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    def __len__(self) -> int:
        """The number of learners; 1 for a local one that is alone."""
        return len(self._learners)

    @property
    def config(self) -> Config:
        """The learners' config; it follows `add_module` and `remove_module`."""
        return self._learners.config

    @property
    def is_local(self) -> bool:
        """Whether the learner is in this process."""
        return not self.is_remote

    @property
    def is_remote(self) -> bool:
        """Whether the learners are in other processes."""
        return self._learners.is_remote

    # --- update -------------------------------------------------------------------------------------------------

    def update(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        timesteps: Mapping[str, int] | None = None,
        async_update: bool = False,
        return_state: bool = False,
        **settings: Any,
    ) -> Results:
        """Train on a batch or on episodes. The results equal those of one `Learner.update`.

        Args:
            batch: `{module_id: {column: array [B, ...]}}`, a `MultiAgentBatch`, or `{column: array}`.
            episodes: `SingleAgentEpisode`s or `MultiAgentEpisode`s instead of a batch.
            timesteps: counters for the schedules, such as `{"num_env_steps_sampled_lifetime": 4000}`.
            async_update: do not wait. The call returns the results of earlier calls that are done. A local learner runs
                the update at once and returns its results with the next call.
            return_state: add the modules' state after the update to the first result dict, under
                `"_rl_module_state_after_update"`.
            **settings: `minibatch_size`, `num_epochs`, `shuffle_batch_per_epoch` and `num_total_minibatches`, as in
                `Learner.update`.

        Returns:
            One result dict `{module_id: {name: float or array}}` per learner, each with the results for the whole
            batch. With `async_update`, the dicts of all earlier calls that are done; `[]` if there are none.

        Raises:
            Exception: what a learner raised, with its rank. With `async_update`, what an earlier call raised; this
                batch is then not accepted.
            LearnerGroupDeadError: learners died and cannot be replaced, or the group was shut down.
            LearnerTimeoutError: learners do not answer and cannot be replaced.
            QueueFullError: with `async_update` and `on_full="raise"`, too many updates are in flight.
        """
        if unknown := {name: settings.pop(name) for name in settings.keys() - SETTINGS_OF_UPDATE}:
            settings |= {"batch": batch, "episodes": episodes, "timesteps": timesteps}
            settings |= {"async_update": async_update, "return_state": return_state}
            results: Results = call_with_older_arguments(LearnerGroup.update, self, unknown, settings)
            return results
        settings["timesteps"] = timesteps
        work = partial(self._update, batch, episodes, settings, return_state)
        if not async_update:
            return self._requests.run(work)
        done = first_done(self._unread)
        self._unread.append(self._requests.submit(work))
        del self._unread[: len(done)]  # only now, so that a refused batch does not lose results
        outcomes = [future.result() for future in done]
        return [each for outcome in outcomes if not isinstance(outcome, Dropped) for each in outcome]

    def submit(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        timesteps: Mapping[str, int] | None = None,
        return_state: bool = False,
        **settings: Any,
    ) -> UpdateFuture:
        """Submit an update without waiting. Updates run in the order of submission.

        Args:
            batch, episodes, timesteps, return_state, **settings: as in `update`.

        Returns:
            A future. Its `result(timeout)` returns what `update` returns, raises its error, or returns `Dropped`.

        Raises:
            QueueFullError: `on_full="raise"` and too many updates are in flight.
            LearnerGroupDeadError: the group was shut down.
        """
        settings["timesteps"] = timesteps
        return self._requests.submit(partial(self._update, batch, episodes, settings, return_state))

    def forward_backward(self, batch: Any, loss: Loss | str | None = None) -> UpdateFuture:
        """Submit `Learner.forward_backward`: the learners add their shares of the gradients of a batch.

        Verbs, updates and all other calls run in the order of the calls. If a verb fails, nothing of its step is
        applied: those that were submitted before its error was taken with `result` fail too.

        Args:
            batch: see there.
            loss: see there; with remote learners the function is pickled.

        Returns:
            A future. Its `result(timeout)` returns one result dict per learner, each with the means of the whole batch,
            or raises the error.

        Raises:
            QueueFullError: `on_full="raise"` and too many updates are in flight.
            LearnerGroupDeadError: the group was shut down.
        """
        return self._submit_verb("forward_backward", (batch,), {"loss": loss})

    def optim_step(self, *, timesteps: Mapping[str, int] | None = None) -> UpdateFuture:
        """Submit `Learner.optim_step`: the learners sum their gradients, and all take the same step.

        Args:
            timesteps: as in `update`.

        Returns:
            A future. Its `result(timeout)` returns what `update` returns, or raises the error.

        Raises:
            QueueFullError: `on_full="raise"` and too many updates are in flight.
            LearnerGroupDeadError: the group was shut down.
        """
        return self._submit_verb(OPTIM_STEP, (), {"timesteps": timesteps})

    def drop_gradients(self) -> None:
        """Forget what `forward_backward` has accumulated: the learners are as after their last step."""
        self._requests.run(self._learners.drop_gradients)
        self._verbs = []

    def _submit_verb(self, verb: str, args: tuple[Any, ...], settings: Mapping[str, Any]) -> UpdateFuture:
        unseen = [(name, future) for name, future in self._verbs if not future.is_seen]
        future = self._requests.submit(partial(self._run_verb, verb, args, settings, unseen))
        self._verbs = [*(unseen if verb != OPTIM_STEP else []), (verb, future)]
        return future

    def _run_verb(
        self,
        verb: str,
        args: tuple[Any, ...],
        settings: Mapping[str, Any],
        unseen: Sequence[tuple[str, UpdateFuture]],
    ) -> Results:
        for name, each in unseen:
            if each.state == "dropped" or (each.state == "failed" and name != OPTIM_STEP):
                self._learners.drop_gradients()
                error = each.exception()
                why = "it was dropped, because too many were in flight" if error is None else repr(error)
                raise UnfinishedStepError(
                    f"{verb}: nothing of this step is applied, because {name}, submission {each.number}, failed: {why}"
                ) from error
        try:
            return self._learners.run_verb(verb, args, settings)
        except BaseException:
            with suppress(Exception):  # what fails before it reaches the learners leaves theirs
                self._learners.drop_gradients()
            raise

    def get_stats(self) -> dict[str, Any]:
        """Counts of submitted updates, and what the group runs on.

        Returns:
            The counts `submitted` = `applied` + `failed` + `dropped` + `in_flight`; `collective`, the name of the
            collective that sums gradients (None for a single learner); and `standby_ready`, the number of learners that
            are ready to replace one that dies.
        """
        return {**self._requests.get_stats(), **self._learners.get_stats()}

    def _update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any], return_state: bool
    ) -> Results:
        results = self._learners.update(batch, episodes, settings)
        if return_state:
            results[0][STATE_AFTER_UPDATE] = self._learners.call_one("get_state", COMPONENT_RL_MODULE)
        return results

    # --- acting -------------------------------------------------------------------------------------------------

    @property
    def weights_version(self) -> int:
        """A number that changes after each call that may have changed the learners. Copies of weights are then old."""
        return self._learners.version

    @cached_property
    def acting_learner(self) -> ActingLearner:
        """Acts in this process with the current weights: the local learner, or a copy of the remote ones."""
        return ActingLearner(self._learners, self.get_versioned_state)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """A policy that always acts with the current weights: see `Learner.get_policy`."""
        warn_without_statistics(self.config)
        return make_policy(self.acting_learner.get_synced, module_id)

    def get_versioned_state(self, *components: str) -> tuple[int, dict[str, Any]]:
        """The state of one learner and its version. Does not wait for submitted updates that have not begun.

        Args:
            *components: as in `Learner.get_state`; without any, all.

        Returns:
            `(weights_version, state)`.

        Raises:
            ConfigError: there is no such component.
        """
        return self._requests.run(
            lambda: (self._learners.version, self._learners.call_one("get_state", components or None)),
            next_in_line=True,
        )

    # --- learners and modules -----------------------------------------------------------------------------------

    def foreach_learner(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call `func(learner, *args, **kwargs)` on each learner.

        Args:
            func: a function of a learner; with remote learners it is pickled.
            *args, **kwargs: its further arguments.

        Returns:
            Its values in rank order.

        Raises:
            Exception: what `func` raised on a learner, with the rank.
        """
        return self._requests.run(lambda: self._learners.call_each("apply", func, *args, **kwargs))

    def resize(self, num_learners: int) -> None:
        """Change the number of remote learners, after the updates submitted before. Results stay the same.

        Args:
            num_learners: 1 or more.

        Raises:
            ConfigError: it is not such a number, or this group has a local learner.
            Exception: a learner could not be built, and the group is unchanged; otherwise as in `update`.
        """
        self._requests.run(lambda: self._learners.resize(num_learners))

    def add_module(
        self, *, module_id: ModuleID, module_spec: RLModuleSpec, **settings: Any
    ) -> MultiRLModuleSpec:
        """Add a module with its optimizers to all learners, or raise and add it to none.

        Args:
            module_id: a new id.
            module_spec: what it does not specify comes from the algorithm and the config.
            **settings: `config_overrides` and `new_should_module_be_updated`, as in `Learner.add_module`.

        Returns:
            The spec of all modules.

        Raises:
            ConfigError: the id, the spec or a setting cannot be used.
        """
        settings |= {"module_id": module_id, "module_spec": module_spec}
        return self._change("add_module", **settings)  # type: ignore[no-any-return]

    def remove_module(self, module_id: ModuleID, **settings: Any) -> MultiRLModuleSpec:
        """Remove a module with its optimizers from all learners, or raise and remove it from none.

        Args:
            module_id: the module; not the only one.
            **settings: `new_should_module_be_updated`, as in `Learner.remove_module`.

        Returns:
            The spec of the remaining modules.

        Raises:
            UnknownModuleError: there is no such module.
            OptimizerError: one of its optimizers also steps parameters of another module.
            ConfigError: it is the only module, or a setting cannot be used.
        """
        return self._change("remove_module", module_id, **settings)  # type: ignore[no-any-return]

    def _change(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._requests.run(lambda: self._learners.call_all(method, *args, **kwargs))[0]

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> dict[str, Any]:
        """The state of one learner; all are equal.

        Args:
            components: as in `Learner.get_state`, such as `"rl_module"`; None: all.
            not_components: components or parts to leave out.

        Returns:
            `{"learner": state}`, nested dicts of numpy copies and plain values.

        Raises:
            ConfigError: there is no such component.
        """
        state = self._requests.run(
            lambda: self._learners.call_one("get_state", components, not_components=not_components)
        )
        return {COMPONENT_LEARNER: state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into every learner, or raise and change none.

        Args:
            state: from `get_state`: `{"learner": state}`.

        Raises:
            RestoreMismatchError: it does not fit the learners.
        """
        if COMPONENT_LEARNER not in state:
            raise RestoreMismatchError(
                f"a group's state is under {COMPONENT_LEARNER!r}, as get_state() gives it; found: {list(state)}. "
                "Nothing was changed."
            )
        if COMPONENT_RL_MODULE in state[COMPONENT_LEARNER]:
            self._warn_of_statistics()
        self._change("set_state", state[COMPONENT_LEARNER])

    def get_weights(self, module_ids: Collection[ModuleID] | None = None) -> dict[ModuleID, dict[str, Array]]:
        """Numpy copies of the weights of some modules, or of all: `{module_id: {parameter name: array}}`.

        Args:
            module_ids: ids of the modules; None: all.

        Raises:
            UnknownModuleError: there is no such module.
        """
        weights: dict[ModuleID, dict[str, Array]] = self._requests.run(
            lambda: self._learners.call_one("get_weights")
        )
        for module_id in module_ids or ():
            if module_id not in weights:
                raise UnknownModuleError(f"no module {module_id!r}; there are: {', '.join(weights)}")
        return weights if module_ids is None else {module_id: weights[module_id] for module_id in module_ids}

    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Load weights into every learner, or raise and change none.

        Args:
            weights: from `get_weights`: `{module_id: {parameter name: array}}`.

        Raises:
            UnknownModuleError: there is no such module.
            RestoreMismatchError: they do not fit the modules.
        """
        self._warn_of_statistics()
        self._change("set_weights", weights)

    def _warn_of_statistics(self) -> None:
        """Warn that weights come without the statistics that env runners have."""
        kinds = [each for each in ("observations", "rewards") if getattr(self.config, f"normalize_{each}")]
        if kinds:
            warn_at_users_line(
                f"{' and '.join(f'normalize_{each}=True' for each in kinds)}: weights are loaded, and the statistics "
                f"of {' and '.join(kinds)} stay as they are: env runners have them, so the modules may see other "
                "numbers than in training. Algorithm."
                'restore_from_path(path, component="rl_module") loads both; or call algorithm.set_statistics('
                "other.get_statistics()) too"
            )

    # --- disk ---------------------------------------------------------------------------------------------------

    def save_to_path(self, path: StrPath, *, keep: int = 2) -> str:
        """Write a checkpoint, which a group of any size or a single `Learner` can restore.

        Args:
            path: a directory; it is created if it does not exist.
            keep: how many saves to keep in it.

        Returns:
            `path`.

        Raises:
            CheckpointError: it cannot be written, or another process writes there; older saves are unchanged.
        """
        self._requests.run(lambda: self._learners.call_one("save_to_path", abspath(path), keep=keep))
        return str(path)

    def restore_from_path(
        self,
        path: StrPath,
        *,
        component: str | None = None,
        hyperparameters: Hyperparameters = "checkpoint",
    ) -> None:
        """Restore every learner from a checkpoint of a group or a single Learner, or raise and change none.

        Args:
            path: a checkpoint directory or one of its saves.
            component: such as `"rl_module"` or `"rl_module/p0"`; None: all.
            hyperparameters: which training settings to use afterwards: those of the `"checkpoint"`, or those of this
                group's `"config"`.

        Raises:
            CheckpointError: it cannot be read.
            ConfigError: it has no such component.
            RestoreMismatchError: it does not fit.
        """
        if component is None or component.startswith(COMPONENT_RL_MODULE):
            self._warn_of_statistics()
        self._restore(path, component=component, hyperparameters=hyperparameters)

    def _restore(self, path: StrPath, **settings: Any) -> None:
        """`restore_from_path` for a caller that takes care of the statistics of observations."""
        self._change("restore_from_path", abspath(path), **settings)

    @classmethod
    def from_checkpoint(
        cls,
        path: StrPath,
        *,
        backend: str | None = None,
        num_learners: int | None = None,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        plugins: Sequence[Any] = (),
    ) -> "LearnerGroup":
        """Build a group with the config and state of a checkpoint of a group or a single Learner.

        Args:
            path: a checkpoint directory or one of its saves.
            backend: used instead of the backend that saved it.
            num_learners: used instead of the config's.
            module_spec: for modules that were not built from the config.
            plugins: listener objects; a checkpoint loads none.

        Returns:
            The group, with the checkpoint's state.

        Raises:
            CheckpointError: it cannot be read.
            ConfigError: its settings name code, which a checkpoint never imports; says what to give instead.
            RestoreMismatchError: its state does not fit its config.
        """
        given = ["env", "agent_to_module", *(["rl_module_spec"] if module_spec is not None else [])]
        with config_to_build(path, kind="learner", backend=backend, given=given) as config:
            config = config.environment(None)  # no environment is made: the spaces are in the config
            config = config if num_learners is None else config.learners(num_learners=num_learners)
            group = cls(config=config, module_spec=module_spec, plugins=plugins)
        try:
            group._restore(path)
        except BaseException:
            group.shutdown()
            raise
        return group

    def shutdown(self) -> None:
        """Shut down the learners; updates in flight fail. Calling it again does nothing."""
        if not self._requests.closed:
            self._requests.close()
            self._learners.shutdown()
