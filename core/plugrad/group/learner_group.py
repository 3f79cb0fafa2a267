"""`LearnerGroup`: one front for one learner in this process or for many in others.

Knows learners through `plugrad.group.learners`, no framework; Ray is imported only for `num_learners >= 1`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import takewhile
from os.path import abspath
from types import TracebackType
from typing import Any, Self

from plugrad.deprecation import Adaptable, adaptable
from plugrad.errors import RestoreMismatchError, UnknownModuleError
from plugrad.group.acting import ActingLearner
from plugrad.group.futures import Dropped, Results, UpdateFuture
from plugrad.group.learners import Learners, LocalLearner
from plugrad.group.remote_learners import RemoteLearners
from plugrad.group.request_queue import BackgroundRequestQueue, RequestQueue
from plugrad.learner import checkpointing
from plugrad.learner.build import Spaces, with_spaces
from plugrad.learner.checkpointing import Hyperparameters
from plugrad.learner.expected_weights import expecting_weights
from plugrad.learner.policies import make_policy, warn_without_statistics
from plugrad.learner.state import check_whole
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.policy import Policy
from plugrad.types import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID

STATE_AFTER_UPDATE = "_rl_module_state_after_update"
"""Where `return_state=True` puts the modules' state in the first learner's results: RLlib's name for it."""


