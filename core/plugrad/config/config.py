"""`Config`: the settings with their fluent methods, one per section.

`plugrad.algorithm_config.AlgorithmConfig` adds what can be built from a config. Settings are declared in `settings`,
changed in `fluent`, checked in `checks` and `rules`, and written in `documents` and `serialize`.
"""

from dataclasses import dataclass
from typing import Any, Self

from plugrad.config.optimizer_settings import merged_optimizer
from plugrad.config.rules import check_consistency, check_overrides
from plugrad.config.settings import Settings
from plugrad.importing.names import resolve_name
from plugrad.types import ModuleID

_UNSET: Any = object()


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of a Learner, a LearnerGroup or an Algorithm.

    A config is frozen and equal by value. Each fluent method returns a new config, so calls can be chained:

        config = PPOConfig().environment("CartPole-v1").training(lr=3e-4).env_runners(num_envs_per_env_runner=8)

    Every setting is an attribute too, such as `config.lr`. The methods below name the defaults of `AlgorithmConfig`; an
    algorithm may have others, and settings of its own. `fields()` lists those of a class, and so does
    `plugrad train ALGORITHM --help`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_overrides(self)

    def environment(self, env: Any = _UNSET, **settings: Any) -> Self:
        """Set the environment, or the spaces of data that comes from elsewhere.

        Args:
            env (str, class or function): a Gymnasium id, "package.module:Env-v0", a class or function that makes the
                environment, or its name "package.module:Class". None: no environment. Default: `None`.
            observation_space (gymnasium.Space): space of one observation. None: that of `env`. Default: `None`.
            action_space (gymnasium.Space): space of one action. None: that of `env`. Default: `None`.
            env_config (dict): keyword arguments of the environment. Default: `{}`.
            **settings: the last three.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("environment", _with(settings, env=env))

    def framework(self, backend: str = _UNSET, **settings: Any) -> Self:
        """Set the framework that runs the update.

        Args:
            backend (str): the name of a backend plugin, such as "torch" or "tf2". Default: `"torch"`.
            compile (str): how much of the update is compiled: "none", "forward_train" (the networks),
                "complete_update", or "auto" (the backend's best safe choice). `learner.update_mode` says what runs and
                why. Default: `"auto"`.
            device (str): "cpu", a device as the framework names it, or "auto". Default: `"auto"`.
            **settings: the last two.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("framework", _with(settings, backend=backend))

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
                "eps". What is left out keeps its value; another type begins with its own defaults.
                Default: `{"type": "adam"}`.
            train_batch_size (int): environment steps per update, at least. Default: `32`.
            minibatch_size (int): rows per minibatch and module, counted over all learners; for stateful modules steps
                on average, in whole sequences. None: the whole batch. Default: `None`.
            num_epochs (int): passes over the batch per update. Default: `1`.
            shuffle_batch_per_epoch (bool): draw the minibatches of each epoch in a new order. Default: `True`.
            accumulate (int): minibatches per optimizer step. Their gradients are averaged over rows, then clipped and
                applied once. Default: `1`.
            nonfinite (str): what a NaN or infinite loss or gradient does: "raise" undoes the update and raises
                `NonFiniteError`, "skip" leaves that minibatch out. Default: `"raise"`.
            **settings: all of these, and the algorithm's own.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        if "optimizer" in settings:
            settings["optimizer"] = merged_optimizer(self.optimizer, settings["optimizer"])
        return self._change("training", settings)

    def learners(self, **settings: Any) -> Self:
        """Set which processes run the update, and what happens when one of them fails.

        Args:
            num_learners (int): 0 learns in this process; n starts n remote learners as Ray actors. Default: `0`.
            num_cpus_per_learner (float): CPUs that Ray reserves for each remote learner, which also uses as many
                threads. Default: `1`.
            num_gpus_per_learner (float): GPUs that Ray reserves for each remote learner. Default: `0`.
            local_gpu_idx (int): RLlib's setting. It has no effect: choose a GPU with `.framework(device="cuda:1")`.
                Default: `0`.
            custom_resources_per_learner (dict): other Ray resources per remote learner, {name: amount}. Default: `{}`.
            learner_class (class): a subclass of `Learner`, or its name "package.module:Class". None: the algorithm's.
                Default: `None`.
            learner_connector (function): called with the observation space and the action space; it returns a connector
                piece or a list of them, which run before the algorithm's. None: no further pieces. Default: `None`.
            add_default_connectors (bool): keep the algorithm's own connector pieces. Default: `True`.
            max_requests_in_flight_per_learner (int): batches that may wait in an asynchronous group. Default: `3`.
            on_full (str): what `submit` does when so many batches wait: "block", "raise", "drop_oldest" or
                "drop_newest". Default: `"block"`.
            on_failure (str): what happens when a remote learner dies: "restart" starts another one, "shrink" goes on
                with the others, "raise" gives up. Default: `"restart"`.
            max_restarts (int): restarts of learners before the group gives up. Default: `3`.
            timeout_s (float): seconds that one phase of a remote learner may take once its program is compiled.
                Default: `60`.
            build_timeout_s (float): seconds for building and for the first compilation. Default: `300`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("learners", settings)

    def rl_module(self, **settings: Any) -> Self:
        """Set the networks.

        Args:
            rl_module_spec (RLModuleSpec or MultiRLModuleSpec): the modules. None: the algorithm's own. Default: `None`.
            model_config (dict): settings of the networks, such as {"fcnet_hiddens": [64, 64]}. Default: `{}`.
            algorithm_config_overrides_per_module (dict): {module_id: {setting: value}}; settings of `.training(...)`
                and `model_config` that one module has of its own. Default: `{}`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("rl_module", settings)

    def multi_agent(self, **settings: Any) -> Self:
        """Set which agents use which modules, and which modules learn.

        Args:
            policies (list or dict): module ids, or {module_id: its RLModuleSpec, or None for the common one}. None: one
                module. Default: `None`.
            agent_to_module (dict or function): {agent: module_id}, a function of the agent, or its name
                "package.module:name". Default: `None`.
            policies_to_train (list): ids of the modules that learn. None: all. Default: `None`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("multi_agent", settings)

    def env_runners(self, **settings: Any) -> Self:
        """Set how experience is sampled.

        Args:
            num_env_runners (int): 0 samples in this process; n starts n Ray actors, each with its own environments.
                Default: `0`.
            num_envs_per_env_runner (int): environments per env runner, which step together. Default: `8`.
            rollout_fragment_length (int): steps of each environment per sample. None: `train_batch_size` divided among
                all environments, rounded up. Default: `None`.
            vectorization_mode (str): "sync" steps single environments in turn; "vector_entry_point" uses the
                environment's own vectorized version. Default: `"sync"`.
            normalize_observations (bool): scale observations by their running mean and standard deviation.
                Default: `False`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("env_runners", settings)

    def offline_data(self, **settings: Any) -> Self:
        """Set which recorded episodes an offline algorithm learns from, and where sampled ones are recorded.

        Offline algorithms also have `input_` (str or list): a directory of recorded episodes,
        "minari:<data set id>", or a list of these.

        Args:
            output (str): a directory to which each whole episode that training samples is written, as data for offline
                algorithms. Episodes that are in it already stay there. None: nothing is written. Default: `None`.
            output_max_rows_per_file (int): environment steps that one part of that data set has at most, except that
                an episode is never divided. They are in memory until they are written. Default: `10000`.
            output_max_rows (int): environment steps that are written in all, until one more episode would be too much.
                None: no limit. Default: `None`.
            **settings: all of these, and the algorithm's own.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("offline_data", settings)

    def evaluation(self, **settings: Any) -> Self:
        """Set when the policy is evaluated, without exploration.

        Args:
            evaluation_interval (int): iterations from one evaluation to the next. None: no evaluation. Default: `None`.
            evaluation_num_episodes (int): episodes per evaluation. Default: `20`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("evaluation", settings)

    def debugging(self, **settings: Any) -> Self:
        """Set the seed.

        Args:
            seed (int): seed of the networks, the environments, the actions and the minibatches, >= 0. None: a new one
                for each Algorithm. Default: `None`.
            **settings: this one.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name that is no setting of this section, or a value that its setting refuses.
        """
        return self._change("debugging", settings)

    def plugins(self, *names: str) -> Self:
        """Set the listeners that are loaded, in place of those before.

        Args:
            *names: entry point names of listeners, files "mine.py", or "package.module:Name".

        Returns:
            A changed copy.

        Raises:
            ConfigError: a value that is no text; objects are given as `Learner(plugins=[...])`.
        """
        return self._change("plugins", {"plugin_names": names})

    def validate(self) -> None:
        """Check settings that depend on each other, and import the classes that are given by name.

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


def _with(settings: dict[str, Any], **positional: Any) -> dict[str, Any]:
    return {name: value for name, value in positional.items() if value is not _UNSET} | settings
