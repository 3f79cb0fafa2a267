"""`SamplingSettings`: the part of `Config` for experience.

Its settings say where experience comes from, who acts, how it is sampled or read, and how policies are evaluated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from plugrad.config.fields import FieldInfo, field
from plugrad.config.fluent import UNSET, FluentConfig, given
from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import importable_name
from plugrad.importing.trusted_names import ENVIRONMENT, WRAPPER

# Why some numbers have an upper limit: a larger one cannot be meant, and would end in a raw error or in a loop that
# nobody sees the end of.
EACH_IS_A_PROCESS: Final = {"maximum": 10_000, "reason": "each is a process of its own", "max_in_file": 256}
REQUESTED_FIRST: Final = {"maximum": 10_000, "reason": "so many are requested before the first is taken"}
PLACEMENTS: Final = ("pack", "spread")
"""How Ray's placement groups lay out actors."""

_WRAP: Final = "give a function as env that makes the environment and wraps it"


def _whole_games(atari: bool | dict[str, Any]) -> bool | dict[str, Any]:
    """The setting `atari` in evaluations: a lost life ends no episode."""
    if atari is False:
        return False
    return {**({} if atari is True else atari), "terminal_on_life_loss": False}


# --- checks of single settings ---


def _check_module_ids(info: FieldInfo, value: Any) -> list[str]:
    """A list of module ids."""
    if callable(value):
        raise ConfigError(
            f"{info.name} is a collection of module ids; "
            "for a rule, override Learner.should_module_be_updated",
            field=info.name,
        )
    if not isinstance(value, list) or not all(isinstance(module_id, str) for module_id in value):
        raise ConfigError(
            f"{info.name} must be a collection of module ids or None, got {value!r}", field=info.name
        )
    return value


def _check_agent_to_module(info: FieldInfo, value: Any) -> Any:
    """A dict, a function, or the function's name if it is importable."""
    if isinstance(value, str):
        return value
    if callable(value):
        return importable_name(value) or value
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ConfigError(
            f"{info.name} must be {{agent: module_id}}, a function (agent_id) or (agent_id, episode) that returns a "
            f'module id, or its name "package.module:name"; got {value!r}',
            field=info.name,
        )
    return dict(value)


def _check_env_wrappers(info: FieldInfo, value: Any) -> list[Any]:
    """Classes or names, alone or with keyword arguments; an importable class is replaced by its name."""
    if not isinstance(value, list):
        raise ConfigError(f"{info.name} must be a list, got {value!r}", field=info.name)
    return [_env_wrapper(info, each) for each in value]


def _env_wrapper(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], Mapping):
        return [_env_wrapper(info, value[0]), dict(value[1])]
    if callable(value):
        return importable_name(value) or value
    if not isinstance(value, str) or ":" not in value:
        raise ConfigError(
            f'{info.name}: expected a class, its name "package.module:Wrapper", or [name, {{keyword: value}}], '
            f"got {value!r}",
            field=info.name,
        )
    return value


_REDUCTIONS: Final = ("mean", "last", "sum", "min", "max")
"""How the numbers that the steps of an episode have in `info` become one."""


def _check_info_metrics(info: FieldInfo, value: Any) -> dict[str, str]:
    """`{name: reduction}`; a list of names has the means."""
    found = dict.fromkeys(value, "mean") if isinstance(value, list) and _are_names(value) else value
    if not isinstance(found, Mapping) or not _are_names(found):
        raise ConfigError(
            f'{info.name} must be names of numbers in info, such as ["success"], or {{name: how an episode\'s numbers '
            f'become one}}, such as {{"success": "last"}}; got {value!r}',
            field=info.name,
        )
    for name, reduction in found.items():
        if reduction not in _REDUCTIONS:
            raise ConfigError(
                f"{info.name}: {name!r} must be one of {', '.join(map(repr, _REDUCTIONS))}, got {reduction!r}."
                + did_you_mean(str(reduction), _REDUCTIONS),
                field=info.name,
                found=reduction,
            )
    return dict(found)


def _are_names(values: Any) -> bool:
    return all(isinstance(each, str) and each for each in values)