class LearnerGroup(Adaptable):
    """The learners of a config: with `num_learners=0` one in this process, else so many Ray actors.

    Args:
        config: an `AlgorithmConfig`.
        module_spec: in place of the config's.

    Raises:
        ConfigError: the settings cannot be built.
    """

    @adaptable
    def __init__(self, *, config: Any, module_spec: RLModuleSpec | MultiRLModuleSpec | None = None) -> None:
        if module_spec is not None:
            config = config.rl_module(rl_module_spec=module_spec)
        self._learners: Learners = _learners(config)
        self._requests = _requests(config, self._learners)
        self._unread: list[UpdateFuture] = []
        self._is_shut_down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __len__(self) -> int:
        """The number of learners that do the work."""
        return len(self._learners)

    @property
    def config(self) -> Any:
        """The learners' config; it follows `add_module` and `remove_module`."""
        return self._learners.config

    @property
    def is_local(self) -> bool:
        """Whether the learner lives in this process."""
        return not self.is_remote

    @property
    def is_remote(self) -> bool:
        """Whether learners live in other processes."""
        return self._learners.is_remote

    # --- update -------------------------------------------------------------------------------------------------

    @adaptable
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
        """Train on a batch or on episodes: arguments, minibatches and numbers are those of one `Learner.update`.

        Args:
            batch: as in `Learner.update`; the learners share its rows.
            episodes: instead.
            timesteps: as in `Learner.update`.
            async_update: do not wait: return the results of earlier such calls that are done. A local learner
                runs the call at once and returns its results with the next.
            return_state: the modules' state after the update, under "_rl_module_state_after_update" in the first dict.
            **settings: `minibatch_size`, `num_epochs`, `shuffle_batch_per_epoch`, `num_total_minibatches`.

        Returns:
            One result dict per learner, each with the numbers of the whole batch; with `async_update` those of
            every earlier call that is done, `[]` if there is none.

        Raises:
            Exception: what a learner raised, with its rank; with `async_update` what an earlier call raised,
                before this batch is taken.
            QueueFullError: `on_full="raise"` and too many calls are in flight.
        """
        settings["timesteps"] = timesteps
        work = partial(self._update, batch, episodes, settings, return_state)
        if not async_update:
            return self._requests.run(work)
        done = self._done()
        self._unread.append(self._requests.submit(work))
        del self._unread[: len(done)]  # only now: a batch that is refused takes no results with it
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
        """An `update` that is not waited for: updates run in the order of submission, and each has one outcome.

        Args: as `update`.

        Raises:
            QueueFullError: `on_full="raise"` and too many are in flight.
        """
        settings["timesteps"] = timesteps
        return self._requests.submit(partial(self._update, batch, episodes, settings, return_state))

    def get_stats(self) -> dict[str, int]:
        """The counters of `submit` and `async_update`: `submitted` = `applied` + `failed` + `dropped` + `in_flight`."""
        return self._requests.stats()

    def _update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any], return_state: bool
    ) -> Results:
        results = self._learners.update(batch, episodes, settings)
        if return_state:
            results[0][STATE_AFTER_UPDATE] = self._learners.one("get_state", COMPONENT_RL_MODULE)
        return results

    def _done(self) -> list[UpdateFuture]:
        """The first futures, as far as they are done and did not fail; if the very first failed, its error."""
        done = list(takewhile(lambda future: future.state in ("applied", "dropped"), self._unread))
        if not done and self._unread and self._unread[0].state == "failed":
            self._unread.pop(0).result()
        return done

    # --- acting -------------------------------------------------------------------------------------------------

    @property
    def weights_version(self) -> int:
        """Another number after each call that may have changed the learners: update, set_state, add_module, ...

        Who acts with a copy of the weights fetches them again when it has changed; `acting_learner` does so.
        """
        return self._learners.version

    @cached_property
    def acting_learner(self) -> ActingLearner:
        """Acts in this process with the present weights: the local learner, or a copy that follows the remote ones."""
        return ActingLearner(self)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """`Learner.get_policy`, always with the weights that the learners have when `predict` is called."""
        warn_without_statistics(self.config)
        return make_policy(self.acting_learner.up_to_date, module_id)

    def get_versioned_state(self, *components: str) -> tuple[int, dict[str, Any]]:
        """`(weights_version, one learner's state as of that version)`; it does not wait for submitted updates.

        Args:
            components: as in `Learner.get_state`; none: all.
        """

        def work() -> tuple[int, dict[str, Any]]:
            version = self._learners.version
            return version, self._learners.one("get_state", components or None)

        return self._requests.run(work, next_in_line=True)

    # --- learners and modules -----------------------------------------------------------------------------------

    def foreach_learner(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """`[func(learner, *args, **kwargs)]` in rank order; the error of any learner is raised with its rank."""
        return self._requests.run(lambda: self._learners.each("apply", func, *args, **kwargs))

    def add_module(
        self, *, module_id: ModuleID, module_spec: RLModuleSpec, **settings: Any
    ) -> MultiRLModuleSpec:
        """`Learner.add_module` on all learners, or an error and on none."""
        spec: MultiRLModuleSpec = self._change(
            "add_module", module_id=module_id, module_spec=module_spec, **settings
        )
        return spec

    def remove_module(self, module_id: ModuleID, **settings: Any) -> MultiRLModuleSpec:
        """`Learner.remove_module` on all learners, or an error and on none."""
        spec: MultiRLModuleSpec = self._change("remove_module", module_id, **settings)
        return spec

    def _change(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._requests.run(lambda: self._learners.change(method, *args, **kwargs))[0]

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> dict[str, Any]:
        """One learner's state under "learner"; all are equal. Components as in `Learner.get_state`."""
        state = self._requests.run(
            lambda: self._learners.one("get_state", components, not_components=not_components)
        )
        return {COMPONENT_LEARNER: state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set every learner's state to `state["learner"]`, or raise and set none.

        Raises:
            RestoreMismatchError: it does not fit.
        """
        if COMPONENT_LEARNER not in state:
            raise RestoreMismatchError(
                f"a group's state is under {COMPONENT_LEARNER!r}, as get_state() gives it; found: {list(state)}. "
                "Nothing was changed."
            )
        self._change("set_state", state[COMPONENT_LEARNER])

    def get_weights(self, module_ids: Collection[ModuleID] | None = None) -> dict[ModuleID, dict[str, Array]]:
        """Weights of all modules or of those named.

        Raises:
            UnknownModuleError: one that is named is not there.
        """
        weights: dict[ModuleID, dict[str, Array]] = self._requests.run(
            lambda: self._learners.one("get_weights")
        )
        for module_id in module_ids or ():
            if module_id not in weights:
                raise UnknownModuleError(f"no module {module_id!r}; there are: {', '.join(weights)}")
        return weights if module_ids is None else {module_id: weights[module_id] for module_id in module_ids}

    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Set every learner's weights, or raise and set none."""
        self._change("set_weights", weights)

    # --- disk ---------------------------------------------------------------------------------------------------

    def save_to_path(self, path: checkpointing.StrPath, *, keep: int = 2) -> str:
        """One learner writes; the checkpoint is a Learner's and opens in a single Learner too."""
        self._requests.run(lambda: self._learners.one("save_to_path", abspath(path), keep=keep))
        return str(path)

    def restore_from_path(
        self,
        path: checkpointing.StrPath,
        *,
        component: str | None = None,
        hyperparameters: Hyperparameters = "checkpoint",
    ) -> None:
        """Every learner takes over the checkpoint of a group or of a single Learner, or an error and none does.

        Arguments as in `Learner.restore_from_path`.
        """
        self._change("restore_from_path", abspath(path), component=component, hyperparameters=hyperparameters)

    @classmethod
    def from_checkpoint(
        cls, path: checkpointing.StrPath, *, backend: str | None = None, num_learners: int | None = None
    ) -> "LearnerGroup":
        """A group with the config and state of a checkpoint of a group or of a single Learner.

        Args:
            path: a checkpoint directory or one of its saves.
            backend: another than the one that saved it.
            num_learners: another number than the config's.
        """
        checkpoint = checkpointing.load(path, kind="learner")
        check_whole(checkpoint.state, checkpoint.path)
        with checkpointing.saying_what_does_not_fit(checkpoint):
            config = checkpointing.config_of(checkpoint, backend=backend, given=["env"])
            config = config.environment(None)  # it makes none: the spaces are in the config
            config = config if num_learners is None else config.learners(num_learners=num_learners)
            with expecting_weights(checkpoint.state):
                group = cls(config=config)
        try:
            group.restore_from_path(path)
        except BaseException:
            group.shutdown()
            raise
        return group

    def shutdown(self) -> None:
        """Stop the learners; what waits has failed. Calling it again does nothing."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._requests.close()
            self._learners.shutdown()


def _learners(config: Any) -> Learners:
    return RemoteLearners(config) if config.num_learners else LocalLearner(config)


def _requests(config: Any, learners: Learners) -> RequestQueue:
    if learners.is_remote:
        return BackgroundRequestQueue(config.max_requests_in_flight_per_learner, config.on_full)
    return RequestQueue()


def build_learner_group(
    config: Any,
    env: Any = None,
    spaces: Spaces | None = None,
    rl_module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
) -> LearnerGroup:
    """What `config.build_learner_group()` calls; arguments as `build_learner`."""
    return LearnerGroup(config=with_spaces(config, env, spaces), module_spec=rl_module_spec)
