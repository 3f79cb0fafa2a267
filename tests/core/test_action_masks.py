"""Action masks from environments to columns, and what happens to an environment that breaks their contract."""

import logging

import counting
import gymnasium as gym
import masked
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from learning import ppo_config
from sampling import make_runner

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode, concat_chunks
from plugrad.errors import BatchError, ConfigError, EnvContractError
from plugrad.replay import NStepTransitions, transitions
from plugrad.sampling.vectorization import get_env_spaces
from plugrad.training.off_policy import with_masks_of

MASKS = (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK)


def first_allowed(observations, action_mask):
    return {"actions": action_mask.argmax(-1)}


def runner_of(env=masked.MaskedEnv, act=first_allowed, seed=0, num_envs=3, **env_config):
    settings = {"env": env, "env_config": env_config, "num_envs_per_env_runner": num_envs}
    return make_runner(act, seed=seed, **settings)


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("source", masked.SOURCES)
def test_each_convention_gives_masks_of_this_and_of_the_next_observation(source, ends, caplog):
    masked_env = type(f"Env{source}{ends}", (masked.MaskedEnv,), {})
    with caplog.at_level(logging.INFO, "plugrad"):
        runner = runner_of(masked_env, source=source, ends=ends, action_space=spaces.Discrete(5))
        episodes = runner.sample(50)
    assert [each.getMessage() for each in caplog.records] == [
        f"environment {masked_env.__qualname__}: actions are masked by {masked.SOURCES[source]}"
    ]
    assert runner.observation_space == spaces.Box(0.0, 1.0, (5,), np.float32)
    assert get_env_spaces(runner.config).observations == runner.observation_space
    for episode in episodes:
        masks, later = (episode.extra_model_outputs[column] for column in MASKS)
        assert masks.dtype == later.dtype == bool
        np.testing.assert_array_equal(episode.actions, masks.argmax(-1))
        np.testing.assert_array_equal(later[:-1], masks[1:])
        # The rewarded action, which the observation shows, is always allowed.
        assert later[episode.observations[1:] == 1.0].all()
        assert later[-1].sum() == (5 if episode.terminated else 3)


class WithOtherKeys(masked.MaskedEnv):
    """Its observation has two keys beside the mask."""

    def __init__(self) -> None:
        super().__init__(source="info")
        shown = self.observation_space
        mask = spaces.MultiBinary(5)
        parts = {"shown": shown, "steps": spaces.Discrete(masked.LENGTH + 1), "action_mask": mask}
        self.observation_space = spaces.Dict(parts)

    def _next(self):
        shown, info = super()._next()
        return {"shown": shown, "steps": self.steps, **info}, {}


def test_a_dict_keeps_its_other_keys():
    runner = runner_of(WithOtherKeys)
    assert set(runner.env_observation_space.spaces) == {"shown", "steps"}
    assert runner.sample(4)[0].observations.shape == (5, 5 + masked.LENGTH + 1)


def test_methods_are_found_through_wrappers():
    def wrapped():
        return gym.wrappers.TimeLimit(masked.MaskedEnv(source="method"), 7)

    episodes = runner_of(wrapped).sample(20)
    assert [len(each) for each in episodes if each.is_done] == [7] * 6
    assert all(each.extra_model_outputs[Columns.NEXT_ACTION_MASK][-1].sum() == 3 for each in episodes)


@pytest.mark.parametrize("space", masked.SPACES.values(), ids=masked.SPACES.keys())
def test_random_actions_obey_masks(space):
    runner = runner_of(act=None, action_space=space)
    episodes = runner.sample(60, random_actions=True)
    assert sum(map(len, episodes)) == 180


def test_random_actions_are_all_allowed_ones_equally_often():
    runner = runner_of(act=None, action_space=spaces.Discrete(3), forbidden=1)
    episodes = concat_all(runner.sample(600, random_actions=True))
    mask, actions = episodes[Columns.ACTION_MASK], episodes["actions"]
    for forbidden in range(3):
        drawn = np.bincount(actions[~mask[:, forbidden]], minlength=3)
        assert drawn[forbidden] == 0
        others = np.delete(drawn, forbidden)
        assert np.abs(others / others.sum() - 0.5).max() < 0.06


def concat_all(episodes):
    names = episodes[0].extra_model_outputs
    return {
        "actions": np.concatenate([each.actions for each in episodes]),
        **{name: np.concatenate([each.extra_model_outputs[name] for each in episodes]) for name in names},
    }


def test_environments_without_masks_have_no_columns_of_masks():
    episode = make_runner().sample(5)[0]
    assert not set(MASKS) & set(episode.extra_model_outputs)


# --- broken contracts ---


