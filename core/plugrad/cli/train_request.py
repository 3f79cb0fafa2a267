"""The arguments of `plugrad train`, and the config that follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint import Checkpoint
from plugrad.cli.options import apply_settings, option_name
from plugrad.cli.progress import DEFAULT_TIMESTEPS, Goals
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.run_files import read_settings
from plugrad.cli.trust import Trust
from plugrad.cli.tuned import Tuned, tuned_for
from plugrad.errors import ConfigError
from plugrad.learner.state.checkpoint import Hyperparameters

DEFAULT_ENV = "CartPole-v1"
DEFAULT_SEED = 0
RESUMABLE_SECTIONS = ("framework", "learners", "evaluation", "plugins")
"""The settings that may change when a run goes on: they decide how training runs, not what is learned."""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The arguments of `plugrad train`.

    Attributes:
        algorithm: the algorithm's short name.
        config_class: its config.
        local_plugins: see `plugrad.cli.settings_command.AlgorithmChoice`.
        settings: the typed texts of settings, by field name.
        trust: the code that the user vouches for.
        plugins: the listeners of `--plugin`.

    The other attributes are the values of the options of the same names.
    """

    algorithm: str
    config_class: type[AlgorithmConfig]
    local_plugins: frozenset[str]
    settings: Mapping[str, str]
    env: str | None
    trust: Trust
    backend: str | None
    seed: int | None
    seeds: int | None
    learners: int | None
    plugins: tuple[str, ...]
    config_file: Path | None
    tuned: bool
    out: Path | None
    resume: Path | None
    init: Path | None
    new_episodes: bool
    hyperparameters: Hyperparameters | None
    save_every: int | None
    stop_reward: float | None
    stop_timesteps: int | None
    stop_time: float | None
    tensorboard: bool
    quiet: bool

    def fresh_config(self) -> AlgorithmConfig:
        """The config of a new run: the file of `--config` or the tuned settings, then the arguments, then the settings.

        Raises:
            ConfigError: a setting is refused, or the file names code that the user did not type.
        """
        if self.hyperparameters is not None:
            raise ConfigError(
                "--hyperparameters is for --resume: a new run has no checkpoint to take them from"
            )
        if self.new_episodes:
            raise ConfigError("--new-episodes is for --resume: a new run begins new episodes anyway")
        if self.init is not None and self.seeds is not None:
            raise ConfigError(
                "--init starts one run, and --seeds trains several as one program: give one of them"
            )
        if self.tuned and self.config_file is not None:
            raise ConfigError(
                f"--tuned and --config {self.config_file} both say which settings to start from: give one of them"
            )
        config = self._apply(self._base_config())
        if config.env is None and not config.is_offline:
            config = config.environment(DEFAULT_ENV)
        return config if config.seed is not None else config.debugging(seed=DEFAULT_SEED)

    def resumed_config(self, run: RunDirectory, save: Checkpoint) -> AlgorithmConfig:
        """The config of a run that goes on: the run's own, changed by the arguments.

        Args:
            run: the run.
            save: the checkpoint that it goes on from.

        Returns:
            The config. `RESUMABLE_SECTIONS` may differ from the run's, with `--hyperparameters config` the section
            training, and with `--new-episodes` the settings that are declared with `new_episodes`.

        Raises:
            ConfigError: an argument may not change when a run goes on, or the run's file names code that the user did
                not type.
        """
        self.trust.import_env(run.named_env())
        config = run.read_config(save)
        self.trust.check(config, run.config_file, run=run.path)
        if not isinstance(config, self.config_class):
            raise ConfigError(f"--resume: {run.path} was not trained with {self.algorithm!r}")
        self._refuse_another_run(config)
        return self._apply(config)

    @property
    def whose_hyperparameters(self) -> Hyperparameters:
        """Where a resumed run's settings of training come from."""
        return self.hyperparameters or "checkpoint"

    def goals(self, algorithm: Algorithm, run: RunDirectory) -> Goals:
        """When its run ends.

        Args:
            algorithm: of the run.
            run: its directory; one that goes on has the goals of before.

        Returns:
            Each goal as it was typed, else the run's, else that of the tuned settings or of the environment, else the
            default.

        Raises:
            ConfigError: the run's goals cannot be read.
        """
        kept = run.read_stop()
        tuned = self._tuned.stop_timesteps if self.tuned else None
        timesteps = (self.stop_timesteps, kept.get("stop_timesteps"), tuned)
        rewards = (self.stop_reward, kept.get("stop_reward"), algorithm.env_spec_reward_threshold)
        return Goals(
            reward=next((each for each in rewards if each is not None), None),
            timesteps=next((int(each) for each in timesteps if each is not None), DEFAULT_TIMESTEPS),
            seconds=self.stop_time,
        )

    @cached_property
    def _tuned(self) -> Tuned:
        env = self.env or self.settings.get("env")
        if env is None and not self.config_class().is_offline:
            env = DEFAULT_ENV
        found = tuned_for(self.algorithm, self.config_class, env)
        self.trust.check(found.config, found.file)
        return found

    def _base_config(self) -> AlgorithmConfig:
        if self.tuned:
            return self._tuned.config
        if self.config_file is None:
            return self.config_class()
        config = read_settings(self.config_file, self.config_class)
        self.trust.check(config, self.config_file)
        return config

    def _apply(self, config: AlgorithmConfig) -> AlgorithmConfig:
        if self.env is not None:
            config = config.environment(self.env)
        if self.backend is not None:
            config = config.framework(self.backend)
        if self.learners is not None:
            config = config.learners(num_learners=self.learners)
        if self.seed is not None:
            config = config.debugging(seed=self.seed)
        if self.plugins:
            config = config.plugins(*dict.fromkeys((*config.plugin_names, *self.plugins)))
        config = apply_settings(config, self.settings)
        self._refuse_other_processes(config)
        return config

    def _refuse_other_processes(self, config: AlgorithmConfig) -> None:
        if self.local_plugins and (config.num_learners or config.num_env_runners):
            raise ConfigError(
                f"{min(self.local_plugins)} is known to this process only: for remote learners and env runners make a "
                "distribution of it, with plugrad new-plugin, and install it"
            )

    def _refuse_another_run(self, config: AlgorithmConfig) -> None:
        fields = config.fields()
        own = self.whose_hyperparameters == "config"
        may_change = (*RESUMABLE_SECTIONS, "training") if own else RESUMABLE_SECTIONS
        changes = [
            name
            for name in self.settings
            if fields[name].section not in may_change
            and not (self.new_episodes and fields[name].new_episodes)
        ]
        named = {"--out": self.out, "--config": self.config_file, "--seed": self.seed, "--init": self.init}
        named |= {"--tuned": self.tuned or None}
        wrong = [option_name(fields[name]) for name in changes]
        wrong += [option for option, value in named.items() if value is not None]
        if wrong:
            hint = "; add --hyperparameters config" if wrong[0].startswith("--training.") else ""
            if changes and fields[changes[0]].new_episodes:
                hint = "; add --new-episodes"
            raise ConfigError(
                f"--resume goes on with the run as it is: {wrong[0]} cannot be given with it{hint}"
            )
        if self.env not in (None, config.env):
            raise ConfigError(f"--resume: the run was trained on {config.env}, not on {self.env}")
