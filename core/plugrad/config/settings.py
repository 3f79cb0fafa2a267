"""The settings that every algorithm has: name, type, default, section, help and range of each."""

from dataclasses import dataclass
from typing import Any

from plugrad.config.documents import DocumentConfig
from plugrad.config.fields import field
from plugrad.config.optimizer_settings import default_optimizer, merged_optimizer
from plugrad.config.rules import check_module_ids, check_names


@dataclass(frozen=True, kw_only=True)
class Settings(DocumentConfig):
    """The declarations of the settings; `plugrad.config.Config` adds the fluent methods."""

    env: Any = field(
        None,
        section="environment",
        importable=True,
        help='a Gymnasium id, "package.module:Env-v0", a class or "package.module:Class"',
    )
    observation_space: Any = field(
        None, section="environment", help="space of one observation; None: that of env"
    )
    action_space: Any = field(None, section="environment", help="space of one action; None: that of env")
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
    train_batch_size: int = field(32, minimum=1, help="environment steps per update, at least")
    minibatch_size: int | None = field(
        None, minimum=1, help="rows per minibatch and module; None: the whole batch"
    )
    num_epochs: int = field(1, minimum=1, help="passes over the batch per update")
    shuffle_batch_per_epoch: bool = field(True, help="draw the minibatches of each epoch in a new order")
    accumulate: int = field(
        1,
        minimum=1,
        help="minibatches per optimizer step: their gradients are averaged over rows, clipped and applied once",
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
    num_gpus_per_learner: float = field(0, section="learners", minimum=0, help="GPUs per remote learner")
    local_gpu_idx: int = field(
        0, section="learners", minimum=0, help="of RLlib, without effect: use framework.device"
    )
    custom_resources_per_learner: dict[str, Any] = field(
        {}, section="learners", help="Ray resources per remote learner"
    )
    learner_class: Any = field(None, section="learners", importable=True, help="your Learner subclass")
    learner_connector: Any = field(
        None,
        section="learners",
        importable=True,
        help="a function of the two spaces that returns connector pieces",
    )
    add_default_connectors: bool = field(
        True, section="learners", help="keep the algorithm's own connector pieces"
    )
    max_requests_in_flight_per_learner: int = field(
        3, section="learners", minimum=1, help="batches that may wait when updates are asynchronous"
    )
    on_full: str = field(
        "block",
        section="learners",
        choices=("block", "raise", "drop_oldest", "drop_newest"),
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
        None,
        section="multi_agent",
        help="module ids, or {module_id: its RLModuleSpec, or None for the common one}",
    )
    agent_to_module: Any = field(
        None,
        section="multi_agent",
        help='{agent: module id}, or a function of the agent, or its "package.module:name"',
    )
    policies_to_train: list[str] | None = field(
        None, section="multi_agent", check=check_module_ids, help="module ids that learn; None: all"
    )

    num_env_runners: int = field(
        0,
        section="env_runners",
        minimum=0,
        help="0: sample in this process; n: n Ray actors, each with its environments",
    )
    num_envs_per_env_runner: int = field(
        8, section="env_runners", minimum=1, help="environments per env runner, which step together"
    )
    rollout_fragment_length: int | None = field(
        None,
        section="env_runners",
        minimum=1,
        help="steps per environment and sample; None: train_batch_size divided among all, rounded up",
    )
    vectorization_mode: str = field(
        "sync",
        section="env_runners",
        choices=("sync", "vector_entry_point"),
        help="step single environments in turn, or the environment's own vectorised version",
    )
    normalize_observations: bool = field(
        False, section="env_runners", help="scale observations by their running mean and standard deviation"
    )

    output: str | None = field(
        None, section="offline_data", help="record the whole episodes that training samples in this directory"
    )
    output_max_rows_per_file: int = field(
        10_000, section="offline_data", minimum=1, help="steps of one part of that data set"
    )
    output_max_rows: int | None = field(
        None, section="offline_data", minimum=1, help="steps that are recorded in all; None: no limit"
    )

    evaluation_interval: int | None = field(
        None, section="evaluation", minimum=1, help="evaluate every so many iterations; None: never"
    )
    evaluation_num_episodes: int = field(20, section="evaluation", minimum=1, help="episodes per evaluation")

    seed: int | None = field(
        None,
        section="debugging",
        minimum=0,
        help="seed of networks, sampling and minibatches; None: a new one",
    )

    plugin_names: tuple[str, ...] = field(
        (), section="plugins", check=check_names, help="listeners to load, by entry point name"
    )