class Broken(masked.MaskedEnv):
    """Gives `wrong` in place of the mask at step `at` (0: the reset) of one of its episodes."""

    def __init__(self, wrong, at=0) -> None:
        super().__init__(forbidden=0)
        self.wrong, self.at = wrong, at

    def _next(self):
        observation, info = super()._next()
        if self.steps == self.at:
            info = {} if self.wrong is None else {"action_mask": self.wrong}
        return observation, info


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros(5, bool), "an action mask that forbids everything; expected: at least one allowed action"),
        (np.ones(4, bool), "the action mask .*; expected: 5 booleans, or numbers that are 0 or 1"),
        (np.full(5, 2), "the action mask .*2.*; expected: 5 booleans"),
        ([True, [False], 1, 0, 1], "the action mask .*; expected: 5 booleans"),
        ("abcde", "the action mask .*abcde.*; expected: 5 booleans"),
    ],
    ids=["empty", "too short", "no flags", "ragged", "text"],
)
def test_a_wrong_mask_names_environment_and_step(wrong, words, at):
    with pytest.raises(EnvContractError, match=words) as found:
        runner_of(Broken, wrong=wrong, at=at, num_envs=2).sample(8)
    assert "environment 0 of 'test_action_masks:Broken'" in str(found.value)
    if isinstance(wrong, np.ndarray) and wrong.shape == (5,) and wrong.dtype == bool:
        assert ("step 4 of its episode" if at else "its reset") in str(found.value)
        assert (found.value.facts["index"], found.value.facts["step"]) == (0, at)


def test_a_mask_that_stops_coming_is_an_error():
    with pytest.raises(EnvContractError, match="step 4 of its episode gave no 'action_mask' in its info"):
        runner_of(Broken, wrong=None, at=4).sample(8)


def test_a_mask_that_the_reset_did_not_have_is_an_error():
    with pytest.raises(EnvContractError, match=r"expected: one in the info of reset\(\) too"):
        runner_of(Broken, act=lambda obs: {"actions": np.zeros(3, int)}, wrong=None, at=0).sample(8)


def test_an_empty_mask_where_an_episode_terminated_is_none():
    empty = {"wrong": np.zeros(5, bool), "at": masked.LENGTH}
    episodes = runner_of(Broken, **empty).sample(masked.LENGTH + 1)
    assert sum(each.terminated for each in episodes) == 3


class Continuous(masked.MaskedEnv):
    """Its action space has no choices."""

    def __init__(self, source: str) -> None:
        super().__init__(source=source)
        self.action_space = spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize("source", masked.SOURCES)
def test_masks_of_continuous_actions_are_refused(source):
    with pytest.raises(ConfigError, match=r"an action mask needs discrete actions, found Box\("):
        runner_of(Continuous, source=source).sample(1)


# --- vectorised environments ---


