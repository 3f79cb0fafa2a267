"""The first batch of an algorithm, got by running its training up to the first update."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.batch import Batch, by_module
from plugrad.offline import save_episodes
from plugrad.sampling import make_env_runner
from plugrad.sampling.settings import evaluation_settings
from plugrad.sampling.whole_episodes import sample_episodes

NUM_EPISODES = 20


class _Recorded(Exception):
    """Raised at the first update, with its batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


def first_batch(config: AlgorithmConfig, folder: str) -> Batch:
    """The batch of an algorithm's first update, after all connectors.

    An offline algorithm without data gets episodes of its own untrained policy.

    Args:
        config: with an environment and a seed.
        folder: an empty directory for such episodes.

    Returns:
        `{module_id: {column: array [B, ...]}}`.
    """
    if config.is_offline and getattr(config, "input_", "") is None:
        config = config.offline_data(input_=_recorded(config, folder))
    algorithm = config.learners(num_learners=0, learner_class=_recorder(config)).build_algo()
    try:
        while True:
            algorithm.train()
    except _Recorded as found:
        return found.batch
    finally:
        algorithm.stop()


def _recorder(config: AlgorithmConfig) -> type[Any]:
    class Recorder(config.get_learner_class()):  # type: ignore[misc]
        """A learner of the same class that does not learn."""

        def update(
            self, batch: Any = None, *, episodes: Sequence[Any] | None = None, **settings: Any
        ) -> NoReturn:
            columns: Mapping[str, Any] = (
                by_module(batch) if episodes is None else self.run_connectors(episodes)
            )
            raise _Recorded(dict(columns))

    return Recorder


def _recorded(config: AlgorithmConfig, folder: str) -> str:
    learner = config.build_learner()
    played = config.env_runners(**evaluation_settings(config))
    runner = make_env_runner(config=played, act=learner.compute_actions, seed=config.seed)
    try:
        limit = config.evaluation_max_episode_steps
        episodes = sample_episodes(runner, num_episodes=NUM_EPISODES, seed=config.seed, max_steps=limit)
    finally:
        runner.close()
    return save_episodes(
        folder, episodes, observation_space=runner.observation_space, action_space=runner.action_space
    )
