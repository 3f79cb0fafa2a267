"""Episodes: lengths that fit, returns, and who learns from which."""

import pickle

import numpy as np
import pytest

from plugrad.episodes import MultiAgentEpisode, SingleAgentEpisode, episodes_by_module
from plugrad.errors import BatchError


def make(steps=3, **settings) -> SingleAgentEpisode:
    columns = {
        "observations": np.zeros((steps + 1, 2)),
        "actions": np.zeros(steps),
        "rewards": np.ones(steps),
    }
    return SingleAgentEpisode(**(columns | settings))


def test_anything_like_an_array_is_kept_as_one():
    episode = SingleAgentEpisode(
        observations=[[0.0], [1.0]], actions=[1], rewards=[0.5], extra_model_outputs={"action_logp": [-0.7]}
    )
    assert len(episode) == 1
    assert episode.observations.shape == (2, 1)
    assert isinstance(episode.extra_model_outputs["action_logp"], np.ndarray)
    kept = np.zeros((4, 2))
    assert make(observations=kept).observations is kept


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"observations": np.zeros((3, 2))},
            "3 actions has 4 observations, found 3 .the last is what the last",
        ),
        ({"observations": np.zeros((5, 2))}, "has 4 observations, found 5"),
        ({"rewards": np.zeros(4)}, "has 3 rewards, found 4"),
        ({"rewards": 1.0}, "has 3 rewards, found 0"),
        ({"extra_model_outputs": {"action_logp": np.zeros(2)}}, "has 3 action_logp, found 2"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(wrong, words):
    with pytest.raises(BatchError, match=words):
        make(**wrong)


def test_an_episode_may_have_no_steps():
    assert len(make(steps=0)) == 0
    assert make(steps=0).get_return() == 0


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("truncated", [False, True])
def test_it_is_done_when_terminated_or_truncated(terminated, truncated):
    episode = make(terminated=np.bool_(terminated), truncated=np.bool_(truncated))
    assert (episode.is_terminated, episode.is_truncated) == (terminated, truncated)
    assert episode.is_done is (terminated or truncated)


def test_the_return_is_summed_in_double_precision():
    assert make(rewards=np.float32([1e8, 1, -1e8])).get_return() == 1


def test_it_is_frozen_and_pickles():
    episode = make(id_="7")
    with pytest.raises(AttributeError):
        episode.terminated = True
    copy = pickle.loads(pickle.dumps(episode))
    np.testing.assert_array_equal(copy.rewards, episode.rewards)
    assert copy.id_ == "7"


def test_a_multi_agent_episode_counts_environment_steps():
    agents = {"a": make(3), "b": make(5)}
    assert len(MultiAgentEpisode(agent_episodes=agents)) == 5
    assert len(MultiAgentEpisode(agent_episodes=agents, env_steps=8)) == 8
    assert len(MultiAgentEpisode(agent_episodes={})) == 0
    episode = MultiAgentEpisode(agent_episodes=agents)
    assert episode.get_return() == 8
    assert episode.agent_ids == ("a", "b")


def test_modules_learn_from_the_episodes_of_their_agents_in_order():
    one, two, three, four = make(1), make(2, module_id="spare"), make(3), make(4)
    both = MultiAgentEpisode(
        agent_episodes={"a": three, "b": two, "c": four}, agent_to_module={"a": "p0", "c": "p0"}
    )
    assert episodes_by_module([one, both, two]) == {
        "default_policy": [one],
        "p0": [three, four],
        "spare": [two, two],
    }
    by_rule = MultiAgentEpisode(
        agent_episodes={"a": one, "b": two}, agent_to_module=lambda agent_id: agent_id.upper()
    )
    assert episodes_by_module([by_rule]) == {"A": [one], "B": [two]}