class MaskedVectorEnv(counting.CountingVectorEnv):
    """Allows what the number of the step allows; its masks are in the infos."""

    def reset(self, **settings):
        observations, infos = super().reset(**settings)
        return observations, {**infos, "action_mask": self._masks()}

    def step(self, actions):
        *answer, infos = super().step(actions)
        return (*answer, {**infos, "action_mask": self._masks()})

    def _masks(self):
        keys = self.state[:, :2].sum(-1).astype(int)
        masks = np.arange(3) != keys[:, None] % 3
        masks[self.done & (self.state[:, 0] // 13 % 2 == 0)] = False  # where an episode has terminated
        return masks


class MaskedVectorEnvOfOneStep(MaskedVectorEnv):
    """The same, reset in the step in which an episode ends."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (Gymnasium's declaration)

    def step(self, actions):
        *answer, infos = super().step(actions)
        observations, _, terminated, truncated = answer
        ended = terminated | truncated
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for env in np.flatnonzero(ended):
                final[env] = observations[env].copy()
            finals = {"action_mask": infos["action_mask"].copy(), "_action_mask": ended}
            infos = {"final_obs": final, "_final_obs": ended, "final_info": finals}
            self.state[ended, 0] = self.np_random.integers(counting.NUM_KEYS, size=ended.sum())
            self.state[ended, 1:] = 0
            self.done[:] = False
            infos["action_mask"] = self._masks()
        return (self.state.copy(), *answer[1:], infos)


NATIVE = {
    "plugrad-tests/MaskedNextStep-v0": MaskedVectorEnv,
    "plugrad-tests/MaskedSameStep-v0": MaskedVectorEnvOfOneStep,
}
for each_id, entry_point in NATIVE.items():
    if each_id not in gym.registry:
        gym.register(each_id, entry_point=counting.CountingEnv, vector_entry_point=entry_point)


@pytest.mark.parametrize("env", NATIVE)
def test_vectorised_environments_give_masks_in_their_infos(env):
    runner = make_runner(first_allowed, env=env, vectorization_mode="vector_entry_point")
    chunks: dict[str, list[SingleAgentEpisode]] = {}
    for _ in range(4):
        for chunk in runner.sample(17):
            chunks.setdefault(str(chunk.id_), []).append(chunk)
    whole = [concat_chunks(each) for each in chunks.values()]
    assert sum(each.is_done for each in whole) > 10
    for episode in whole:
        keys = episode.observations[:, :2].sum(-1).astype(int)
        expected = np.arange(3) != keys[:, None] % 3
        masks, later = (episode.extra_model_outputs[column] for column in MASKS)
        np.testing.assert_array_equal(masks, expected[:-1])
        expected[-1] |= episode.terminated
        np.testing.assert_array_equal(later, expected[1:])
        np.testing.assert_array_equal(episode.actions, masks.argmax(-1))


# --- running episodes, replay ---


@pytest.mark.parametrize("source", masked.SOURCES)
def test_running_episodes_go_on_with_their_masks(source):
    one, other = (runner_of(source=source, seed=3) for _ in range(2))
    one.sample(27)
    other.set_state(one.get_state())
    for _ in range(2):
        found, expected = concat_all(other.sample(30)), concat_all(one.sample(30))
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


def test_a_step_of_a_restored_episode_has_its_number():
    one, other = (runner_of(Broken, wrong=np.zeros(5, bool), at=15) for _ in range(2))
    one.sample(11)
    other.set_state(one.get_state())
    with pytest.raises(
        EnvContractError, match="environment 0 of 'test_action_masks:Broken': step 15 of its episode"
    ):
        other.sample(10)


class Unrepeatable(masked.MaskedEnv):
    """Breaks Gymnasium's contract: its observations repeat themselves, its masks do not."""

    begun = 0

    def _next(self):
        self.wanted = np.array([0])
        Unrepeatable.begun += 1
        self.mask = np.arange(5) != 1 + Unrepeatable.begun % 4
        return np.zeros(5, np.float32), {"action_mask": self.mask}


def test_an_episode_whose_masks_do_not_repeat_begins_anew():
    one, other = (runner_of(Unrepeatable, num_envs=1) for _ in range(2))
    one.sample(6)
    with pytest.warns(UserWarning, match="environment 0 did not repeat its running episode"):
        other.set_state(one.get_state())
    assert other.sample(3)[0].extra_model_outputs[Columns.ACTION_MASK].shape == (3, 5)


@pytest.mark.parametrize("n", [1, 3])
def test_transitions_of_n_steps_have_the_mask_of_the_observation_n_steps_on(n):
    runner = runner_of(ends="truncated", num_envs=2)
    whole = [each for each in runner.sample(2 * masked.LENGTH) if each.is_done]
    assert len(whole) == 4
    for episode in whole:
        rows = transitions(episode, n, 0.9)
        masks, later = (episode.extra_model_outputs[column] for column in MASKS)
        np.testing.assert_array_equal(rows[Columns.ACTION_MASK], masks)
        ends = np.minimum(np.arange(masked.LENGTH) + n, masked.LENGTH)
        np.testing.assert_array_equal(rows[Columns.NEXT_ACTION_MASK], later[ends - 1])


def test_steps_that_wait_for_the_next_sample_keep_their_masks():
    runner, at_once = runner_of(num_envs=1), runner_of(num_envs=1)
    make, other = NStepTransitions(3, 0.9), NStepTransitions(3, 0.9)
    parts = []
    for _ in range(6):
        parts.append(make(runner.sample(7)))
        make.set_state(make.get_state())
    whole = other(at_once.sample(42))
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([each[name] for each in parts]), values)


def test_steps_of_an_older_checkpoint_wait_without_masks():
    runner, make = runner_of(num_envs=2), NStepTransitions(3, 0.9)
    make(runner.sample(7))
    make.set_state(
        {
            id_: {name: values for name, values in each.items() if name not in MASKS}
            for id_, each in make.get_state().items()
        }
    )
    assert not set(MASKS) & set(make(runner.sample(7)))
    assert len(make(runner.sample(2 * masked.LENGTH))["rewards"]) > masked.LENGTH


def test_a_replay_buffer_without_masks_goes_on_without_them():
    rows = {"rewards": np.zeros(2), Columns.ACTION_MASK: np.ones((2, 5), bool)}
    assert with_masks_of({}, rows, "fresh").keys() == rows.keys()
    assert with_masks_of({"rewards": ()}, rows, "older").keys() == {"rewards"}
    assert with_masks_of({"rewards": (), Columns.ACTION_MASK: (5,)}, rows, "new").keys() == rows.keys()


def test_episodes_with_and_without_masks_are_not_mixed():
    learner = ppo_config().build_learner()
    obs, step = np.zeros((3, 3), np.float32), {"actions": np.zeros(2, int), "rewards": np.zeros(2)}
    mask = {Columns.ACTION_MASK: np.ones((2, 2), bool)}
    episodes = [
        SingleAgentEpisode(observations=obs, **step, extra_model_outputs=extra) for extra in (mask, {})
    ]
    with pytest.raises(
        BatchError, match="'action_mask': expected in all episodes or in none, found in 1 of 2"
    ):
        learner.update(episodes=episodes)
