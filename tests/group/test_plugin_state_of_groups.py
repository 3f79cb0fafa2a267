"""Learners of a group have equal plugin state after each update, and what was registered on one is on all."""

import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config
from plugin_state import MOMENTS, SCALE, Moments, MovingScale, UnnamedScale, sizes_after, without_numbers
from threads import on_all

from plugrad import Columns, LearnerGroup, SingleAgentEpisode, hookimpl
from plugrad.errors import NonFiniteError
from plugrad.group.learner_actor import after_connectors, connect
from plugrad.learner.state.state import digest as digest_of
from plugrad_ppo import PPOLearner


def learner_of(*plugins, **training):
    config = ppo_config("torch", **{"lr": 0.01, **training}).framework("torch", compile="none", device="cpu")
    learner = PPOLearner(config=config, plugins=plugins)
    learner.build()
    return learner


def own(learner):
    return learner.get_state("plugin_state")["plugin_state"]


@pytest.mark.parametrize(("plugin", "name"), [(MovingScale, SCALE), (UnnamedScale, "unnamed/0")])
def test_three_learners_are_equal_and_have_the_mean_over_rows(plugin, name):
    """Sixteen rows for three learners: their own scales are of 5, 5 and 6 rows."""
    learners = [learner_of(plugin(), Moments()) for _ in range(3)]
    for n in range(2):
        found = on_all(learners, lambda learner, n=n: learner.update(ppo_batch(16, seed=n)))
        assert all(isinstance(each, dict) for each in found), found
        assert len(set(map(digest_of, learners))) == 1
    expected = sizes_after([ppo_batch(16, seed=n) for n in range(2)])
    assert own(learners[0])[name] == pytest.approx(expected, rel=1e-5)
    assert own(learners[2])[f"{MOMENTS}/count"] == 2
    before = list(map(digest_of, learners))
    found = on_all(learners, lambda learner: learner.update(without_numbers(ppo_batch(16))))
    assert all(isinstance(each, NonFiniteError) for each in found), found
    assert list(map(digest_of, learners)) == before


class Counting:
    """A connector's own state: how many episodes it has seen, which it also writes into its batch."""

    @hookimpl
    def learner_built(self, learner):
        learner.register_state("counting/episodes", 0)


class CountingConnector:
    """Runs on learner 0 alone."""

    def __call__(self, *, learner, batch, episodes, **given):
        seen = learner.register_state("counting/episodes", 0)
        seen.assign(int(seen.numpy()) + len(episodes))
        return batch


def test_what_a_connector_on_learner_0_moves_takes_effect_on_all_with_the_update():
    learners = [learner_of(Counting()) for _ in range(2)]
    for learner in learners:
        learner.connectors = [*learner.connectors, CountingConnector()]
    episodes = episodes_of(learners[0])
    batch = connect(learners[0], episodes)
    assert [int(own(each)["counting/episodes"]) for each in learners] == [0, 0]

    def update(learner):
        with after_connectors(learner, batch):
            return learner.update(batch)

    found = on_all(learners, update)
    assert all(isinstance(each, dict) for each in found), found
    assert [int(own(each)["counting/episodes"]) for each in learners] == [len(episodes)] * 2
    assert len(set(map(digest_of, learners))) == 1


def episodes_of(learner):
    """Two, on whose observations the learner itself has acted."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2):
        observations = rng.normal(size=(9, 3)).astype(np.float32)
        acted = learner.compute_actions(observations[:-1])
        found.append(
            SingleAgentEpisode(
                observations=observations,
                actions=acted.pop(Columns.ACTIONS),
                rewards=np.ones(8, np.float32),
                extra_model_outputs=acted,
                terminated=True,
            )
        )
    return found


def test_a_group_of_processes_has_copies_of_the_plugins_and_is_resumed_by_one_learner(cluster, tmp_path):
    config = ppo_config("numpy", lr=0.01)
    config = config.learners(num_learners=2, num_cpus_per_learner=0.1, build_timeout_s=200)
    with LearnerGroup(config=config, plugins=[MovingScale(), Moments()]) as group:
        group.update(ppo_batch(16))
        states = group.foreach_learner(own)
        assert len(set(group.foreach_learner(digest_of))) == 1
        group.save_to_path(tmp_path / "c")
    assert states[0][SCALE] == pytest.approx(sizes_after([ppo_batch(16)]), rel=1e-5)
    plugins = [MovingScale(), Moments()]
    with LearnerGroup.from_checkpoint(tmp_path / "c", num_learners=0, plugins=plugins) as again:
        (found,) = again.foreach_learner(own)
    assert digest(found) == digest(states[0])
