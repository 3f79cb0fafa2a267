"""Action masks from environments to columns: no policy ever takes a forbidden action."""

import masked
import numpy as np
import pytest
from gymnasium import spaces
from sampling import make_runner

from plugrad.columns import Columns


def _first_allowed(observations, action_mask):
    return {"actions": action_mask.argmax(-1)}


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("source", ["info", "method", "observation"])
def test_each_convention_gives_masks_of_this_and_of_the_next_observation(source, ends):
    settings = {"source": source, "ends": ends, "action_space": spaces.Discrete(5)}
    runner = make_runner(_first_allowed, env=masked.MaskedEnv, env_config=settings)
    assert runner.observation_space == spaces.Box(0.0, 1.0, (5,), np.float32)
    for episode in runner.sample(50):
        masks, later = (
            episode.extra_model_outputs[column] for column in (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK)
        )
        assert masks.dtype == later.dtype == bool
        np.testing.assert_array_equal(episode.actions, masks.argmax(-1))
        np.testing.assert_array_equal(later[:-1], masks[1:])
        # The rewarded action, which the observation shows, is always allowed.
        assert later[episode.observations[1:] == 1.0].all()
        assert later[-1].sum() == (5 if episode.terminated else 3)


@pytest.mark.parametrize("space", masked.SPACES.values(), ids=masked.SPACES.keys())
def test_random_actions_obey_masks(space):
    runner = make_runner(None, env=masked.MaskedEnv, env_config={"action_space": space})
    episodes = runner.sample(60, random_actions=True)
    assert sum(map(len, episodes)) == 180
