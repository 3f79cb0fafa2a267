"""`Training`: what `Algorithm.train()` does, and what is kept between calls; `OnPolicyTraining`, the simplest one."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from plugrad.config.sampling_settings import tensors_refused
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.results import flatten
from plugrad.sampling.vectorization import samples_per_batch, warn_of_another_batch_size
from plugrad.types import ModuleID

ModuleResults = Mapping[ModuleID, Mapping[str, Any]]


class Training(ABC):
    """The training of one Algorithm.

    Args:
        algorithm: the Algorithm, whose attributes and methods a training step may use.

    Attributes:
        algorithm: the Algorithm; it has `sample()` and `update()`, which are timed and counted, and `learner_group`,
            `env_runner` and `iteration`.
        can_sample_async: whether it can learn from samples of older weights while the next samples are made.
        can_connect_in_env_runners: whether it can learn from what connectors made in the env runners.
        can_sample_tensors: whether it can learn from batches of environments of tensors, without episodes.
    """

    can_sample_async: ClassVar[bool] = False
    can_sample_tensors: ClassVar[bool] = False
    can_connect_in_env_runners: ClassVar[bool] = False

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    @property
    def config(self) -> Any:
        """The algorithm's settings; they change when modules are added or removed."""
        return self.algorithm.config

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Refuse settings that this training does not support, before anything is built from them.

        Raises:
            ConfigError: `sample_async` or `connectors_in_env_runners` is set without env runner processes, or the
                training can do without neither the current weights nor the episodes; or environments give tensors that
                the learner would not get.
        """
        if config.sample_async and not cls.can_sample_async:
            raise ConfigError(
                f"sample_async=True: {type(config).__name__} learns from samples of the present weights only, so that "
                "it cannot request the next sample before it has learned from the last",
                field="sample_async",
            )
        if config.sample_async and not config.num_env_runners:
            raise ConfigError(
                "sample_async=True needs env runners in processes of their own: set num_env_runners to 1 or more",
                field="sample_async",
            )

        if config.connectors_in_env_runners and not cls.can_connect_in_env_runners:
            raise ConfigError(
                f"connectors_in_env_runners=True: {type(config).__name__} does not learn from each sample once and at "
                "once, so that the learner has to run the connectors",
                field="connectors_in_env_runners",
            )
        if config.connectors_in_env_runners and not config.num_env_runners:
            raise ConfigError(
                "connectors_in_env_runners=True needs env runners in processes of their own: set num_env_runners to 1 "
                "or more",
                field="connectors_in_env_runners",
            )
        if config.gives_tensors:
            _check_tensors(config, can_sample=cls.can_sample_tensors)

    @abstractmethod
    def training_step(self) -> ModuleResults:
        """Run one training step: get experience, then update.

        Returns:
            `{module_id: {name: value}}`, as `Learner.update` returns it; `{}` if there was nothing to learn from yet.
        """

    def get_metrics(self) -> Mapping[str, float]:
        """Additional results of the training steps since the last call, `{path: value}`; default: none."""
        return {}

    @property
    def num_env_steps(self) -> int:
        """Environment steps of the whole run so far, which schedules and `--stop-timesteps` use."""
        return int(self.algorithm.env_runner.total_steps)

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to continue exactly from here: nested dicts of arrays and plain values."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned; `{}` if the checkpoint has no such state.

        Raises:
            RestoreMismatchError: the state does not fit this training.
        """
        if state:
            raise RestoreMismatchError(
                f"{type(self).__name__} keeps nothing between iterations; unexpected: {', '.join(state)}",
                unexpected=list(state),
            )


def _check_tensors(config: Any, *, can_sample: bool) -> None:
    """Refuse environments of tensors where a learner could not read them in its own process."""
    if not can_sample:
        why = f"{type(config).__name__} learns from episodes"
    elif config.num_env_runners:
        why = f"num_env_runners={config.num_env_runners} sample in processes that have no learner's device"
    elif config.num_learners or config.launcher != "ray":
        why = f"learners are in other processes (num_learners={config.num_learners}, launcher={config.launcher!r})"
    else:
        return
    raise tensors_refused(f"{why}, and tensors stay in this process")


class OnPolicyTraining(Training):
    """Samples one batch with the current policy, updates once on it, and discards it.

    A batch is as many samples of all environments as it takes for `train_batch_size` steps, as in RLlib: one, unless
    `rollout_fragment_length` is shorter. If it has more steps, the first training step logs both numbers.

    Args:
        algorithm: see `Training`.
    """

    can_connect_in_env_runners: ClassVar[bool] = True
    can_sample_tensors: ClassVar[bool] = True

    @classmethod
    def check_config(cls, config: Any) -> None:
        """See `Training`.

        Raises:
            ConfigError: also with `connectors_in_env_runners`, if a batch is several samples: an episode that goes on
                in the next one is one episode for the connectors.
        """
        super().check_config(config)
        if config.connectors_in_env_runners:
            each = (config, *map(config.get_config_for_module, config.policies or ()))
            if why := next((own.needs_whole_batch for own in each if own.needs_whole_batch), ""):
                raise ConfigError(f"connectors_in_env_runners=True: {why}", field="connectors_in_env_runners")
        if config.connectors_in_env_runners and (number := samples_per_batch(config)) > 1:
            raise ConfigError(
                f"connectors_in_env_runners=True: a batch of {config.train_batch_size} steps is {number} samples "
                "here, and an episode may go on from one to the next; set "
                "rollout_fragment_length=None",
                field="connectors_in_env_runners",
            )

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self._has_said_how_many = False
        self._has_sampled = False
        self._earlier: Counter[str] = Counter()

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        if not self._has_said_how_many:
            self._has_said_how_many = True
            warn_of_another_batch_size(self.config)
        samples = [self._sample() for _ in range(samples_per_batch(self.config))]
        results: ModuleResults
        if self.config.connectors_in_env_runners or self.config.gives_tensors:
            results = self.algorithm.update(self.algorithm.env_runner.take_batch())
        else:
            results = self.algorithm.update(episodes=[each for sample in samples for each in sample])
        return results

    def get_metrics(self) -> Mapping[str, float]:
        """See `Training`: the counts of all samples of an iteration; an env runner's are of its last one."""
        self._has_sampled = False
        earlier, self._earlier = self._earlier, Counter()
        if not earlier:
            return {}
        return {f"env_runners/{name}": number for name, number in (earlier + self._counts()).items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`; what was sampled before counts no more."""
        super().set_state(state)
        self._has_sampled = False
        self._earlier.clear()

    def _sample(self) -> list[Any]:
        if self._has_sampled:
            self._earlier += self._counts()
        self._has_sampled = True
        episodes: list[Any] = self.algorithm.sample()
        return episodes

    def _counts(self) -> Counter[str]:
        metrics = flatten(self.algorithm.env_runner.get_metrics())
        return Counter({name: number for name, number in metrics.items() if name.startswith("num_")})