@dataclass(frozen=True, kw_only=True)
class SamplingSettings(FluentConfig):
    """The sections `environment`, `multi_agent`, `env_runners`, `offline_data` and `evaluation` of a `Config`."""

    env: Any = field(None, section="environment", importable=True, code=ENVIRONMENT)
    observation_space: Any = field(None, section="environment")
    action_space: Any = field(None, section="environment")
    env_config: dict[str, Any] = field({}, section="environment", new_episodes=True)
    allow_other_bounds: bool = field(False, section="environment")

    def environment(self, env: Any = UNSET, **settings: Any) -> Self:
        """Set the environment, or the spaces of data that comes from elsewhere.

        Args:
            env (str, class or function): a Gymnasium id, "package.module:Env-v0", a class or function that makes the
                environment, or its name "package.module:Class"; with `vectorization_mode` "vector_entry_point" or
                "tensors" they make a vector environment and also get `num_envs`. None: no environment. Default: `None`.
            observation_space (gymnasium.Space): space of one observation. None: that of `env`. Default: `None`.
            action_space (gymnasium.Space): space of one action. None: that of `env`. Default: `None`.
            env_config (dict): keyword arguments of the environment. Default: `{}`.
            allow_other_bounds (bool): take an environment, recorded episodes or a checkpoint whose actions or images
                have other bounds than the modules' spaces. Any other difference stays an error. Default: `False`.
            **settings: `observation_space`, `action_space`, `env_config` and `allow_other_bounds`.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("environment", given(settings, env=env))

    policies: Any = field(None, section="multi_agent")
    agent_to_module: Any = field(None, section="multi_agent", importable=True, check=_check_agent_to_module)
    policies_to_train: list[str] | None = field(None, section="multi_agent", check=_check_module_ids)
    critic_obs: str | None = field(None, section="multi_agent", choices=("state", "agents"))

    def multi_agent(self, **settings: Any) -> Self:
        """Set which agents use which modules, and which modules learn.

        Args:
            policies (list or dict): module ids, or {module_id: its RLModuleSpec, or None for the common one}. None: one
                module. Default: `None`.
            agent_to_module (dict or function): {agent: module_id}, or a function of the agent, or of agent and episode,
                or its name "package.module:name". It is called once per agent and episode; `episode.seed` and
                `episode.id_` tell episodes apart. None: all agents use the only module. Default: `None`.
            policies_to_train (list): ids of the modules that learn. None: all. Default: `None`.
            critic_obs (str): what critics see beside their agent's observation, and policies do not: "state" is the
                environment's `state()`, "agents" the last observations of all agents. Observations become Dicts with
                the key "critic_obs". PPO with it is MAPPO, and without it IPPO. With one agent,
                "state" gives its critic more than its policy has. Default: `None`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("multi_agent", settings)

    num_env_runners: int = field(0, section="env_runners", minimum=0, **EACH_IS_A_PROCESS)
    num_envs_per_env_runner: int = field(
        8,
        section="env_runners",
        minimum=1,
        maximum=1_000_000,
        reason="each is made before the first step",
        max_in_file=1024,
    )
    env_runner_backend: str = field("auto", section="env_runners", choices=("auto", "process", "ray"))
    env_runner_placement: str | None = field(None, section="env_runners", choices=PLACEMENTS)
    connectors_in_env_runners: bool = field(False, section="env_runners")
    max_requests_in_flight_per_env_runner: int = field(2, section="env_runners", minimum=1, **REQUESTED_FIRST)
    sample_async: bool = field(False, section="env_runners")
    rollout_fragment_length: int | None = field(
        None,
        section="env_runners",
        minimum=1,
        maximum=10**7,
        reason="the steps of a sample are reserved in memory before the first is taken",
    )
    vectorization_mode: str = field(
        "sync",
        section="env_runners",
        choices=("sync", "async", "vector_entry_point", "envpool", "tensors"),
        off=("sync",),
        with_many_agents='set "sync", and num_env_runners for more processes',
        new_episodes=True,
    )
    env_wrappers: list[Any] = field(
        [],
        section="env_runners",
        check=_check_env_wrappers,
        code=WRAPPER,
        new_episodes=True,
    )
    normalize_observations: bool = field(False, section="env_runners")
    normalize_rewards: bool = field(
        False,
        section="env_runners",
        of_arrays=True,
        off=(False,),
        with_many_agents=f"set clip_rewards, or {_WRAP}",
        in_evaluation=lambda value: False,
    )
    clip_rewards: bool | float | None = field(
        None, section="env_runners", above=0, of_arrays=True, in_evaluation=lambda value: False
    )
    frame_stack: int | None = field(
        None,
        section="env_runners",
        minimum=1,
        maximum=1_000,
        reason="each observation holds so many frames",
        max_in_file=256,
        acts=True,
        off=(None, 1),
        with_many_agents=_WRAP,
    )
    atari: bool | dict[str, Any] = field(
        False,
        section="env_runners",
        max_in_file={"screen_size": 1024, "noop_max": 10_000, "frame_skip": 10_000},
        acts=True,
        off=(False,),
        with_many_agents=_WRAP,
        in_evaluation=_whole_games,
    )
    time_limit: int | None = field(
        None,
        section="env_runners",
        minimum=1,
        off=(None,),
        with_many_agents=_WRAP,
        new_episodes=True,
    )
    info_metrics: dict[str, str] = field({}, section="env_runners", check=_check_info_metrics, of_arrays=True)

    @property
    def has_single_envs(self) -> bool:
        """Whether `vectorization_mode` steps single environments, which wrappers can be put around."""
        return self.vectorization_mode in ("sync", "async")

    @property
    def has_env_workers(self) -> bool:
        """Whether environments step in worker processes of an env runner."""
        return self.vectorization_mode == "async"

    @property
    def makes_vector_env(self) -> bool:
        """Whether `env` makes a vector environment."""
        return self.vectorization_mode in ("vector_entry_point", "tensors")

    @property
    def gives_tensors(self) -> bool:
        """Whether environments give tensors of the learner's framework."""
        return self.vectorization_mode == "tensors"

    def env_runners(self, **settings: Any) -> Self:
        """Set how experience is sampled.

        Args:
            num_env_runners (int): 0 samples in this process; n starts n processes, each with its own environments.
                Default: `0`.
            num_envs_per_env_runner (int): environments per env runner, which step together. Default: `8`.
            env_runner_backend (str): where env runners run: "process" (processes on this machine, without Ray), "ray"
                (Ray actors), or "auto": "ray" if learners are remote, Ray is initialised or RAY_ADDRESS is set, else
                "process". Default: `"auto"`.
            env_runner_placement (str): where Ray puts env runners, which ask for one CPU each: as `placement` of
                learners. Default: `None`.
            connectors_in_env_runners (bool): each env runner process runs the learner connectors on what it sampled, at
                the same time as the others, and the learner gets their batches. For on-policy algorithms with
                `num_env_runners` whose connectors need no whole batch: PPO with `normalize_advantages` "minibatch" or
                "none". The numbers are the same, unless a piece of your own depends on more than its episodes and the
                weights, such as on earlier calls. Default: `False`.
            max_requests_in_flight_per_env_runner (int): samples that an asynchronous algorithm requests from one env
                runner before it takes the first. An env runner that has made that many waits. Default: `2`.
            sample_async (bool): request the next sample before learning from the last, so that both overlap. Samples
                then come from the weights before the last update. For off-policy algorithms with `num_env_runners`.
                Default: `False`.
            rollout_fragment_length (int): steps of each environment per sample; PPO samples until it has
                `train_batch_size` steps. None: `train_batch_size` divided among all environments, rounded up.
                Default: `None`.
            vectorization_mode (str): "sync" steps single environments in turn; "async" steps them in worker processes,
                with the same episodes; "vector_entry_point" uses the environment's own vectorized version; "tensors"
                uses one that gives and takes tensors of the learner's framework, which stay on its device, in one
                process; "envpool" uses the package of that name. Default: `"sync"`.
            env_wrappers (list): wrappers around each environment, the first one innermost: classes such as
                `gymnasium.Wrapper`s, their names "package.module:Wrapper", or [class or name, {keyword: value}]. With
                many agents they give an environment of many agents. Default: `[]`.
            normalize_observations (bool): scale observations by their running mean and standard deviation.
                Default: `False`.
            normalize_rewards (bool): divide the rewards that a learner sees by the running standard deviation of the
                discounted return. Reported returns are sums of the environment's own rewards. Default: `False`.
            clip_rewards (bool or float): clip the rewards that a learner sees: True to their sign, a number to
                [-number, number]. Applied before `normalize_rewards`. None: True with `atari`, else False.
                Default: `None`.
            frame_stack (int): how many of the last frames form one observation, as in Gymnasium's
                `FrameStackObservation`. Each array of the observation space gets a first axis of this length. None: 4
                with `atari`, else 1. Default: `None`.
            atari (bool or dict): preprocess Atari games in the standard way, with Gymnasium's `AtariPreprocessing`: 4
                frames per action, 84x84, grey; for the learner, a lost life ends the episode. A dict has arguments of
                `AtariPreprocessing` that differ from these. Default: `False`.
            time_limit (int): steps after which an episode is truncated, counted after the frame skip of `atari` and
                inside `env_wrappers`. None: the environment's own limit. Default: `None`.
            info_metrics (list or dict): names of numbers in `info` that become metrics `info/<name>`: the mean over the
                steps of an episode, or as {name: "mean", "last", "sum", "min" or "max"} says. Reported is the mean
                over the last episodes. With many agents it is `info/<name>/<agent>`. Default: `{}`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("env_runners", settings)

    output: str | None = field(None, section="offline_data", of_arrays=True)
    output_max_rows_per_file: int = field(10_000, section="offline_data", minimum=1)
    output_max_rows: int | None = field(None, section="offline_data", minimum=1)

    def offline_data(self, **settings: Any) -> Self:
        """Set which recorded episodes an offline algorithm learns from, and where sampled ones are recorded.

        Offline algorithms (`plugrad.OfflineConfig`) also have `input_` (str or list): a directory of recorded episodes,
        "minari:<data set id>", or a list of these.

        Args:
            output (str): a directory to which each whole episode that training samples is written, as data for offline
                algorithms. Episodes that it already has are kept. None: nothing is written. Default: `None`.
            output_max_rows_per_file (int): most environment steps per part of that data set; an episode is never
                divided. They stay in memory until they are written. Default: `10000`.
            output_max_rows (int): most environment steps to write in all; writing stops at the first episode that would
                exceed it. None: no limit. Default: `None`.
            **settings: all of these, and the algorithm's own.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("offline_data", settings)

    evaluation_interval: int | None = field(None, section="evaluation", minimum=1)
    evaluation_env: Any = field(None, section="evaluation", importable=True, code=ENVIRONMENT)
    evaluation_env_config: dict[str, Any] | None = field(None, section="evaluation")
    evaluation_num_episodes: int = field(
        20,
        section="evaluation",
        minimum=1,
        maximum=1_000_000,
        reason="an evaluation plays them all before it returns",
    )
    evaluation_max_episode_steps: int | None = field(100_000, section="evaluation", minimum=1)
    evaluation_explore: bool = field(False, section="evaluation")

    def evaluation(self, **settings: Any) -> Self:
        """Set when and how the policy is evaluated.

        Args:
            evaluation_interval (int): iterations from one evaluation to the next. None: no evaluation. Default: `None`.
            evaluation_env (str, class or function): the environment of evaluations, as `env` of `environment()`; it has
                the same spaces. None: that of training. Default: `None`.
            evaluation_env_config (dict): its keyword arguments. None: those of training for the same environment, none
                for another one. Default: `None`.
            evaluation_num_episodes (int): episodes per evaluation. Default: `20`.
            evaluation_max_episode_steps (int): steps after which an episode of an evaluation or recording is cut, if
                the environment has not ended it: a policy that does not explore may run for ever. None: never.
                Default: `100000`.
            evaluation_explore (bool): act with exploration, as in training; else with the most probable actions. A
                policy that has to be random, as in many games and in partly observed environments, is evaluated with
                it. Default: `False`.
            **settings: all of these.

        Returns:
            A changed copy.

        Raises:
            ConfigError: a name is not a setting of this section, or a setting refuses its value.
        """
        return self._change("evaluation", settings)


def tensors_refused(why: str, instead: str = 'take vectorization_mode="vector_entry_point"') -> ConfigError:
    """The error where environments cannot give tensors.

    Args:
        why: in words.
        instead: what to do.

    Returns:
        What to raise.
    """
    return ConfigError(f'vectorization_mode="tensors": {why}: {instead}', field="vectorization_mode")


CODE_OF_SAMPLING: Final = tuple(name for name, info in SamplingSettings.fields().items() if info.names_code)
"""The settings that may name code, in whose place `Algorithm.from_checkpoint` takes arguments."""
