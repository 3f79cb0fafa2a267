"""`Config`: the settings that every algorithm has, section by section, each with the fluent method that sets it.

`plugrad.algorithm_config.AlgorithmConfig` adds the `build_...` methods. The settings of sampling are in
`sampling_settings`. Other files: `fluent` changes and writes configs, `checks` and `rules` check values, and
`serialize` converts values for files.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Final, Self

from plugrad.config.fields import FieldInfo, checked, field
from plugrad.config.fluent import UNSET, given
from plugrad.config.rules import (
    check_consistency,
    check_overrides,
    default_optimizer,
    merged_optimizer,
    standby_settings,
    use_standbys,
)
from plugrad.config.sampling_settings import EACH_IS_A_PROCESS, PLACEMENTS, REQUESTED_FIRST, SamplingSettings
from plugrad.deprecation import with_older_names
from plugrad.errors import ConfigError
from plugrad.importing.names import importable_name, resolve_name
from plugrad.importing.trusted_names import LEARNER
from plugrad.types import ModuleID

_SECONDS: Final = {"maximum": 2_000_000, "reason": "systems wait no longer than 24 days in one call"}
_ROWS: Final = {
    "maximum": 10**8,
    "reason": "the rows of a batch, and the order in which they are drawn, are in memory",
}
RAY: Final = "ray"
"""The launcher that is no plugin: plugrad itself starts learners."""
REPEATED: Final = "an update repeats so often before it returns"


def _check_listeners(info: FieldInfo, value: Any) -> tuple[str | type, ...]:
    """Names and classes; an importable class is replaced by its name."""
    if not isinstance(value, list):
        raise ConfigError(f"{info.name} takes names and classes, got {value!r}", field=info.name)
    for each in value:
        if not isinstance(each, str | type):
            raise ConfigError(
                f"{info.name} takes names and classes, which are saved with a config; got the object {each!r}. "
                f"{_how_to_name(each)}. A Learner that you make yourself takes objects: Learner(plugins=[...])",
                field=info.name,
            )
    return tuple((importable_name(each) or each) if isinstance(each, type) else each for each in value)


def _check_precision(info: FieldInfo, value: Any) -> Any:
    """A choice. float16 is refused with the reason."""
    if str(value).rpartition(".")[2] in ("float16", "fp16", "half", "16", "16-mixed"):
        raise ConfigError(
            f"precision={value!r}: float16 has numbers from 6e-8 to 65,504, so small gradients become 0 unless losses "
            "are scaled, and large ones infinite. bfloat16 has the range of float32 and needs no scaling: type "
            '.framework(precision="bf16")',
            field=info.name,
            found=value,
        )
    return checked(replace(info, check=None), value)


def _how_to_name(listener: Any) -> str:
    if isinstance(listener, ModuleType):
        return f"Name its file: .plugins({getattr(listener, '__file__', None) or 'mine.py'!r})"
    cls = type(listener)
    for name in dict.fromkeys((cls.__module__, "__main__")):
        for variable, held in vars(sys.modules[name]).items() if name in sys.modules else ():
            if held is listener:
                return f"Name the variable that holds it: .plugins({f'{name}:{variable}'!r})"
    made = f"with arguments, make it in a module and name the variable: .plugins('my_module:{cls.__name__.lower()}')"
    return f"Name its class, if it is made without arguments: .plugins({cls.__name__}); {made}"


@with_older_names
@dataclass(frozen=True, kw_only=True)
class Config(SamplingSettings):
    """Settings of a Learner, a LearnerGroup or an Algorithm.

    A config is frozen and is compared by value. Each fluent method returns a new config, so calls can be chained:

        config = PPOConfig().environment("CartPole-v1").training(lr=3e-4).env_runners(num_envs_per_env_runner=8)

    Every setting is also an attribute, such as `config.lr`. The methods below state the defaults of `AlgorithmConfig`;
    an algorithm may have other defaults and further settings. `fields()` and `plugrad train ALGORITHM --help` list
    them.
    """

    default_model_config: ClassVar[Mapping[str, Any]] = {}
    """An algorithm's own defaults of `model_config`: `{key: value}` for other defaults of known keys,
    `{key: ModelSetting}` for further keys, which its network reads with
    `spec.network_config(config.default_model_config)`."""
    model_class: ClassVar[Any] = None
    """A `PartsModule` of an algorithm that asks for a plain model's parts, such as actor and critics.
    None: a plain model is called with observations, and its outputs are columns."""

    @property
    def needs_whole_batch(self) -> str:
        """Why learner connectors have to see all episodes of a batch at once, and what to set; empty: they need not.

        Algorithms whose pieces need nothing but an episode and the weights override this.
        """
        return f"{type(self).__name__} does not say that its learner connectors can run on a part of a batch"

    @property
    def standardized_columns(self) -> tuple[str, ...]:
        """Columns to standardise in each minibatch (mean 0, standard deviation 1). Algorithms override this."""
        return ()

    @property
    def reads_masked_steps(self) -> bool:
        """Whether a loss reads steps of sequences that `loss_mask` hides, as V-trace does: its targets follow from all.

        Where it does not, such steps become zeros. Algorithms override this.
        """
        return False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_overrides(self)
        use_standbys(self)

    backend: str = field("torch", section="framework")
    compile: str = field(
        "auto", section="framework", choices=("none", "forward_train", "complete_update", "auto")
    )
    device: str = field("auto", section="framework")
    precision: str = field(
        "float32", section="framework", choices=("float32", "bf16"), check=_check_precision
    )

    def framework(self, backend: str = UNSET, **settings: Any) -> Self:
        """Set the framework that runs the update.

        Args:
            backend (str): the name of a backend plugin, such as "torch" or "tf2". Default: `"torch"`.
            compile (str): how much of the update is compiled: "none", "forward_train" (the networks),
                "complete_update", or "auto" (the backend's best safe choice, which may change once, after a number of
                gradient steps that the backend fixes). `learner.update_mode` says what runs and why. Default: `"auto"`.
            device (str): "cpu", a device as the framework names it, or "auto". Default: `"auto"`.
            precision (str): what a gradient step computes forward and backward passes of networks in: "float32", or
                "bf16" (bfloat16; weights, losses, optimizers, statistics, target networks and acting stay float32).
                Default: `"float32"`.
            **settings: `compile`, `device` and `precision`.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("framework", given(settings, backend=backend))

    lr: float | list[list[float]] = field(1e-3, schedulable=True, minimum=0)
    gamma: float = field(0.99, minimum=0, maximum=1)
    grad_clip: float | None = field(None, above=0)
    grad_clip_by: str = field("global_norm", choices=("value", "norm", "global_norm"))
    optimizer: dict[str, Any] = field(
        default_optimizer(), check=lambda info, value: merged_optimizer(info.make_default(), value)
    )
    train_batch_size: int = field(32, minimum=1, for_all_modules=True, **_ROWS)
    minibatch_size: int | None = field(None, minimum=1, for_all_modules=True, **_ROWS)
    num_epochs: int = field(1, minimum=1, for_all_modules=True, maximum=100_000, reason=REPEATED)
    shuffle_batch_per_epoch: bool = field(True, for_all_modules=True)
    accumulate: int = field(1, minimum=1, for_all_modules=True, maximum=1_000_000, reason=REPEATED)
    nonfinite: str = field("raise", choices=("raise", "skip"), for_all_modules=True)
    undo: bool = field(True, for_all_modules=True)

    def training(self, **settings: Any) -> Self:
        """Set how the algorithm learns. An algorithm's own settings, such as PPO's `clip_param`, are set here too.

        Args:
            lr (float or list): learning rate, >= 0; or a schedule [[timestep, value], ...] that begins at timestep 0
                and is linear between its points, in environment steps. Default: `1e-3`.
            gamma (float): discount per step, from 0 to 1. Default: `0.99`.
            grad_clip (float): limit of the gradients, > 0. None: no clipping. Default: `None`.
            grad_clip_by (str): what `grad_clip` limits: "value" (each entry), "norm" (the L2 norm of each tensor) or
                "global_norm" (the L2 norm over all tensors of an optimizer). Default: `"global_norm"`.
            optimizer (dict): "type" ("adam", "adamw", "sgd", "rmsprop") and hyperparameters of that type, such as
                "eps". Keys that are left out keep their values; another type begins with its own defaults.
                Default: `{"type": "adam"}`.
            train_batch_size (int): minimum number of environment steps per update. Default: `32`.
            minibatch_size (int): rows per minibatch and module, summed over all learners. For stateful modules: steps
                on average, in whole sequences. None: the whole batch. Default: `None`.
            num_epochs (int): passes over the batch per update. Default: `1`.
            shuffle_batch_per_epoch (bool): draw the minibatches of each epoch in a new order. Default: `True`.
            accumulate (int): minibatches per optimizer step. Their gradients are averaged over rows, then clipped and
                applied once. Default: `1`.
            nonfinite (str): what happens at a NaN or infinite loss or gradient: "raise" undoes the update and raises
                `NonFiniteError`, "skip" skips that minibatch. Default: `"raise"`.
            undo (bool): restore the learner if an update fails. False saves the copy of all weights and optimizer
                states that each update begins with; after an update that fails, the learner refuses to train, act and
                save until `restore_from_path`. Only without a group of learners. Default: `True`.
            **settings: all of these, and the algorithm's own.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        if "optimizer" in settings:
            settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
        return self._change("training", settings)

    launcher: str = field(RAY, section="learners")
    num_learners: int = field(0, section="learners", minimum=0, **EACH_IS_A_PROCESS)
    num_cpus_per_learner: float = field(1, section="learners", minimum=0)
    num_gpus_per_learner: float = field(0, section="learners", minimum=0)
    local_gpu_idx: int = field(0, section="learners", minimum=0)
    custom_resources_per_learner: dict[str, Any] = field({}, section="learners")
    placement: str | None = field(None, section="learners", choices=PLACEMENTS)
    sharding: str | None = field(None, section="learners", choices=("fsdp",))
    learner_class: Any = field(None, section="learners", importable=True, code=LEARNER)
    learner_connector: Any = field(None, section="learners", importable=True)
    add_default_connectors: bool = field(True, section="learners")
    max_requests_in_flight_per_learner: int = field(3, section="learners", minimum=1, **REQUESTED_FIRST)
    on_full: str = field(
        "block", section="learners", choices=("block", "raise", "drop_oldest", "drop_newest")
    )
    collective: str = field("auto", section="learners")
    on_failure: str = field("restart", section="learners", choices=("restart", "standby", "shrink", "raise"))
    num_standby_learners: int = field(0, section="learners", minimum=0, **EACH_IS_A_PROCESS)
    max_restarts: int = field(3, section="learners", minimum=0)
    timeout_s: float = field(60, section="learners", above=0, **_SECONDS)
    build_timeout_s: float = field(300, section="learners", above=0, **_SECONDS)

    def learners(self, **settings: Any) -> Self:
        """Set which processes run the update, and what happens when one of them fails.

        Args:
            launcher (str): who starts the processes of several learners. "ray": plugrad does, as `num_learners` actors
                of Ray. "env": torchrun, mpirun or srun has; each process runs this program with one learner, whose
                updates are those of one learner with the rows of all. Default: `"ray"`.
            num_learners (int): 0 trains in this process; n starts n remote learners as Ray actors. Default: `0`.
            num_cpus_per_learner (float): CPUs that Ray reserves for each remote learner, which also uses as many
                threads. Default: `1`.
            num_gpus_per_learner (float): GPUs that Ray reserves for each remote learner. Default: `0`.
            local_gpu_idx (int): RLlib's setting. It has no effect: choose a GPU with `.framework(device="cuda:1")`.
                Default: `0`.
            custom_resources_per_learner (dict): other Ray resources per remote learner, {name: amount}. Default: `{}`.
            placement (str): where Ray puts remote learners: "pack" (on as few machines as possible), "spread" (on as
                many as possible), by a placement group that has their CPUs, GPUs and other resources before the first
                one starts; if the cluster does not have them within `timeout_s`, it is an error. None: each where Ray
                finds a place for it. Default: `None`.
            sharding (str): "fsdp": on JAX one learner on all devices of a kind that its process sees, with built-in
                networks; on torch over the processes of `launcher="env"`, where each keeps its part between updates.
                Each device or process keeps an equal part of the parameters, of the optimizers' states and of target
                networks; numbers and checkpoints are those of one device. None: each has all. Default: `None`.
            learner_class (class): a subclass of `Learner`, or its name "package.module:Class". None: the algorithm's.
                Default: `None`.
            learner_connector (function): called with the observation space and the action space; it returns a connector
                piece or a list of pieces, which run before the algorithm's. None: no further pieces. Default: `None`.
            add_default_connectors (bool): keep the algorithm's own connector pieces. Default: `True`.
            max_requests_in_flight_per_learner (int): batches that may wait in an asynchronous group. Default: `3`.
            on_full (str): what `submit` does when that many batches wait: "block", "raise", "drop_oldest" or
                "drop_newest". Default: `"block"`.
            collective (str): how remote learners sum their gradients: the name of a collective plugin, such as
                "shared_memory" (one machine), or "auto" (the first one that works). Default: `"auto"`.
            on_failure (str): what happens when a remote learner dies: "restart" starts another one, "standby" uses one
                that was started beforehand, "shrink" continues with the others, "raise" gives up. Default: `"restart"`.
            num_standby_learners (int): further remote learners that wait to replace one that dies; at least 1 with
                `on_failure="standby"`, else 0. Default: `0`.
            max_restarts (int): most restarts of learners, or of env runners, within an hour before plugrad gives up.
                Default: `3`.
            timeout_s (float): seconds that one phase of a remote learner may take once its program is compiled, and
                one step or reset of environments that have processes of their own. Default: `60`.
            build_timeout_s (float): seconds for building and for the first compilation, and for making environments.
                Default: `300`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("learners", standby_settings(settings, self.on_failure))

    rl_module_spec: Any = field(None, section="rl_module")
    model_config: dict[str, Any] = field({}, section="rl_module")
    algorithm_config_overrides_per_module: dict[str, Any] = field({}, section="rl_module")

    def rl_module(self, **settings: Any) -> Self:
        """Set the networks.

        Args:
            rl_module_spec (RLModuleSpec or MultiRLModuleSpec): the modules. None: the algorithm's own. Default: `None`.
            model_config (dict): settings of the networks, such as {"fcnet_hiddens": [64, 64]}. Default: `{}`.
            algorithm_config_overrides_per_module (dict): {module_id: {setting: value}}: settings of `.training(...)`
                and `model_config` for single modules. Settings of the update as a whole, such as `minibatch_size`, are
                the same for all. Default: `{}`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("rl_module", settings)

    min_sample_timesteps_per_iteration: int = field(
        0,
        section="reporting",
        minimum=0,
        maximum=10**8,
        reason="train() samples so many before it returns; for a longer training call it again",
    )

    def reporting(self, **settings: Any) -> Self:
        """Set how much one iteration does. Each iteration gives one row of results.

        Args:
            min_sample_timesteps_per_iteration (int): minimum number of environment steps per iteration: the training
                step is repeated until it is reached. 0: one training step. Default: `0`.
            **settings: this one.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("reporting", settings)

    seed: int | None = field(None, section="debugging", minimum=0)

    def debugging(self, **settings: Any) -> Self:
        """Set the seed.

        Args:
            seed (int): seed of networks, environments, actions and minibatches, >= 0. None: a random seed for each
                Algorithm. Default: `None`.
            **settings: this one.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("debugging", settings)

    plugin_names: tuple[str | type, ...] = field(
        (), section="plugins", check=_check_listeners, help="listeners to load, by entry point name"
    )

    def plugins(self, *names: str | type) -> Self:
        """Set the listeners to load. They replace those that were set before.

        Args:
            *names: entry point names of listeners, files "mine.py", classes, or their names "package.module:Name". A
                class is instantiated without arguments.

        Returns:
            A changed copy.

        Raises:
            ConfigError: anything else; says how an object can be named.
        """
        return self._change("plugins", {"plugin_names": names})

    def validate(self) -> None:
        """Check settings that depend on each other, and import classes that are given by name.

        Raises:
            ConfigError: two settings do not fit, or a class cannot be imported by its name.
        """
        check_consistency(self)
        for name in ("learner_class", "learner_connector"):
            self.resolve(name)

    def resolve(self, name: str) -> Any:
        """The value of a setting, imported if it is kept as `"package.module:Name"`.

        Raises:
            ConfigError: it cannot be imported.
        """
        value = getattr(self, name)
        return resolve_name(value, where=name) if isinstance(value, str) else value

    def get_config_for_module(self, module_id: ModuleID) -> Self:
        """The config of one module: this one with its `algorithm_config_overrides_per_module`."""
        overrides = self.algorithm_config_overrides_per_module.get(module_id)
        if not overrides:
            return self
        made: dict[ModuleID, Self] = self.__dict__.setdefault("_module_configs", {})
        if module_id not in made:
            settings = dict(overrides)
            if "optimizer" in settings:
                settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
            made[module_id] = self.changed(**settings)
        return made[module_id]
