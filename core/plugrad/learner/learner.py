"""The Learner: trains the modules of one process. Its methods are here; the work is done in the other files here.

    learner = PPOConfig().environment(spaces...).build_learner()
    results = learner.update(batch)

Methods that are also hooks come from base classes, which declare the hooks (`plugrad.hooks`).
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import cached_property, partial, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, Never, ParamSpec, TypeVar

import numpy as np

from plugrad.batch import Batch, check_observation_values, check_observations
from plugrad.checkpoint import Checkpoint
from plugrad.collective import Collective
from plugrad.config import RAY, Config
from plugrad.deprecation import HasOlderNames, call_with_older_arguments, unknown_attribute
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError, NotBuiltError, NotUndoneError
from plugrad.gradients import Gradients, Layout
from plugrad.hooks.algorithm_spec import AlgorithmSpec
from plugrad.hooks.author_line import authors_traceback
from plugrad.hooks.backend_spec import BackendInfo, BackendSpec, Capability, StepContext
from plugrad.hooks.gradient_spec import GradientSpec
from plugrad.hooks.learner_protocol import RegisteredOptimizer
from plugrad.hooks.learner_spec import LearnerSpec
from plugrad.hooks.manager import HookManager, Plugin, bind_hooks
from plugrad.hooks.registry import algorithm_of, load_backend, load_listeners
from plugrad.importing.names import is_unnamed
from plugrad.learner.acting.actor import Actor
from plugrad.learner.acting.module_policy import make_policy, warn_without_statistics
from plugrad.learner.modules import add_remove as modules
from plugrad.learner.modules.build import (
    Spaces,
    check_providers,
    choose_device,
    make_connectors,
    make_modules,
    warn_of_unknown_modules,
    with_spaces,
)
from plugrad.learner.modules.capabilities import check_precision
from plugrad.learner.modules.structured_observations import episodes_in_rows, rows_of
from plugrad.learner.peers import ACTIONS, Peers
from plugrad.learner.state.buffers import (
    Buffers,
    fill_missing_buffers,
    find_buffers,
    note_made,
    register,
    with_new_plugin_state,
)
from plugrad.learner.state.checkpoint import (
    Hyperparameters,
    as_checkpoint_error,
    check_byte_scales,
    check_module_spaces,
    kept_coefficients,
    load_state,
    log_hyperparameters,
    plugin_manifest,
    warn_of_other_normalization,
    warn_of_other_plugins,
    with_hyperparameters_of,
)
from plugrad.learner.state.components import find_made_variables
from plugrad.learner.state.state import (
    Paths,
    Snapshot,
    check_whole,
    copy_state,
    load_into,
    load_optimizers,
    metadata_of,
    optimizer_states,
    pick_parts,
    restore_on_error,
    save_state,
)
from plugrad.learner.state.untrusted import config_to_build
from plugrad.learner.update import data_parallel, default_hooks, step
from plugrad.learner.update import optimizers as optimizer_registry
from plugrad.learner.update.batched_programs import ProgramBatch
from plugrad.learner.update.broadcast_check import ShapeCheck
from plugrad.learner.update.connectors import values_of_episodes
from plugrad.learner.update.minibatches import Shapes, find_noise_columns
from plugrad.learner.update.optimizers import (
    check_all_have_optimizers,
    check_gradient_names,
    count_parameters,
    freeze_parameters,
)
from plugrad.learner.update.run import UpdateRun
from plugrad.learner.update.target_networks import TargetNetwork, make_target_network
from plugrad.learner.update.verbs import Done, Verbs
from plugrad.losses import Loss
from plugrad.metrics import Metrics, check_result
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.ops import Ops, Variable
from plugrad.policy import Policy
from plugrad.results import html_table
from plugrad.rl_module import MultiRLModule
from plugrad.rng_streams import fresh_seed, stream
from plugrad.schedules import Coefficients, ConfigView
from plugrad.types import (
    ALL_MODULES,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
    TOTAL_LOSS_KEY,
    Array,
    ModuleBatches,
    ModuleID,
    StrPath,
    Tensor,
)

CORE = tuple(
    Plugin("core", file.__name__.split(".")[-1], file)
    for file in (default_hooks, optimizer_registry, data_parallel, step)
)

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def _locked(
    method: Callable[Concatenate["Learner", Given], Answer],
) -> Callable[Concatenate["Learner", Given], Answer]:
    """Let one thread at a time call a method; others wait. An error's traceback shows the author's frames.

    With PLUGRAD_DEBUG=1 it shows all.
    """

    @wraps(method)
    def call(self: "Learner", /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        with self._lock, self._computing_there():
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                shown = authors_traceback(error, self.plugins, getattr(self, "backend_info", None))
                raise error.with_traceback(shown)  # noqa: B904 - the same error, so that nothing caused it

    return call


class Learner(BackendSpec, GradientSpec, AlgorithmSpec, LearnerSpec, HasOlderNames):
    """Trains the modules of one process: computes losses and gradients, steps optimizers, saves and restores state.

        learner = PPOLearner(config=config)
        learner.build()
        results = learner.update(batch)

    Subclasses override methods such as `compute_loss_for_module`, `configure_optimizers_for_module` and
    `postprocess_gradients_for_module`. Each of these is also a hook of the same name, which plugins answer or wrap.
    Public methods that read or change the state take turns when several threads call them. Methods such as `update`,
    `compute_actions` and `get_state` raise `NotBuiltError`, a ValueError, before `build()`.

    Args:
        config: an `AlgorithmConfig`. Its class determines the algorithm, `config.backend` the backend.
        module_spec: which modules to build. Default: `config.rl_module_spec`, else the algorithm's.
        module: finished modules instead of a spec: one `RLModule`, a `MultiRLModule` or `{module_id: module}`. A model
            that is not an RLModule (`torch.nn.Module`, Keras model) is called with the observations [B, ...] and
            returns the action distribution's inputs [B, inputs], `(inputs, values [B])`, or `{column: tensor}`.
        plugins: listener objects, in addition to those that `config.plugins(...)` and PLUGRAD_PLUGINS name.

    Attributes:
        config: the settings; `add_module` and `remove_module` replace it.
        seed: the seed of all random streams; drawn if the config has none.
        module: the modules, by id.
        registered_optimizers: `{"<module id>_<optimizer name>": RegisteredOptimizer}`.
        targets: `{module_id: TargetNetwork}` for modules for which `get_target_parameters` names parameters.
        noise_columns: `{module_id: {column: shape per row}}` for modules for which `get_noise_columns` names columns.
        buffers: `{module_id: {name: variable}}`: what modules keep besides trained parameters. Under `ALL_MODULES`
            what plugins registered with `register_state`.
        num_parameters: `{module_id: number}` of trained parameters (tensors, not numbers) when the learner was built.
        frozen_parameters: `{module_id: names}` of what `freeze_parameters` named.
        coefficients: `{module_id or ALL_MODULES: Coefficients}`, the settings that change between updates.
        streams: random generators by name; `stream(...)` makes them.
        counters: lifetime counters, `{"<name>/<module id>": number}`.
        metrics: what the last update reported.
        ops: the backend's tensor functions. After `build()`.
        device: the backend's name of the device. After `build()`.
        backend_info: name, version and capabilities of the backend. After `build()`.
        plugins: all active plugins. After `build()`.
        connectors: the pieces that turn episodes into batches. After `build()`.
        weights_version: grows whenever weights may have changed.
        update_mode: how the last update was run (eager, compiled), and why.
        collective: connects to the other learners of a group; None: this learner is alone.
        peers: the learners in other processes that `learners(launcher=...)` has joined; None: there are none.
        program_batch: the `ProgramBatch` that it is part of, or None.
        finite: in a step, whether losses and gradients are finite, a boolean scalar; None outside a step.
        is_guarded: whether the present step must change nothing if it is not finite.
        weights: in a step of a group, `{module_id: [1]}`: this learner's share of the rows; else None.
        part_weights: the weights of the parts of the present minibatch, if `accumulate` makes several and they differ.
        names_parameters: whether steps are taken again to find the parameters whose gradients are not finite.
        shape_check: checks the first losses of a program.

    Raises:
        ConfigError: the class is written for another backend than the config's.
    """

    framework: ClassVar[str | None] = None
    """The backend that a subclass is written for; None: any."""
    TOTAL_LOSS_KEY: ClassVar[str] = TOTAL_LOSS_KEY

    if not TYPE_CHECKING:  # a type checker refuses attributes that do not exist

        def __getattr__(self, name: str) -> Any:
            return unknown_attribute(self, "Learner", name)

    def __init__(
        self,
        *,
        config: Config,
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
        self._trainable: tuple[MultiRLModule, list[ModuleID]] = self.module, []
        self.registered_optimizers: dict[str, RegisteredOptimizer] = {}
        self.targets: dict[ModuleID, TargetNetwork] = {}
        self.noise_columns: dict[ModuleID, Shapes] = {}
        self.buffers: Buffers = {}
        # By name: first values of what plugins registered; what was restored for plugins that have not registered yet.
        self._initial_plugin_state: dict[str, Array] = {}
        self._restored_plugin_state: dict[str, Array] = {}
        # What `get_tensor_variable` made since the plugins' own were last looked for: weak references, first values.
        self._made_variables: list[tuple[Callable[[], Any], Any]] = []
        self.num_parameters: dict[ModuleID, int] = {}
        self.frozen_parameters: dict[ModuleID, frozenset[str]] = {}
        self.coefficients: dict[ModuleID, Coefficients] = {}
        self.streams: dict[str, np.random.Generator] = {}
        self.counters: dict[str, int] = {}
        self.weights_version = 0
        self.finite: Tensor | None = None
        self.is_guarded = False
        self._failure = ""  # the error of an update that failed and was not undone
        self._undo_copy: Snapshot | None = None  # of the update that runs
        self.names_parameters = False
        self.shape_check = ShapeCheck(self)
        self._step_context = StepContext()
        self.collective: Collective | None = None
        self.peers: Peers | None = None
        self.program_batch: ProgramBatch | None = None
        self.weights: Mapping[ModuleID, Tensor] | None = None
        self.part_weights: Mapping[ModuleID, Tensor] | None = None
        self.update_mode = "not decided before the first update"
        self._given = (module_spec, module, tuple(plugins))
        self._lock = threading.RLock()  # re-entrant: hooks and listeners may call the learner again
        self._computing_there: Callable[[], AbstractContextManager[None]] = nullcontext
        self._is_built = False
        self.plugins: list[Plugin] = []

    # --- build ----------------------------------------------------------------------------------------------

    @_locked
    def build(self) -> None:
        """Load the plugins, then make modules, optimizers and connectors. A second call does nothing; after an
        error it begins anew, and draws the same weights.

        Raises:
            PluginConflictError: two plugins answer a hook that takes one answer.
            PluginError: a hook has no answer, such as the loss with a plain `AlgorithmConfig`.
            BackendNotFoundError: the backend, or its framework, is not installed.
            ConfigError: the modules cannot be built with these settings.
        """
        if self._is_built:
            return
        streams = deepcopy(self.streams)
        try:
            self._load_plugins()
            self.module = self._make_module()
            for module in self.module.values():
                module._move_to(self.device)
            warn_of_unknown_modules(self.config, self.module)
            with self._computing_there():  # `build` began before the device was known
                self._configure(self.config)
        except BaseException:
            self.streams = streams  # called again, it draws the same weights
            self.buffers, self._initial_plugin_state = {}, {}
            raise
        self._is_built = True
        self.notify("learner_built")
        find_made_variables(self)
        if self.config.launcher != RAY:
            try:
                self.peers = Peers(self)
            except BaseException:
                self._is_built = False
                raise

    def _load_plugins(self) -> None:
        """Make what is needed to build modules: hooks, device and ops."""
        self.plugins = self._plugins()
        self._plugin_manifest = plugin_manifest(self.plugins)
        self._direct_hooks: Mapping[str, Callable[..., Any]] = {}  # filled by the next line
        self._hooks: HookManager = bind_hooks(self, Learner, self.plugins)
        check_providers(self, Learner, self._hooks)
        step = self._hooks.bound_provider("apply_gradients", self, LearnerSpec.apply_gradients)
        self._step_optimizers = step or super().apply_gradients
        self.backend_info: BackendInfo = self._provide("backend_info")
        self.device = choose_device(self.config, self.backend_info)
        if self.backend_info.computing_on is not None:
            self._computing_there = partial(self.backend_info.computing_on, self.device)
        self.ops: Ops = self._provide("ops")
        self.metrics = Metrics(self.ops, self._convert_to_numpy)

    def _configure(self, config: Config) -> None:
        """Make everything that depends on training settings: coefficients, optimizers, connectors, programs."""
        self.config = config
        if config.precision != "float32":
            check_precision(self, self.trainable_module_ids)
        self.registered_optimizers = {}
        self.coefficients = {}
        self.targets = {}
        self.noise_columns = {}
        self.frozen_parameters = {}
        for module_id in (*self.module, ALL_MODULES):
            own = self.config if module_id == ALL_MODULES else self.config.get_config_for_module(module_id)
            self.coefficients[module_id] = Coefficients(own, self._get_tensor_variable)
        self.configure_optimizers()
        check_all_have_optimizers(self)
        self.buffers = find_buffers(self)
        self.num_parameters = count_parameters(self)
        for module_id in self.trainable_module_ids:
            own = self.config.get_config_for_module(module_id)
            if (target := make_target_network(self, module_id, own)) is not None:
                self.targets[module_id] = target
            if noise := find_noise_columns(self, module_id, own):
                self.noise_columns[module_id] = noise
        self.connectors = make_connectors(self)
        self.forget_programs()

    def freeze_parameters(self, module_id: ModuleID, names: Collection[str]) -> None:
        """Keep trainable parameters at their present values, by intent: no optimizer has to step them.

        A parameter that no optimizer steps is an error when the learner is built, unless it is named here. Call it in
        `configure_optimizers_for_module`. Layers may also be frozen where the model is made: `requires_grad_(False)`,
        `trainable = False`, in flax an `nnx.Variable` that is no `nnx.Param`.

        Args:
            module_id: the module.
            names: of parameters in `get_weights()[module_id]`, or of layers: "trunk" stands for "trunk.0.weight" too.

        Raises:
            ConfigError: the module has no such trainable parameter or layer.
            UnknownModuleError: there is no such module.
        """
        freeze_parameters(self, module_id, names)

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
        """The modules that were given, else those that the spec describes."""
        return make_modules(self, *self._given[:2])

    def _check_is_built(self, error: bool = True) -> bool:
        """Whether `build()` was called; raises `NotBuiltError` (a ValueError) if not and `error`.

        Raises:
            NotUndoneError: an update failed with `undo=False`, and `error`.
        """
        if not self._is_built and error:
            raise NotBuiltError(f"this {type(self).__name__} is not built: call build() first")
        if self._failure and error:
            why, instead = ", because undo=False", ", or train with config.training(undo=True)"
            if self.config.undo:  # an author changed what the update did not
                why = instead = ""
            raise NotUndoneError(
                f"an update of this {type(self).__name__} failed and was not undone{why}: its weights may be those of "
                f"half an update. Call restore_from_path(path) with a checkpoint{instead}. The update's error: "
                f"{self._failure}"
            )
        return self._is_built

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `func(self, *args, **kwargs)`, as `LearnerGroup.foreach_learner` does on each learner.

        Args:
            func: a function whose first argument is the learner.
            *args: its other arguments.
            **kwargs: its keyword arguments.

        Returns:
            The result of `func`.
        """
        return func(self, *args, **kwargs)

    def shutdown(self) -> None:
        """Leave the other learners; a subclass also stops what it has started, such as threads."""
        if self.peers is not None:
            self.peers.close()

    @property
    def distributed(self) -> bool:
        """Whether the config has more than one learner."""
        return bool(self.config.num_learners > 1)

    @property
    def trainable_module_ids(self) -> list[ModuleID]:
        """The modules that the backend can train. Other modules never change and have no optimizer."""
        if self._trainable[0] is not self.module:  # the hook is called once, and again when modules change
            ids = [
                each
                for each, module in self.module.items()
                if self._is_module_compatible_with_learner(module)
            ]
            self._trainable = self.module, ids
        return list(self._trainable[1])

    @property
    def layouts(self) -> list[Layout]:
        """The flat layouts of all optimizers, in registration order."""
        return list(map(attrgetter("layout"), self.registered_optimizers.values()))

    def stream(self, *names: str) -> np.random.Generator:
        """A random generator of this learner, made at the first call with these names; part of the state.

        Args:
            *names: such as a module id and a purpose: `learner.stream("p0", "noise")`.

        Returns:
            The same generator for the same names. What it draws depends only on the learner's seed and the names.
        """
        key = "/".join(names)
        if key not in self.streams:
            self.streams[key] = stream(self.seed, *names)
        return self.streams[key]

    @cached_property
    def _verbs(self) -> Verbs:
        return Verbs(self)

    def _check_no_step_is_open(self, what: str) -> None:
        if "_verbs" in vars(self) and self._verbs.sums is not None:
            self._verbs.check_none_open(what)

    def _provide(self, hook: str, **arguments: Any) -> Any:
        return self._hooks.provide(hook, learner=self, **arguments)

    def _direct(self, method: str) -> Callable[..., Any]:
        """A hook's method as the core calls it: without what it does for calls by hand, where nobody changes it."""
        found: Callable[..., Any] | None = vars(self).get(method) or self._direct_hooks.get(method)
        return found or getattr(self, method)

    def register_state(self, name: str, initial: Any, *, dtype: str | None = None) -> Variable:
        """Register a plugin's own state: a variable that is saved, undone after an error, hashed, and in programs.

        Call it in `learner_built` or another hook outside of a gradient step. A loss reads and moves the variable with
        `read()` and `assign()`. A later call with the same name gives the same variable.

        In a group each learner moves it with its own rows. After each update it is made equal: floats become the mean
        over the learners, weighted by rows; others become those of learner 0. So keep means, not sums.

        Args:
            name: 1 to 200 characters; begin with your plugin's name and a slash. One that begins with a module's id and
                a slash is that module's: it goes when the module is removed.
            initial: a number or an array; the shape stays.
            dtype: such as "float32"; None: float32 for floats, int32 for ints.

        Returns:
            The variable. If a state with this name was loaded before, it has that value.

        Raises:
            ConfigError: the name was registered with another shape, or a gradient step is running.
            RestoreMismatchError: the value that was loaded has another shape.
        """
        return register(self, name, initial, dtype)

    def _get_tensor_variable(self, value: Any, dtype: str | None = None, trainable: bool = False) -> Variable:
        variable = super()._get_tensor_variable(value, dtype, trainable)
        note_made(self, variable, value)
        return variable

    @property
    def _plugin_variables(self) -> dict[str, Variable]:
        """`{name: variable}` of all that plugins registered or made."""
        return self.buffers.get(ALL_MODULES, {})

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call a listener hook of all plugins.

        Args:
            hook: its name, such as "update_ended".
            **arguments: the hook's arguments other than `learner`.
        """
        self._hooks.call_hook(hook, learner=self, **arguments)

    def _repr_html_(self) -> str:
        """Tables of what it is and of its modules, as notebooks show them."""
        if not self._is_built:
            return html_table((type(self).__name__,), [("not built yet: learner.build()",)])
        about = {"backend": self.config.backend, "device": self.device, "update": self.update_mode}
        trained, parameters = self.trainable_module_ids, self.num_parameters
        modules = (
            (name, type(module).__name__, f"{parameters.get(name, 0):,}", name in trained)
            for name, module in self.module.items()
        )
        what = html_table((type(self).__name__, ""), (about | self.counters).items())
        return what + html_table(("module", "class", "parameters", "is trained"), modules)

    def _listened_to(self, hooks: Iterable[str]) -> frozenset[str]:
        """Those of some hooks that a listener has."""
        return frozenset(hooks) & self._hooks.implemented.keys()

    # --- update ---------------------------------------------------------------------------------------------

    @_locked
    def update(
        self,
        /,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        timesteps: Mapping[str, int] | None = None,
        minibatch_size: int | Literal["whole"] | None = None,
        num_epochs: int | None = None,
        shuffle_batch_per_epoch: bool | None = None,
        num_total_minibatches: int = 0,
        **unknown: Never,
    ) -> dict[ModuleID, dict[str, Any]]:
        """Train on a batch or on episodes. On an error the learner is left as it was before.

        Where a launcher has started several processes (`learners(launcher="env")`), all call this, each with rows or
        episodes of its own, or with `{}`: the update is that of one learner with all of them in the order of ranks. An
        error of one process is raised in all, and undone in all.

        Args:
            batch: `{module_id: {column: array [B, ...]}}`, a `MultiAgentBatch`, or `{column: array}` for the default
                module. Arrays are numpy arrays or tensors of the framework.
            episodes: `SingleAgentEpisode`s or `MultiAgentEpisode`s instead of a batch; the learner connectors make a
                batch from them.
            timesteps: `{"num_env_steps_sampled_lifetime": n}` moves schedules to timestep n; None: they stay.
            minibatch_size: rows (for sequences: steps) per module and minibatch; "whole": the whole batch at once.
                None: as the config says, where None means the whole batch.
            num_epochs: passes over the batch; None: as the config says.
            shuffle_batch_per_epoch: whether each pass has a new order; None: as the config says.
            num_total_minibatches: if above 0, exactly this many minibatches, instead of `num_epochs` passes; rounded
                up to a multiple of `accumulate`.
            **unknown: arguments that RLlib had in older versions, which the plugin `plugrad_rllib` translates.

        Returns:
            Results of each trained module and of all, `{module_id: {name: float or array}, ALL_MODULES: {...}}`.
            What losses report is the mean over the minibatches.

        Raises:
            BatchError: the batch cannot be trained on; says where, what was expected and what was found.
            ConfigError: an argument is out of range.
            LossError: a loss or a metric is not a scalar.
            NonFiniteError: a loss or gradient is not finite, and `nonfinite="raise"`.
            NotBuiltError: `build()` was not called.
            NotUndoneError: an update before it failed with `undo=False`.
            ResultError: `compile_results` returned something that `update` cannot return.
        """
        if unknown:
            given = {"batch": batch, "episodes": episodes, "timesteps": timesteps}
            given |= {"minibatch_size": minibatch_size, "num_epochs": num_epochs}
            given |= {"shuffle_batch_per_epoch": shuffle_batch_per_epoch}
            given |= {"num_total_minibatches": num_total_minibatches}
            results: dict[ModuleID, dict[str, Any]]
            results = call_with_older_arguments(Learner.update, self, unknown, given)
            return results
        self._check_is_built()
        self._check_no_step_is_open("update")
        spec = self._update_run.minibatch_spec(
            minibatch_size, num_epochs, shuffle_batch_per_epoch, num_total_minibatches
        )
        return self._update_run.update(batch, episodes, timesteps, spec)

    def update_from_batch(self, batch: Any, **settings: Any) -> dict[ModuleID, dict[str, Any]]:
        """`update(batch, **settings)`.

        Args:
            batch: see `update`.
            **settings: see `update`.

        Returns:
            See `update`.
        """
        return self.update(batch, **settings)

    def update_from_episodes(
        self, episodes: Sequence[Any], **settings: Any
    ) -> dict[ModuleID, dict[str, Any]]:
        """`update(episodes=episodes, **settings)`.

        Args:
            episodes: see `update`.
            **settings: see `update`.

        Returns:
            See `update`.
        """
        return self.update(episodes=episodes, **settings)

    @_locked
    def forward_backward(self, /, batch: Any, loss: Loss | str | None = None) -> Done:
        """Compute losses and gradients of a batch, and add the gradients to those since the last step.

            learner.forward_backward(first)
            learner.forward_backward(second, loss=my_loss)
            results = learner.optim_step().result()

        With `optim_step` this is one gradient step in two halves, by the same hooks as in `update`. Calls weigh by
        their rows that count: calls of any sizes are a step on all of their rows at once, and one call is what
        `update(batch, minibatch_size="whole", num_epochs=1)` does. Columns that are standardised over each minibatch
        are so over each call. `update_begun` and `before_gradient_based_update` are called with the first call of a
        step. On an error the learner is as after its last step, and the accumulated gradients are gone.

        Where a launcher has started several processes, all call this, each with rows of its own, as in `update`.

        Args:
            batch: see `update`; for episodes give `run_connectors(episodes)`.
            loss: `loss(learner, module_id, batch, fwd_out)`, which returns a scalar and is written over `learner.ops`,
                or the name of one that `plugrad.losses.named_loss` registered: in place of `compute_loss_for_module`,
                also of a subclass's. `compute_losses` and the wrappers of plugins are around it. None: the learner's
                own. Give the same function in each call: a new one needs a new program.

        Returns:
            The outcome. `result()` has the means of this batch, `{module_id: {"total_loss": ..., name: float},
            ALL_MODULES: {...}}`. With `nonfinite="skip"`, `num_nonfinite_minibatches` of `ALL_MODULES` is 1 where
            nothing was added, because a column, a loss or a gradient is not finite.

        Raises:
            BatchError: see `update`; or modules that share parameters have other proportions of rows than before.
            ConfigError: there is no such loss, or an author's `_update` takes whole steps.
            LossError, NonFiniteError, NotBuiltError, NotUndoneError: see `update`.
        """
        self._check_is_built()
        return Done(self._verbs.forward_backward(batch, loss))

    @_locked
    def optim_step(self, *, timesteps: Mapping[str, int] | None = None) -> Done:
        """Postprocess the accumulated gradients, such as by clipping, and step the optimizers.

        Counters and schedules move, `after_gradient_based_update` and `update_ended` are called. On an error the
        learner is as after its last step, and the accumulated gradients are gone.

        Args:
            timesteps: see `update`.

        Returns:
            The outcome. `result()` is what `update` returns, with means over the rows of all calls.

        Raises:
            UnfinishedStepError: there was no `forward_backward` since the last step, or its gradients were dropped.
            BatchError, NonFiniteError, NotBuiltError, NotUndoneError, ResultError: see `update`.
        """
        self._check_is_built()
        return Done(self._verbs.optim_step(timesteps))

    @_locked
    def drop_gradients(self) -> None:
        """Forget what `forward_backward` has accumulated: the learner is as after its last step."""
        self._verbs.drop("drop_gradients() was called")

    @_locked
    def run_connectors(self, episodes: Sequence[Any]) -> Batch:
        """Run the learner connectors: make the batch that `update(episodes=...)` would train on.

        Args:
            episodes: `SingleAgentEpisode`s or `MultiAgentEpisode`s.

        Returns:
            `{module_id: {column: array [B, ...]}}`.

        Raises:
            BatchError: observations of a Dict or Tuple do not fit the module.
        """
        self._check_is_built()
        snapshot = Snapshot(self, variables=False)
        snapshot.copy_variables(())
        try:
            return self._update_run.columns(None, episodes)
        except BaseException:
            snapshot.restore()
            raise

    def _keep_for_undo(self) -> None:
        """Let an update that runs undo also what it does not change itself. Called before somebody changes it."""
        if self._undo_copy is not None and not self.metrics.is_in_step:
            self._undo_copy.copy_all()

    def forget_programs(self) -> None:
        """Discard compiled programs and the copies of weights for acting; both are made again when needed."""
        if self.program_batch is not None:
            self.program_batch.forget_programs()
        self._update_run = UpdateRun(self)
        self._actor = Actor(self)

    def apply_gradients(self, gradients_dict: Gradients) -> None:  # noqa: D102
        check_gradient_names(gradients_dict, self.layouts, "apply_gradients")
        self._step_optimizers(gradients_dict=gradients_dict)
        self.weights_version += 1

    def supports(self, capability: Capability | str) -> bool:
        """Whether the backend has a capability, on this device and with this config.

        `backend_info.why_not(capability, learner.ops, learner.config)` says why not.
        """
        return not self.backend_info.why_not(capability, self.ops, self.config)

    def config_view(self, module_id: ModuleID) -> ConfigView:
        """The config that a module's loss gets: fields that change between updates are scalar tensors."""
        return self.coefficients[module_id].view

    def guard(self, new: Tensor, old: Tensor) -> Tensor:
        """Choose the value to keep after a step: the old one if a non-finite minibatch must be skipped. Traced.

        Args:
            new: the value after the step.
            old: the value before it, of the same shape.

        Returns:
            `old` if this step is not finite and `nonfinite="skip"`, else `new`.
        """
        return self.ops.where(self.finite, new, old) if self.is_guarded else new

    # --- modules --------------------------------------------------------------------------------------------

    @_locked
    def add_module(
        self,
        *,
        module_id: ModuleID,
        module_spec: RLModuleSpec,
        config_overrides: Mapping[str, Any] | None = None,
        new_should_module_be_updated: Collection[ModuleID] | None = None,
    ) -> MultiRLModuleSpec:
        """Add a module and its optimizers. Other modules do not change. On an error nothing changes.

        Args:
            module_id: a new id: 1 to 128 of the characters A-Z a-z 0-9 _ . -
            module_spec: what it does not specify comes from the algorithm and the config.
            config_overrides: settings of this module, as in `algorithm_config_overrides_per_module`.
            new_should_module_be_updated: the new `policies_to_train`; None: as before.

        Returns:
            The spec of all modules, which is now in `learner.config`.

        Raises:
            ConfigError: the id, the spec, a setting or `new_should_module_be_updated` cannot be used.
        """
        self._check_is_built()
        self._check_no_step_is_open("add_module")
        modules.add_module(self, module_id, module_spec, config_overrides, new_should_module_be_updated)
        spec: MultiRLModuleSpec = self.config.rl_module_spec
        return spec

    @_locked
    def remove_module(
        self, module_id: ModuleID, *, new_should_module_be_updated: Collection[ModuleID] | None = None
    ) -> MultiRLModuleSpec:
        """Remove a module with its optimizers, settings, counters and random streams. Other modules do not change.

        Args:
            module_id: the module; not the only one.
            new_should_module_be_updated: the new `policies_to_train`; None: as before, without this one.

        Returns:
            The spec of the remaining modules, which is now in `learner.config`.

        Raises:
            UnknownModuleError: there is no such module.
            OptimizerError: one of its optimizers also steps parameters of another module.
            ConfigError: it is the only module, or `new_should_module_be_updated` cannot be used.
        """
        self._check_is_built()
        self._check_no_step_is_open("remove_module")
        modules.remove_module(self, module_id, new_should_module_be_updated)
        spec: MultiRLModuleSpec = self.config.rl_module_spec
        return spec

    # --- disk -----------------------------------------------------------------------------------------------

    @classmethod
    def from_checkpoint(
        cls,
        path: StrPath,
        *,
        backend: str | None = None,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        module: Any = None,
        plugins: Sequence[Any] = (),
    ) -> "Learner":
        """Build a learner with the state of a checkpoint, on the backend that saved it or on another one.

        Args:
            path: a checkpoint directory of a learner, a group or an algorithm, or one of its saves.
            backend: such as "tf2" for a checkpoint of torch; None: the backend that saved it.
            module_spec: for modules that were not built from the config.
            module: your own finished modules, as in `Learner(module=...)`.
            plugins: listener objects; a checkpoint loads none.

        Returns:
            A single learner, even if a group saved the checkpoint.

        Raises:
            CheckpointError: it cannot be read.
            ConfigError: its settings name code, which a checkpoint never imports; says what to give instead.
            RestoreMismatchError: the state does not fit what its settings build.
        """
        given = ["env", "agent_to_module", "learner_class"]  # the class is cls; no env is made
        if module_spec is not None or module is not None:
            given.append("rl_module_spec")
        with config_to_build(path, kind="learner", backend=backend, given=given) as config:
            config = config.learners(num_learners=0)  # a single learner, even if a group saved
            if is_unnamed(config.learner_class):
                config = config.learners(learner_class=cls)
            learner = cls(config=config, module_spec=module_spec, module=module, plugins=plugins)
            learner.build()
        learner.restore_from_path(path)
        return learner

    # --- acting ---------------------------------------------------------------------------------------------

    @_locked
    def compute_actions(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        explore: bool = True,
        state: Mapping[str, Array] | None = None,
        rng: np.random.Generator | None = None,
        action_mask: Array | None = None,
        values: bool = True,
        as_tensors: bool = False,
    ) -> dict[str, Any]:
        """Compute actions for a batch of observations, with all columns that a training batch needs.

        The actions are as the distribution gives them and the loss needs them, not as `env.step` takes them: those of a
        Box are not clipped to its bounds, and those of `Discrete(n, start=s)` count from 0. `get_policy().predict`
        gives actions for `env.step`.

        Args:
            obs: observations [B, ...] of the module's space, normalised if the module learns from normalised ones.
                Those of a Dict or Tuple are a dict or tuple of arrays [B, ...], or rows.
            module_id: the module that acts.
            explore: True samples from the distribution; False takes its mode.
            state: for a stateful module, `{name: [B, ...]}`: `state_out` of the last call; None at the start of
                episodes.
            rng: draws the samples; None: the learner's stream "<module id>/actions".
            action_mask: the allowed actions, bool [B, choices], see `plugrad.action_masks`; None: all.
            values: False leaves out `vf_preds`, which saves a built-in module its value network. Env runners act so:
                an algorithm that needs values computes them for whole episodes (`compute_values_of_episodes`).
            as_tensors: True: `obs` is a tensor of the framework, or anything with `__dlpack__`, and the columns are
                tensors on the learner's device. Random numbers are copied to it, nothing is copied from it, and the
                values of observations are not checked. `rng` draws the same numbers as without it.

        Returns:
            Numpy columns: `actions` [B, ...], `action_logp` float32 [B] in nats, `action_dist_inputs` float32
            [B, inputs] and, when exploring, `vf_preds` float32 [B] if the module computes values; for a stateful module
            also `state_out`, `{name: [B, ...]}`. A module that returns `actions` itself decides which columns it gives.

        Raises:
            BatchError: observations, state or mask do not fit the module, or a mask forbids everything.
            ConfigError: `as_tensors` with a stateful module, or an algorithm that explores in numpy.
            UnknownModuleError: there is no such module.
        """
        self._check_is_built()
        # An unknown id is an error before it has a random stream.
        module = self.module[module_id]
        if as_tensors:
            rows = self._actor.on_device(obs, module_id, explore)
        else:
            rows = np.asarray(rows_of(module_id, module, obs))
        check_observations(module_id, module, rows)
        check_observation_values(module_id, module, rows)
        if rng is None:  # learners that are equal otherwise act differently
            rng = self.stream(module_id, *ACTIONS, *([] if self.peers is None else self.peers.own_stream))
        if as_tensors:
            return self._actor.compute_tensors(rows, module_id, explore, rng, action_mask, values=values)
        return self._actor.compute_actions(rows, module_id, explore, rng, state, action_mask, values=values)

    def _choose_actions(self, *args: Any, **kwargs: Any) -> tuple[Array, Mapping[str, Array] | None]:
        """The part of `compute_actions` that a policy needs; see `Actor.choose_actions`."""
        with self._lock:
            if self._failure:
                self._check_is_built()
            return self._actor.choose_actions(*args, **kwargs)

    def _begin_noise(self, module_id: ModuleID, rows: Array | None) -> None:
        """Where episodes or rollouts begin; see `HeldNoise.begin`."""
        self._actor.held_noise.begin(module_id, rows)

    def _as_program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tensors, as one program where the backend's operations are slow to call one by one."""
        compile_function = self.backend_info.compile_function
        return function if compile_function is None else compile_function(function)

    def _compute_tensors(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The part of `compute_actions` that an env runner of tensors needs; see `Actor.compute_tensors`."""
        with self._lock:
            self._check_is_built()
            return self._actor.compute_tensors(*args, **kwargs)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """A policy that computes actions for `env.step`, always with the current weights.

        It takes observations in the form in which the module learns from them. A learner does not know how the
        environment's observations were flattened, nor the statistics of `normalize_observations` (it warns if these are
        used). `Algorithm.get_policy` knows both.

        Args:
            module_id: the module. The default id also finds a single module that has another id.

        Returns:
            The policy; `policy.predict(observation)` acts.

        Raises:
            UnknownModuleError: there is no such module.
            ConfigError: the module has no spaces.
        """
        self._check_is_built()
        warn_without_statistics(self.config)
        return make_policy(lambda: self, module_id)

    @_locked
    def compute_values(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        state: Mapping[str, Array] | None = None,
        as_tensors: bool = False,
    ) -> Any:
        """State values of observations.

        Args:
            obs: observations as in `compute_actions`, [B, ...]; for a stateful module sequences [B, T, ...].
            module_id: a module with a value function.
            state: the state before the first step, `{name: [B, ...]}`; None: the state at the start of an episode.
            as_tensors: as in `compute_actions`.

        Returns:
            float32 [B]; for a stateful module [B, T].

        Raises:
            BatchError: observations or state do not fit the module.
            ConfigError: `as_tensors` with a stateful module.
            UnknownModuleError: there is no such module.
        """
        self._check_is_built()
        module = self.module[module_id]
        if as_tensors:
            tensor = self._actor.on_device(obs, module_id, explore=False)
            check_observations(module_id, module, tensor)
            return self._actor.compute_value_tensors(tensor, module_id)
        rows = np.asarray(rows_of(module_id, module, obs))
        check_observations(module_id, module, rows, sequences=module.is_stateful)
        check_observation_values(module_id, module, rows)
        return self._actor.compute_values(rows, module_id, state)

    @_locked
    def compute_values_of_episodes(
        self, episodes: Sequence[SingleAgentEpisode], *, module_id: ModuleID = DEFAULT_MODULE_ID
    ) -> Array:
        """State values of all observations of episodes, including the last ones.

        Args:
            episodes: E episodes with B steps in all. For a stateful module they must have the recorded states.
            module_id: a module with a value function.

        Returns:
            float32 [B + E], in the order of the episodes. A stateful module computes each value with the recurrent
            state of its step.

        Raises:
            BatchError: observations do not fit the module, or recorded states are missing.
            UnknownModuleError: there is no such module.
        """
        self._check_is_built()
        return values_of_episodes(self, module_id, episodes_in_rows(episodes, self.module))

    # --- metrics and results --------------------------------------------------------------------------------

    def register_metric(self, module_id: ModuleID, key: str, value: Any) -> None:
        """Add a value to the results of the current update; outside an update, to those of the next one.

        Args:
            module_id: a module id or `ALL_MODULES`.
            key: name of the value in the results.
            value: in a loss, a scalar tensor, whose mean over the minibatches is reported; elsewhere a number or an
                array, which is reported unchanged.

        Raises:
            LossError: in a loss, the value is not a scalar.
            UnknownModuleError: `module_id` is neither a module of this learner nor `ALL_MODULES`.
        """
        if module_id != ALL_MODULES and module_id not in self.module.by_id:
            _ = self.module[module_id]  # says which there are
        self.metrics.register(module_id, key, value)

    def register_metrics(self, module_id: ModuleID, metrics: Mapping[str, Any]) -> None:
        """Call `register_metric` for each of several values.

        Args:
            module_id: a module id or `ALL_MODULES`.
            metrics: `{name: value}`.

        Raises:
            LossError, UnknownModuleError: see `register_metric`.
        """
        for key, value in metrics.items():
            self.register_metric(module_id, key, value)

    def compile_results(
        self,
        *,
        batch: ModuleBatches,
        fwd_out: ModuleBatches,
        loss_per_module: Mapping[ModuleID, float],
        metrics_per_module: Mapping[ModuleID, Mapping[str, Any]],
    ) -> dict[ModuleID, dict[str, Any]]:
        """Make the results that `update` returns. Called once, at its end; override it to change them.

        Args:
            batch: `{module_id: {column: array}}`, all rows of the modules that were trained; in `optim_step`, which has
                no batch, without columns.
            fwd_out: always empty, because forward passes run on minibatches. Report what you need from them with
                `register_metric` in the loss.
            loss_per_module: `{module_id: mean loss over the minibatches}`.
            metrics_per_module: all registered metrics, `{module_id or ALL_MODULES: {name: float or array}}`.

        Returns:
            `{module_id: {name: value}, ALL_MODULES: {...}}`.
        """
        return {module_id: dict(metrics) for module_id, metrics in metrics_per_module.items()}

    def _check_result(self, result: Any) -> None:
        """Refuse what `update` may not return.

        Raises:
            ResultError: it is not a dict, has no `ALL_MODULES`, or has a key that is not a module id.
        """
        check_result(result, self.module)

    # --- state and disk -------------------------------------------------------------------------------------

    @_locked
    def get_state(self, components: Paths = None, *, not_components: Paths = None) -> dict[str, Any]:
        """Copy the whole state, or parts of it.

        Args:
            components: one or several of "rl_module", "optimizer", "targets", "coefficients", "counters", "streams",
                "plugin_state"; or the part of one module or optimizer in the first four, such as "rl_module/p0" or
                "optimizer/p0_default_optimizer", which keeps its place: `{"rl_module": {"p0": {...}}}`. None: all.
            not_components: names of components or parts to leave out.

        Returns:
            Nested dicts of numpy arrays and plain values, for `set_state`.

        Raises:
            ConfigError: there is no such component; the message lists the existing ones.
        """
        self._check_is_built()
        if components is None:
            self._check_no_step_is_open("get_state")
        return copy_state(self, components, not_components)

    @_locked
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load a state exactly. If it does not fit, nothing changes.

        Args:
            state: from `get_state`, whole or in part; what it does not contain stays as it is.

        Raises:
            RestoreMismatchError: lists all missing, unexpected and mis-shaped entries.
        """
        self._check_is_built()
        self._check_no_step_is_open("set_state")
        self._keep_for_undo()
        load_into(self, state)
        self.weights_version += 1

    def _get_optimizer_state(self) -> dict[str, Any]:
        """The component "optimizer" of `get_state`, `{"<module id>_<optimizer name>": state}`; may be overridden."""
        return optimizer_states(self)

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Load the component "optimizer" of a state for `set_state`; may be overridden.

        Args:
            state: from `_get_optimizer_state`, or some of its entries.

        Raises:
            RestoreMismatchError: it does not fit; nothing was changed.
        """
        load_optimizers(self, state)

    @_locked
    def get_weights(self) -> dict[ModuleID, dict[str, Array]]:
        """Numpy copies of parameters and buffers, `{module_id: {name: array}}`, under the framework's own names."""
        return self.module.get_state()

    @_locked
    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Load weights from `get_weights`. If they do not fit, nothing changes.

        Args:
            weights: `{module_id: {name: array}}`. Missing buffers stay as they are; a warning names them.

        Raises:
            UnknownModuleError: there is no such module.
            RestoreMismatchError: names, shapes or dtypes differ.
        """
        self._check_no_step_is_open("set_weights")
        self._keep_for_undo()
        self.module.set_state(fill_missing_buffers(self, weights))
        self.weights_version += 1

    def get_metadata(self) -> dict[str, Any]:
        """The metadata of a checkpoint: kind, backend, algorithm, module ids, plugins, and the config as data."""
        return metadata_of(self, self.config, kind="learner")

    @_locked
    def save_to_path(self, path: StrPath, *, keep: int = 2) -> str:
        """Write the whole state to a directory, as its newest save.

        Of learners that a launcher has started, learner 0 writes: all call this, and return when it is done.

        Args:
            path: the directory; it is created if it does not exist.
            keep: how many saves to keep there; older ones are deleted.

        Returns:
            `path`.

        Raises:
            CheckpointError: it cannot be written, or another process writes there; older saves are unchanged.
        """
        self._check_no_step_is_open("save_to_path")
        with nullcontext(True) if self.peers is None else self.peers.once() as is_writer:
            state = self.get_state() if is_writer or (self.peers and self.peers.is_divided) else {}
            if is_writer:
                save_state(path, state, self.get_metadata(), keep=keep)
                self.notify("checkpoint_saved", path=str(path))
        return str(path)

    @_locked
    def restore_from_path(
        self,
        path: StrPath,
        *,
        component: str | None = None,
        hyperparameters: Hyperparameters = "checkpoint",
    ) -> None:
        """Load the state of a checkpoint, or one part of it. If it does not fit, nothing changes.

        A warning names plugins that differ from those that were active when the checkpoint was written, and says if
        only one of the two sides has `normalize_observations`.

        Args:
            path: a checkpoint directory, of a learner or an algorithm (its newest save), or one of its saves.
            component: such as "rl_module", "rl_module/p0" or "optimizer/p0_default_optimizer"; None: all.
            hyperparameters: which training settings (including learning rates and coefficients) to use after a whole
                state was restored: those of the "checkpoint", or those of this learner's "config". Differences are
                logged. What training adapted, such as PPO's KL coefficient, stays with "config" too, where the
                setting that it began with is the same in both.

        Raises:
            CheckpointError: it cannot be read.
            ConfigError: the checkpoint has no such component; the message lists the existing ones.
            RestoreMismatchError: it does not fit this learner; nothing was changed.
        """
        if component is None and self._failure:  # the whole state is replaced
            failure, self._failure = self._failure, ""
            try:
                self.restore_from_path(path, hyperparameters=hyperparameters)
            except BaseException:
                self._failure = failure
                raise
            return
        self._check_is_built()
        self._check_no_step_is_open("restore_from_path")
        checkpoint = load_state(path, kind="learner")
        state = pick_parts(checkpoint.state, component)
        warn_of_other_plugins(checkpoint.path, checkpoint.metadata, self._plugin_manifest)
        if COMPONENT_RL_MODULE in state:
            warn_of_other_normalization(checkpoint.path, checkpoint.metadata, self.config)
            with as_checkpoint_error(checkpoint):
                restored = {
                    each: self.module[each] for each in state[COMPONENT_RL_MODULE] if each in self.module
                }
                # An Algorithm has compared those of its own config.
                of_learner = component is None and checkpoint.metadata.get("kind") == "learner"
                check_module_spaces(checkpoint, restored, self.config if of_learner else None)
            check_byte_scales(self.module, state[COMPONENT_RL_MODULE], checkpoint.metadata, checkpoint.path)
        if component is not None:
            self.set_state(state)
        else:
            check_whole(state, checkpoint.path)
            state = with_new_plugin_state(self, state, checkpoint.path)
            self._restore_whole(state, hyperparameters, checkpoint)
        self.notify("checkpoint_restored", path=str(path))

    def _restore_whole(self, state: dict[str, Any], whose: Hyperparameters, checkpoint: Checkpoint) -> None:
        with as_checkpoint_error(checkpoint):
            theirs = with_hyperparameters_of(self.config, checkpoint, whose)
            log_hyperparameters(self.config, theirs, whose, checkpoint.path)
        config = self.config if whose == "config" else theirs
        with restore_on_error(self):
            if whose == "config" or (config is not self.config and config != self.config):
                self._configure(config)
            if whose == "config":
                own = self.get_state("coefficients")["coefficients"]
                kept = kept_coefficients(config, theirs, state["coefficients"], own)
                state = {**state, "coefficients": kept}
            self.set_state(state)
            if whose == "config":
                default_hooks.apply_schedules(self, self.counters.get(default_hooks.TIMESTEP, 0))


def build_learner(
    config: Any, env: Any = None, spaces: Spaces | None = None, plugins: Sequence[Any] = ()
) -> Learner:
    """Build a learner of `config.learner_class`; what `config.build_learner()` calls.

    Args:
        config: an `AlgorithmConfig`.
        env: an environment to take the spaces from.
        spaces: `{module_id: (observation_space, action_space)}` instead.
        plugins: listener objects, as of `Learner`.

    Returns:
        The learner, built.

    Raises:
        ConfigError: two settings do not fit, or the spaces are unknown.
        BackendNotFoundError: the backend, or its framework, is not installed.
    """
    learner: Learner = config.get_learner_class()(
        config=with_spaces(config, env, spaces), **({"plugins": plugins} if plugins else {})
    )
    learner.build()
    return learner
