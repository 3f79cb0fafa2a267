"""`AlgorithmConfig`: the settings that every algorithm has, and what can be built from them.

An algorithm subclasses it with `@dataclass(frozen=True, kw_only=True)`; its new fields are arguments of
`.training(...)`. How settings change lives in `fluent`, how they are checked in `checks`, how they are written in
`serialize`; this room knows only which there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from plugrad.config import serialize
from plugrad.config.fields import field
from plugrad.config.fluent import FluentConfig, refuse_unknown
from plugrad.config.names import resolve_name
from plugrad.config.optimizer_settings import default_optimizer, merged_optimizer
from plugrad.config.rules import check_consistency, check_module_ids, check_overrides
from plugrad.errors import ConfigError
from plugrad.hooks.registry import algorithm_of, get_algorithm
from plugrad.types import ModuleID

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm
    from plugrad.group import LearnerGroup
    from plugrad.learner import Learner

_UNSET: Any = object()


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(FluentConfig):
    """Settings of a Learner, a LearnerGroup or an Algorithm; frozen, equal by value.

    Each fluent call returns a new config: `config = PPOConfig().environment("CartPole-v1").training(lr=3e-4)`.
    `AlgorithmConfig.fields()` lists every setting with its help, default and rules.
    """

    env: Any = field(
        None,
        section="environment",
        importable=True,
        help='a Gymnasium id, "package.module:Env-v0", a class or "package.module:Class"',
    )
    observation_space: Any = field(
        None, section="environment", help="of one observation; taken from env if None"
    )
    action_space: Any = field(None, section="environment", help="of one action; taken from env if None")
    env_config: dict[str, Any] = field({}, section="environment", help="keyword arguments of the environment")

    backend: str = field("torch", section="framework", help="a backend plugin: torch, tf2, ...")
    compile: str = field(
        "auto",
        section="framework",
        choices=("none", "forward_train", "complete_update", "auto"),
        help="how much of the update is compiled; auto: the backend's best safe choice",
    )
    device: str = field(
        "auto", section="framework", help='"auto", "cpu", or a device as the framework names it'
    )

    lr: float | list[list[float]] = field(
        1e-3,
        schedulable=True,
        minimum=0,
        help="learning rate, or [[timestep, value], ...] from timestep 0, linear between",
    )
    gamma: float = field(0.99, minimum=0, maximum=1, help="discount per step")
    grad_clip: float | None = field(None, above=0, help="clip gradients at this; None: do not clip")
    grad_clip_by: str = field(
        "global_norm", choices=("value", "norm", "global_norm"), help="what grad_clip limits"
    )
    optimizer: dict[str, Any] = field(
        default_optimizer(),
        check=lambda info, value: merged_optimizer(info.make_default(), value),
        help='"type" (adam, adamw, sgd, rmsprop) and its hyperparameters',
    )
    train_batch_size: int = field(32, minimum=1, help="environment steps per update")
    minibatch_size: int | None = field(
        None, minimum=1, help="rows per optimizer step and module; None: the whole batch"
    )
    num_epochs: int = field(1, minimum=1, help="passes over the batch per update")
    shuffle_batch_per_epoch: bool = field(True, help="draw the minibatches of each epoch in a new order")
    accumulate: int = field(
        1, minimum=1, help="minibatches whose gradients are averaged for one optimizer step"
    )
    nonfinite: str = field(
        "raise",
        choices=("raise", "skip"),
        help="a NaN or infinite loss or gradient undoes the update and raises, or skips its minibatch",
    )

    num_learners: int = field(
        0, section="learners", minimum=0, help="0: learn in this process; n: n remote learners"
    )
    num_cpus_per_learner: float = field(
        1, section="learners", minimum=0, help="CPUs, and so threads, per remote learner"
    )
    num_gpus_per_learner: float = field(0, section="learners", minimum=0, help="GPUs per learner")
    local_gpu_idx: int = field(0, section="learners", minimum=0, help="which GPU a local learner takes")
    custom_resources_per_learner: dict[str, Any] = field(
        {}, section="learners", help="Ray resources per remote learner"
    )
    learner_class: Any = field(None, section="learners", importable=True, help="your Learner subclass")
    learner_connector: Any = field(
        None,
        section="learners",
        importable=True,
        help="a function (or list-maker) of learner connector pieces",
    )
    add_default_connectors: bool = field(
        True, section="learners", help="keep the algorithm's own connector pieces"
    )
    max_requests_in_flight_per_learner: int = field(
        3, section="learners", minimum=1, help="queue length when async"
    )
    on_full: str = field(
        "block",
        section="learners",
        choices=("block", "raise", "drop"),
        help="what a full queue does with a new batch",
    )
    on_failure: str = field(
        "restart",
        section="learners",
        choices=("restart", "shrink", "raise"),
        help="what happens when a learner dies",
    )
    max_restarts: int = field(3, section="learners", minimum=0, help="restarts of learners before giving up")
    timeout_s: float = field(
        60, section="learners", above=0, help="seconds that one phase of a learner may take"
    )
    build_timeout_s: float = field(
        300, section="learners", above=0, help="seconds for building and first compilation"
    )

    rl_module_spec: Any = field(
        None, section="rl_module", help="RLModuleSpec or MultiRLModuleSpec; None: the algorithm's"
    )
    model_config: dict[str, Any] = field(
        {}, section="rl_module", help="settings of the networks, such as fcnet_hiddens = [64, 64]"
    )
    algorithm_config_overrides_per_module: dict[str, Any] = field(
        {}, section="rl_module", help="{module_id: {setting: value}}"
    )

    policies: Any = field(
        None, section="multi_agent", help="module ids, or {module_id: RLModuleSpec or None}"
    )
    agent_to_module: Any = field(
        None,
        section="multi_agent",
        help='{agent: module id}, or a function of the agent, or its "package.module:name"',
    )
    policies_to_train: list[str] | None = field(
        None, section="multi_agent", check=check_module_ids, help="module ids that learn; None: all"
    )

    num_env_runners: int = field(0, section="env_runners", minimum=0, help="0: sample in this process")
    num_envs_per_env_runner: int = field(
        8, section="env_runners", minimum=1, help="environments that step together"
    )
    rollout_fragment_length: int | None = field(
        None,
        section="env_runners",
        minimum=1,
        help="steps per environment and sample; None: train_batch_size shared out",
    )
    normalize_observations: bool = field(
        False, section="env_runners", help="scale observations by their running mean and standard deviation"
    )

    evaluation_interval: int | None = field(
        None, section="evaluation", minimum=1, help="evaluate every so many iterations; None: never"
    )
    evaluation_num_episodes: int = field(20, section="evaluation", minimum=1, help="episodes per evaluation")

    seed: int | None = field(
        None, section="debugging", minimum=0, help="of networks, sampling and minibatches"
    )

    plugin_names: list[str] = field([], section="plugins", help="listeners to load, by entry point name")

    def __post_init__(self) -> None:
        super().__post_init__()
        overrides = check_overrides(self.algorithm_config_overrides_per_module, type(self).fields())
        object.__setattr__(self, "algorithm_config_overrides_per_module", overrides)

    def environment(self, env: Any = _UNSET, **settings: Any) -> Self:
        """What is learned in: `env`, `observation_space`, `action_space`, `env_config`."""
        return self._change("environment", _with(settings, env=env))

    def framework(self, backend: str = _UNSET, **settings: Any) -> Self:
        """Which backend runs the update, and how: `backend`, `compile`, `device`."""
        return self._change("framework", _with(settings, backend=backend))

    def training(self, **settings: Any) -> Self:
        """The update, and the algorithm's own settings: `lr`, `gamma`, `grad_clip`, `optimizer`, ...

        `optimizer` is merged over the present one, unless its type changes.
        """
        if "optimizer" in settings:
            settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
        return self._change("training", settings)

    def learners(self, **settings: Any) -> Self:
        """Who runs the update: `num_learners` (0: this process), `learner_class`, `on_failure`, `timeout_s`, ..."""
        return self._change("learners", settings)

    def rl_module(self, **settings: Any) -> Self:
        """The networks: `rl_module_spec`, `model_config`, `algorithm_config_overrides_per_module`."""
        return self._change("rl_module", settings)

    def multi_agent(self, **settings: Any) -> Self:
        """Agents and modules: `policies`, `agent_to_module`, `policies_to_train`."""
        return self._change("multi_agent", settings)

    def env_runners(self, **settings: Any) -> Self:
        """How experience is collected: `num_env_runners`, `num_envs_per_env_runner`, `rollout_fragment_length`, ..."""
        return self._change("env_runners", settings)

    def evaluation(self, **settings: Any) -> Self:
        """When the policy is evaluated: `evaluation_interval`, `evaluation_num_episodes`."""
        return self._change("evaluation", settings)

    def debugging(self, **settings: Any) -> Self:
        """Reproducibility: `seed`."""
        return self._change("debugging", settings)

    def plugins(self, *names: str) -> Self:
        """The listeners to load, by entry point name; the list replaces the former one."""
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(
                    f"plugins() takes names, got {name!r}; pass objects as Learner(plugins=[...])"
                )
        return self._change("plugins", {"plugin_names": list(names)})

    def validate(self) -> None:
        """Check what can only be checked together: spaces, module ids, names of classes.

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

    def get_default_learner_class(self) -> type["Learner"]:
        """The Learner that is built when `learner_class` is None; algorithms override it."""
        # Late: the config stands below the learner, which reads it.
        from plugrad.learner import Learner

        return Learner

    def get_learner_class(self) -> type["Learner"]:
        """`learner_class`, imported, or the algorithm's default."""
        chosen: type[Learner] | None = self.resolve("learner_class")
        return self.get_default_learner_class() if chosen is None else chosen

    def get_config_for_module(self, module_id: ModuleID) -> Self:
        """This config with the module's `algorithm_config_overrides_per_module`; itself if there are none."""
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

    def build_learner(
        self, env: Any = None, spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None
    ) -> "Learner":
        """A built Learner.

        Args:
            env: an environment, or what `.environment()` takes, to read the spaces from.
            spaces: `{module_id: (observation space, action space)}` instead.
        """
        from plugrad.learner import build_learner  # late: see get_default_learner_class

        self.validate()
        return build_learner(self, env=env, spaces=spaces)

    def build_learner_group(
        self,
        env: Any = None,
        spaces: Mapping[ModuleID, tuple[Any, Any]] | None = None,
        rl_module_spec: Any = None,
    ) -> "LearnerGroup":
        """A LearnerGroup; arguments as in `build_learner`, and a module spec in place of the config's."""
        from plugrad.group import build_learner_group  # late: see get_default_learner_class

        self.validate()
        return build_learner_group(self, env=env, spaces=spaces, rl_module_spec=rl_module_spec)

    def build_algo(self) -> "Algorithm":
        """An Algorithm: samples `env`, trains, evaluates, saves."""
        from plugrad.algorithm import Algorithm  # late: see get_default_learner_class

        self.validate()
        return Algorithm(self)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as strict JSON data, and the algorithm's name.

        Raises:
            ConfigError: a value that is neither data nor importable, with its name.
        """
        algorithm = algorithm_of(type(self))
        written = {
            name: serialize.encode_field(info, getattr(self, name))
            for name, info in type(self).fields().items()
        }
        return {serialize.ALGORITHM_KEY: algorithm.name if algorithm else None, **written}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return serialize.to_json(self.to_dict())

    def to_toml(self) -> str:
        """`to_dict` as TOML, a table per section."""
        return serialize.to_toml(self.to_dict(), type(self).fields())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The config that `to_dict` wrote; settings that are not there keep their defaults.

        `AlgorithmConfig.from_dict` gives the config of the algorithm that the data names.

        Raises:
            ConfigError: an unknown setting, a refused value, or the data of another algorithm.
        """
        return cls._from_data(data, none_words=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The config that `to_json` wrote; errors as in `from_dict`."""
        return cls.from_dict(serialize.parse_json(text))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The config that `to_toml` wrote; errors as in `from_dict`."""
        return cls._from_data(serialize.parse_toml(text), none_words=True)

    @classmethod
    def _from_data(cls, data: Mapping[str, Any], *, none_words: bool) -> Self:
        settings = dict(data)
        algorithm = settings.pop(serialize.ALGORITHM_KEY, None)
        if algorithm not in (None, serialize.NONE):
            cls = cls._class_for(str(algorithm))
        fields = cls.fields()
        values = serialize.flat(settings, fields)
        refuse_unknown(cls, values, call=cls.__name__)
        return cls(
            **{k: serialize.decode_field(fields[k], v, none_words=none_words) for k, v in values.items()}
        )

    @classmethod
    def _class_for(cls, algorithm: str) -> type[Self]:
        own = algorithm_of(cls)
        if own is not None and own.name == algorithm:
            return cls
        named: type[Any] = get_algorithm(algorithm)
        if not issubclass(named, cls):
            raise ConfigError(
                f"this config is of algorithm {algorithm!r}, not of {cls.__name__}: use {named.__name__}"
            )
        return named


def _with(settings: dict[str, Any], **positional: Any) -> dict[str, Any]:
    return {name: value for name, value in positional.items() if value is not _UNSET} | settings
