"""The Learner: turns batches into better networks. The conductor: every part has a room of its own.

    learner = PPOConfig().environment(spaces...).build_learner()
    results = learner.update(batch)

Every method that a user may override is also a hook of the same name; those stand in `hooked`. How a learner acts,
reports and remembers stands in `acting`, `reporting` and `remembering`. Knows no framework.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from plugrad.batch import Batch
from plugrad.collective import Collective
from plugrad.errors import ConfigError, NotBuiltError
from plugrad.gradients import Layout
from plugrad.hooks import fronts
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.hooks.manager import HookManager, Plugin
from plugrad.hooks.registry import algorithm_of, load_backend, load_listeners
from plugrad.learner import defaults, disk, modules, optimizer_registry, sharing, step
from plugrad.learner.acting import ActingMethods
from plugrad.learner.broadcasting import ShapeWatch
from plugrad.learner.buffers import Buffers, find_buffers
from plugrad.learner.build import (
    Spaces,
    check_providers,
    choose_device,
    make_connectors,
    make_modules,
    warn_of_unknown_modules,
    with_spaces,
)
from plugrad.learner.call import UpdateCall
from plugrad.learner.components import check_whole
from plugrad.learner.expected_weights import expecting_weights
from plugrad.learner.hooked import HookedMethods
from plugrad.learner.inference import Actor
from plugrad.learner.locking import locked, new_lock
from plugrad.learner.metrics import Metrics
from plugrad.learner.optimizer_registry import RegisteredOptimizer
from plugrad.learner.remembering import RememberingMethods
from plugrad.learner.reporting import ReportingMethods
from plugrad.learner.target_networks import TargetNetwork, make_target_network
from plugrad.learner.undo import Undo
from plugrad.legacy.arguments import takes_older_update_arguments
from plugrad.legacy.learner import LegacyLearner
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.ops import Ops
from plugrad.rl_module import MultiRLModule
from plugrad.schedules import Coefficients, ConfigView
from plugrad.streams import fresh_seed, stream
from plugrad.types import (
    ALL_MODULES,
    TOTAL_LOSS_KEY,
    ModuleID,
    Tensor,
)

CORE = tuple(
    Plugin("core", room.__name__.split(".")[-1], room)
    for room in (defaults, optimizer_registry, sharing, step)
)


class Learner(HookedMethods, ActingMethods, ReportingMethods, RememberingMethods, LegacyLearner):
    """Trains the modules of one process.

    Args:
        config: an `AlgorithmConfig`; its class names the algorithm, `config.backend` the backend.
        module_spec: what to build; default: `config.rl_module_spec`, else the algorithm's.
        module: finished modules instead of a spec: one `RLModule`, a `MultiRLModule` or `{module_id: module}`. A model
            that is no RLModule (`torch.nn.Module`, Keras model) is called with the observations and returns the
            action distribution's inputs, `(inputs, values)`, or columns.
        plugins: listener objects, beside those that `config.plugins(...)` and PLUGRAD_PLUGINS name.
    """

    framework: ClassVar[str | None] = None
    """The backend that a subclass is written for; None: any."""
    TOTAL_LOSS_KEY: ClassVar[str] = TOTAL_LOSS_KEY

    def __init__(
        self,
        *,
        config: Any,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        module: Any = None,
        plugins: Sequence[Any] = (),
    ) -> None:
        if self.framework not in (None, config.backend):
            raise ConfigError(
                f"{type(self).__name__} is written for {self.framework!r} and the config says {config.backend!r}: "
                f"type config.framework({self.framework!r})"
            )
        self.config = config if module_spec or module else with_spaces(config)
        self.seed: int = fresh_seed() if config.seed is None else config.seed
        self.module: MultiRLModule = MultiRLModule({})
        self.registered_optimizers: dict[str, RegisteredOptimizer] = {}
        self.targets: dict[ModuleID, TargetNetwork] = {}
        self.buffers: Buffers = {}
        self.coefficients: dict[ModuleID, Coefficients] = {}
        self.streams: dict[str, np.random.Generator] = {}
        self.counters: dict[str, int] = {}
        self.weights_version = 0
        self.finite: Tensor | None = None
        self.names_parameters = False
        self.watch = ShapeWatch(self)
        self.collective: Collective | None = None
        self.weights: Mapping[ModuleID, Tensor] | None = None
        self.part_weights: Mapping[ModuleID, Tensor] | None = None
        self.update_mode = "not decided before the first update"
        self._given = (module_spec, module, tuple(plugins))
        self._lock = new_lock()
        self._is_built = False

    # --- life ---------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Load the plugins, make modules and optimizers. A second call does nothing.

        Raises:
            PluginConflictError: two plugins answer where one is meant.
            PluginError: a hook has no answer, such as the loss of a plain `AlgorithmConfig`.
            ConfigError: the settings cannot be built.
        """
        if self._is_built:
            return
        self._load_plugins()
        self.module = self._make_module()
        warn_of_unknown_modules(self.config, self.module)
        self._configure(self.config)
        self._is_built = True
        self.tell("learner_built")

    def _load_plugins(self) -> None:
        """Make what modules are built with: the hooks, the device, the ops."""
        self.plugins = self._plugins()
        self._hooks = HookManager(self.plugins, fronts.innermost(self, Learner))
        check_providers(self, Learner, self._hooks)
        fronts.wear_fronts(self, Learner, self._hooks)
        self.backend_info: BackendInfo = self._provide("backend_info")
        self.device = choose_device(self.config, self.backend_info)
        self.ops: Ops = self._provide("ops")
        self.metrics = Metrics(self.ops, self._convert_to_numpy)

    def _configure(self, config: Any) -> None:
        """Make what follows from the settings of training: coefficients, optimizers, connectors, programs."""
        self.config = config
        self.registered_optimizers = {}
        self.coefficients = {}
        self.targets = {}
        for module_id in (*self.module, ALL_MODULES):
            own = self.config if module_id == ALL_MODULES else self.config.get_config_for_module(module_id)
            self.coefficients[module_id] = Coefficients(own, self._get_tensor_variable)
        self.configure_optimizers()
        self.buffers = find_buffers(self)
        for module_id in self.trainable_module_ids:
            make_target_network(self, module_id, self.config.get_config_for_module(module_id))
        self.connectors = make_connectors(self)
        self._actor = Actor(self)
        self._call = UpdateCall(self)

    def _plugins(self) -> list[Plugin]:
        algorithm = algorithm_of(type(self.config))
        listeners = [
            Plugin("listener", getattr(each, "__name__", type(each).__name__), each)
            for each in self._given[2]
        ]
        return [
            *CORE,
            load_backend(self.config.backend),
            *([algorithm] if algorithm else []),
            *load_listeners(self.config.plugin_names),
            *listeners,
        ]

    def _make_module(self) -> MultiRLModule:
        """The modules: those given, else those that the spec describes."""
        return make_modules(self, *self._given[:2])

    def _check_is_built(self, error: bool = True) -> bool:
        """Whether `build()` was called; raises `NotBuiltError` (a ValueError) if not and `error`."""
        if not self._is_built and error:
            raise NotBuiltError(f"this {type(self).__name__} is not built: call build() first")
        return self._is_built

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def shutdown(self) -> None:
        """Nothing to stop; for subclasses with threads."""

    @property
    def distributed(self) -> bool:
        """Whether gradients are averaged over several learners."""
        return bool(self.config.num_learners > 1)

    @property
    def trainable_module_ids(self) -> list[ModuleID]:
        """Modules that the backend can train; others live beside them without an optimizer."""
        return [
            each for each, module in self.module.items() if self._is_module_compatible_with_learner(module)
        ]

    @property
    def layouts(self) -> list[Layout]:
        """The flat layouts of all optimizers, in registration order."""
        return [each.layout for each in self.registered_optimizers.values()]

    def stream(self, *names: str) -> np.random.Generator:
        """This learner's own random generator of these names; part of its state."""
        key = "/".join(names)
        if key not in self.streams:
            self.streams[key] = stream(self.seed, *names)
        return self.streams[key]

    def tell(self, hook: str, **arguments: Any) -> None:
        """Call a listener hook."""
        self._hooks.relay(hook, learner=self, **arguments)

    # --- update -------------------------------------------------------------------------------------------------

    @takes_older_update_arguments
    @locked
    def update(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        timesteps: Mapping[str, int] | None = None,
        minibatch_size: int | None = None,
        num_epochs: int | None = None,
        shuffle_batch_per_epoch: bool | None = None,
        num_total_minibatches: int = 0,
    ) -> dict[ModuleID, dict[str, Any]]:
        """Train on a batch or on episodes. All or nothing: an error leaves everything as it was.

        Args:
            batch: `{module_id: {column: array [B, ...]}}`, a `MultiAgentBatch`, or `{column: array}`.
            episodes: `SingleAgentEpisode`s instead, made into a batch by the learner connectors.
            timesteps: `num_env_steps_sampled_lifetime` moves the schedules; without it they stay.
            minibatch_size: rows per module and minibatch; default from the config; None: the whole batch.
            num_epochs: passes over the batch; default from the config.
            shuffle_batch_per_epoch: a new order for each pass; default from the config.
            num_total_minibatches: exactly so many minibatches (with `accumulate`, the next multiple of it).

        Returns:
            `{module_id: {name: float or array}, ALL_MODULES: {...}}`.

        Raises:
            BatchError: the batch cannot be trained on; says where, what was expected and what was found.
            NonFiniteError: a loss or gradient was not finite and `nonfinite="raise"`.
        """
        self._check_is_built()
        cut = self._call.cut(minibatch_size, num_epochs, shuffle_batch_per_epoch, num_total_minibatches)
        return self._call.run(batch, episodes, timesteps, cut)

    def update_from_batch(self, batch: Any, **settings: Any) -> dict[ModuleID, dict[str, Any]]:
        """`update(batch, **settings)`."""
        return self.update(batch, **settings)

    def update_from_episodes(
        self, episodes: Sequence[Any], **settings: Any
    ) -> dict[ModuleID, dict[str, Any]]:
        """`update(episodes=episodes, **settings)`."""
        return self.update(episodes=episodes, **settings)

    @locked
    def run_connectors(self, episodes: Sequence[Any]) -> Batch:
        """The batch that the learner connectors make of episodes: what `update(episodes=...)` trains on."""
        self._check_is_built()
        undo = Undo(self)
        try:
            return self._call.columns(None, episodes)
        except BaseException:
            undo.restore()
            raise

    def forget_programs(self) -> None:
        """Make the programs of updates anew: what they were made for has changed."""
        self._call = UpdateCall(self)

    def config_view(self, module_id: ModuleID) -> ConfigView:
        """A module's config with scheduled fields as tensors: what losses get."""
        return self.coefficients[module_id].view

    def guard(self, new: Tensor, old: Tensor) -> Tensor:
        """`old` where this minibatch is not finite and `nonfinite="skip"`, else `new`."""
        return self.ops.where(self.finite, new, old) if self.is_guarded else new

    @property
    def is_guarded(self) -> bool:
        """Whether the present step must leave everything as it is if it is not finite."""
        return self.finite is not None and (self.config.nonfinite == "skip" or self.names_parameters)

    # --- modules ------------------------------------------------------------------------------------------------

    @locked
    def add_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        config_overrides: Mapping[str, Any] | None = None,
        new_should_module_be_updated: Collection[ModuleID] | None = None,
    ) -> MultiRLModuleSpec:
        """Build one more module and its optimizers. The others stay as they are, to the bit; so does all on an error.

        Args:
            module_id: 1 to 128 of the characters A-Z a-z 0-9 _ . -, not taken.
            module_spec: what it leaves open comes from the algorithm and the config.
            config_overrides: settings of this module, as in `algorithm_config_overrides_per_module`.
            new_should_module_be_updated: the new `policies_to_train`; None: as before.

        Returns:
            The spec of all modules, as it now stands in `learner.config`.

        Raises:
            ConfigError: the id, the spec, a setting or `new_should_module_be_updated` cannot be used.
        """
        self._check_is_built()
        modules.add_module(self, module_id, module_spec, config_overrides, new_should_module_be_updated)
        spec: MultiRLModuleSpec = self.config.rl_module_spec
        return spec

    @locked
    def remove_module(
        self, module_id: ModuleID, *, new_should_module_be_updated: Collection[ModuleID] | None = None
    ) -> MultiRLModuleSpec:
        """Drop a module with its optimizers, settings, counters and random streams. The others stay as they are.

        Args:
            module_id: which one; not the last.
            new_should_module_be_updated: the new `policies_to_train`; None: as before, without this one.

        Returns:
            The spec of the modules that are left, as it now stands in `learner.config`.

        Raises:
            UnknownModuleError: there is no such module.
            OptimizerError: one of its optimizers also steps another module.
            ConfigError: it is the only module, or `new_should_module_be_updated` cannot be used.
        """
        self._check_is_built()
        modules.remove_module(self, module_id, new_should_module_be_updated)
        spec: MultiRLModuleSpec = self.config.rl_module_spec
        return spec

    # --- disk ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_checkpoint(
        cls,
        path: disk.StrPath,
        *,
        backend: str | None = None,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        module: Any = None,
        plugins: Sequence[Any] = (),
    ) -> "Learner":
        """A built learner with the state of a checkpoint, on the backend that saved it or on another.

        Args:
            path: a checkpoint directory or one of its saves.
            backend: such as "tf2" for a checkpoint of torch.
            module_spec: for modules that were not built from the config.
            module: your own modules.
            plugins: listeners; a checkpoint loads none.
        """
        given = ["env", "learner_class"]  # it is of this class, and makes no environment
        if module_spec is not None or module is not None:
            given.append("rl_module_spec")
        checkpoint = disk.load(path, kind="learner")
        check_whole(checkpoint.state, checkpoint.path)
        with disk.saying_what_does_not_fit(checkpoint):
            config = disk.config_of(checkpoint, backend=backend, given=given)
            config = config.learners(num_learners=0)  # alone, also where a group saved
            learner = cls(config=config, module_spec=module_spec, module=module, plugins=plugins)
            with expecting_weights(checkpoint.state):
                learner.build()
        learner.restore_from_path(path)
        return learner


def build_learner(config: Any, env: Any = None, spaces: Spaces | None = None) -> Learner:
    """What `config.build_learner()` calls: a built learner of `config.learner_class`.

    Args:
        config: an `AlgorithmConfig`.
        env: an environment to take the spaces from.
        spaces: `{module_id: (observation_space, action_space)}` instead.
    """
    learner: Learner = config.get_learner_class()(config=with_spaces(config, env, spaces))
    learner.build()
    return learner
