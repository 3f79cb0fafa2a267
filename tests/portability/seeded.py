"""Small pieces of authors' code, each with a seeded portability bug or without, and tiny learners that train with them.

The strict backend looks at the globals of an author's files after each line: what authors use is in `small_learners`.

`@bug("kind")` and `@twin("kind")` take what an author writes: a loss, a subclass of the Learner, or a plugin. A comment
`# here` marks what is wrong in a bug; a number that is frozen may be marked where it is read and where it is used.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from learning import OBSERVATIONS, TWO_ACTIONS, PlainConfig
from small_learners import SmallLearner, with_loss

from plugrad import AlgorithmConfig, Learner, MultiRLModuleSpec, RLModuleSpec, SingleAgentEpisode
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_impala import APPOConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

HERE = "# here"
ROWS = 6
ONE_ACTION = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
BASES: Mapping[str, tuple[type[AlgorithmConfig], gym.Space[Any]]] = {
    "none": (PlainConfig, TWO_ACTIONS),
    "none, continuous": (PlainConfig, ONE_ACTION),
    "ppo": (PPOConfig, TWO_ACTIONS),
    "ppo, continuous": (PPOConfig, ONE_ACTION),
    "appo": (APPOConfig, TWO_ACTIONS),
    "dqn": (DQNConfig, TWO_ACTIONS),
    "sac": (SACConfig, ONE_ACTION),
    "td3": (TD3Config, ONE_ACTION),
    "bc": (BCConfig, TWO_ACTIONS),
}


@dataclass(frozen=True)
class Seeded:
    """One piece of code.

    Args:
        author: a loss (a function of a hook's arguments), a class of learners, or a class of plugins.
        kind: of the bug.
        base: the algorithm that it is about, a name of `BASES`.
        updates: after how many it shows.
        modules: ids, where it is about several.
        needs: the framework that it imports.
        samples: whether it learns from episodes.
        training: settings.
    """

    author: Any
    kind: str
    base: str = "none"
    updates: int = 1
    modules: Sequence[str] = ()
    needs: str | None = None
    samples: bool = False
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`file.function`, such as `in_place.rewards_scaled`."""
        return f"{self.author.__module__.rpartition('.')[2]}.{self.author.__name__}"

    @property
    def wrong_lines(self) -> list[str]:
        """`file:line` of what is wrong."""
        lines, first = inspect.getsourcelines(self.author)
        return [
            f"{inspect.getsourcefile(self.author)}:{first + n}"
            for n, line in enumerate(lines)
            if HERE in line
        ]

    def train(self, backend: str, **framework: Any) -> Learner:
        """Build a learner with it, and update the learner.

        Args:
            backend: short name.
            **framework: settings.

        Returns:
            The learner.
        """
        config = self._config(backend, **framework)
        is_plugin = inspect.isclass(self.author) and not issubclass(self.author, Learner)
        learner = config.get_learner_class()(config=config, plugins=[self.author()] if is_plugin else [])
        learner.build()
        with self._globals_kept():
            for n in range(self.updates):
                timesteps = {"num_env_steps_sampled_lifetime": 100 * n}
                learner.update(**self._experience(n), timesteps=timesteps)
        return learner

    @contextmanager
    def _globals_kept(self) -> Iterator[None]:
        """Give the module of a bug that changes its global variables back as it was."""
        names = vars(sys.modules[self.author.__module__])
        before = {name: copy(value) for name, value in names.items() if name.isupper()}
        try:
            yield
        finally:
            names.update(before)

    def _config(self, backend: str, **framework: Any) -> AlgorithmConfig:
        cls, actions = BASES[self.base]
        config = cls().framework(backend, **framework).debugging(seed=1)
        config = config.environment(observation_space=OBSERVATIONS, action_space=actions)
        networks = {"fcnet_hiddens": [2]}
        if self.modules:
            spec = RLModuleSpec(observation_space=OBSERVATIONS, action_space=actions, model_config=networks)
            specs = MultiRLModuleSpec(rl_module_specs=dict.fromkeys(self.modules, spec))
            config = config.rl_module(rl_module_spec=specs)
        else:
            config = config.rl_module(model_config=networks)
        config = config.learners(learner_class=self._learner_class(config))
        sizes = {
            "train_batch_size": ROWS,
            "minibatch_size": None,
            "num_epochs": 1,
            "shuffle_batch_per_epoch": False,
        }
        return config.training(**{**sizes, **self.training})

    def _learner_class(self, config: AlgorithmConfig) -> type[Learner]:
        if not inspect.isclass(self.author):
            return with_loss(config.get_learner_class(), self.author)
        if issubclass(self.author, Learner):
            return self.author
        return SmallLearner if isinstance(config, PlainConfig) else config.get_learner_class()

    def _experience(self, n: int) -> dict[str, Any]:
        if self.samples:
            return {"episodes": [episode(seed) for seed in (2 * n, 2 * n + 1)]}
        rows = batch(n, BASES[self.base][1])
        return {"batch": dict.fromkeys(self.modules, rows) if self.modules else rows}


BUGS: dict[str, Seeded] = {}
TWINS: dict[str, Seeded] = {}


def bug(kind: str, base: str = "none", **about: Any) -> Callable[[Any], Any]:
    """Seed what is decorated as a bug of this kind; see `Seeded`."""
    return lambda author: _kept(BUGS, Seeded(author, kind, base, **about))


def twin(kind: str, base: str = "none", **about: Any) -> Callable[[Any], Any]:
    """Keep what is decorated as the right way to do what bugs of this kind do wrong."""
    return lambda author: _kept(TWINS, Seeded(author, kind, base, **about))


def _kept(where: dict[str, Seeded], seeded: Seeded) -> Any:
    assert seeded.name not in where, seeded.name
    where[seeded.name] = seeded
    return seeded.author


def batch(n: int, action_space: gym.Space[Any]) -> dict[str, Any]:
    """Columns that the algorithms and the pieces read, of update `n`."""
    rng = np.random.default_rng(n)
    is_discrete = isinstance(action_space, gym.spaces.Discrete)
    actions = (
        rng.integers(2, size=ROWS) if is_discrete else rng.uniform(-0.9, 0.9, (ROWS, 1)).astype(np.float32)
    )
    floats = ("advantages", "value_targets", "rewards")
    return {
        "obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": actions,
        "action_dist_inputs": rng.normal(scale=0.2, size=(ROWS, 2)).astype(np.float32),
        "action_logp": np.log(rng.uniform(0.3, 0.7, ROWS)).astype(np.float32),
        **{name: rng.normal(size=ROWS).astype(np.float32) for name in floats},
        "target": rng.normal(size=(ROWS, 1)).astype(np.float32),
        "weights": rng.uniform(0.5, 1.0, ROWS).astype(np.float32),
        "terminateds": np.arange(ROWS) == ROWS - 1,
        "truncateds": np.arange(ROWS) == 1,
        "n_step": np.array([1, 2, 3, 1, 2, 3]),
        "steps_left": np.arange(ROWS)[::-1].copy(),
        "frame": rng.integers(256, size=(ROWS, 3)).astype(np.uint8),
    }


def episode(seed: int, steps: int = 3) -> SingleAgentEpisode:
    """One that has ended."""
    rng = np.random.default_rng(seed)
    return SingleAgentEpisode(
        observations=rng.normal(size=(steps + 1, 3)).astype(np.float32),
        actions=rng.integers(2, size=steps),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=True,
        extra_model_outputs={
            "action_logp": np.log(rng.uniform(0.3, 0.7, steps)).astype(np.float32),
            "action_dist_inputs": rng.normal(scale=0.2, size=(steps, 2)).astype(np.float32),
            "vf_preds": rng.normal(size=steps).astype(np.float32),
        },
    )
