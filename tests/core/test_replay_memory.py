"""Observations in a replay buffer take little memory, and draws are what whole columns give, to the bit."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.episodes import SingleAgentEpisode
from plugrad.observations import model_space, structured_rows
from plugrad.replay import NStepTransitions, PrioritizedReplayBuffer, ReplayBuffer, frames
from plugrad.replay.observation_rows import stored_parts
from plugrad.replay.size import buffer_size
from plugrad.sampling.wrappers import stacked_space
from plugrad_dqn import DQNConfig

EYE = Box(0, 255, (36, 36, 1), np.uint8)
CAMERA = Dict(
    {"eye": EYE, "joints": Box(-1.0, 1.0, (7,)), "mode": Discrete(3), "ticks": Box(-99, 99, (2,), np.int16)}
)
EYE_BYTES, REST_BYTES = 36 * 36, 7 * 4 + 3 + 2 * 2


class Frames:
    """Episodes whose observations are the last `stack` frames, as an environment gives them."""

    def __init__(self, space: Any, stack: int, seed: int) -> None:
        self.space, self.stack = space, stack
        self.rng = np.random.default_rng(seed)
        self.space.seed(seed)
        self.number = 0

    def episode(self, steps: int, **settings: Any) -> SingleAgentEpisode:
        frames = [self.space.sample() for _ in range(steps + 1)]
        seen = [self._stacked(frames[max(0, t - self.stack + 1) : t + 1]) for t in range(steps + 1)]
        self.number += 1
        return SingleAgentEpisode(
            observations=np.stack(seen),
            actions=self.rng.integers(3, size=steps),
            rewards=self.rng.normal(size=steps),
            terminated=True,
            id_=str(self.number),
            **settings,
        )

    def _stacked(self, frames: list[Any]) -> Any:
        frames = [frames[0]] * (self.stack - len(frames)) + frames
        if not isinstance(self.space, Dict):
            return frames[0] if self.stack == 1 else np.stack(frames)
        one = (
            frames[0]
            if self.stack == 1
            else {key: np.stack([np.asarray(each[key]) for each in frames]) for key in self.space.spaces}
        )
        return structured_rows(stacked_space(self.space, self.stack), one)


def buffer_of(space: Any, stack: int, capacity: int, cls: type[ReplayBuffer] = ReplayBuffer) -> Any:
    parts = stored_parts(model_space(stacked_space(space, stack)), stack)
    more: Any = {} if cls is ReplayBuffer else {"alpha": 0.5, "beta": 0.5}
    return cls(capacity, np.random.default_rng(1), parts=parts, **more)


def assert_same_rows(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].flags.c_contiguous
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes(), name


@settings(max_examples=25)
@given(
    kind=st.sampled_from(["image", "Dict"]),
    stack=st.sampled_from([1, 3]),
    n=st.integers(1, 3),
    capacity=st.integers(1, 12),
    steps=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_what_is_stored_in_parts_is_drawn_as_from_whole_columns(kind, stack, n, capacity, steps, seed):
    episodes = Frames(EYE if kind == "image" else CAMERA, stack, seed)
    buffer, make = buffer_of(episodes.space, stack, capacity), NStepTransitions(n, 0.9)
    rows: dict[str, Any] = {}
    for number in steps:
        new = make([episodes.episode(number)])
        rows = {name: np.concatenate([rows[name], each]) if rows else each for name, each in new.items()}
        buffer.add(new)
        last = {name: each[-capacity:] for name, each in rows.items()}
        total = len(rows["rewards"])
        first = max(0, total - capacity)
        found, places = buffer.sample(20)
        order = np.array([next(m for m in range(first, total) if m % capacity == p) for p in places]) - first
        assert_same_rows(found, {name: each[order] for name, each in last.items()})
        parts = buffer.get_state()["rows"]
        whole = {name: np.concatenate([part[name] for part in parts.values()]) for name in rows}
        assert_same_rows(whole, last)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("n", [1, 3])
def test_a_frame_is_kept_once_as_bytes_beside_floats(stack, n):
    episodes, make = Frames(CAMERA, stack, 0), NStepTransitions(n, 0.9)
    buffer = buffer_of(CAMERA, stack, 1000)
    for _ in range(10):
        buffer.add(make([episodes.episode(100)]))
    storage = buffer._storage
    frames = 10 * 101 * EYE_BYTES
    numbers = 2 * 8 * 1000 * stack
    others = 2 * stack * REST_BYTES * 1000
    columns = sum(each.nbytes for each in storage.columns.values())
    assert storage.nbytes == frames + numbers + others + columns
    row = {name: each[:1] for name, each in make([episodes.episode(2)]).items()}
    parts = stored_parts(model_space(stacked_space(CAMERA, stack)), stack)
    first_frames = 10 * EYE_BYTES  # each episode has one frame more than rows
    assert (
        buffer_size({"capacity": 1000, "type": "uniform"}, row, parts).bytes == storage.nbytes - first_frames
    )
    whole = 2 * 4 * stack * (EYE_BYTES + 7 + 3 + 2) * 1000
    assert storage.nbytes < whole / (6 * stack)


def test_frames_of_many_environments_by_turns_are_kept_once():
    episodes = Frames(EYE, 1, 0)
    buffer = buffer_of(EYE, 1, 1000)
    whole = [episodes.episode(20) for _ in range(5)]
    make = NStepTransitions(1, 0.9)
    for t in range(20):
        buffer.add(
            make(
                [
                    SingleAgentEpisode(
                        observations=each.observations[t : t + 2],
                        actions=each.actions[t : t + 1],
                        rewards=each.rewards[t : t + 1],
                        id_=each.id_,
                        t_started=t,
                    )
                    for each in whole
                ]
            )
        )
    assert buffer._storage._observations._stores[0]._frames.number == 5 * 21


def test_a_full_buffer_of_short_episodes_uses_its_memory_again():
    episodes, make = Frames(EYE, 1, 0), NStepTransitions(1, 0.9)
    buffer = buffer_of(EYE, 1, 50)
    for _ in range(200):
        buffer.add(make([episodes.episode(int(episodes.rng.integers(1, 4)))]))
    frames = buffer._storage._observations._stores[0]._frames
    assert frames.number <= 100
    assert frames._size <= 50 + 5 * 12


def test_images_channels_first_share_frames_that_an_environment_stacked_itself():
    episodes, make = Frames(Box(0, 255, (36, 36), np.uint8), 4, 0), NStepTransitions(1, 0.9)
    space = Box(0, 255, (4, 36, 36), np.uint8)
    buffer = ReplayBuffer(200, np.random.default_rng(0), parts=stored_parts(space))
    buffer.add(make([episodes.episode(200)]))
    assert buffer._storage._observations._stores[0]._frames.number == 201


@settings(max_examples=60)
@given(
    width=st.sampled_from([8, 12, 21, 1296]),
    calls=st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=12), min_size=1, max_size=12),
    live=st.integers(1, 3),
    compared=st.sampled_from([1, 4, 64]),
)
def test_each_different_frame_that_is_in_use_is_kept_once_wherever_it_came_before(
    width, calls, live, compared
):
    pictures = np.random.default_rng(0).integers(0, 3, (6, width), np.uint8)
    pictures[:2] = pictures[0]
    pictures[1, -1] ^= 1  # one bit, in the last byte
    store, used = frames.Frames(width, 4), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_COMPARED_AT_ONCE", compared)
        for call in calls:
            half = len(call) // 2
            columns = [pictures[call[:half]], pictures[call[half : 2 * half]]]
            dropped = used.pop(0)[1] if len(used) == live else np.zeros(0, np.int64)
            used.append((call[: 2 * half], store.put(columns, dropped)))
            for names, numbers in used:
                assert store.take(numbers).tobytes() == pictures[names].tobytes()
            assert store.number == len({name for names, _ in used for name in names})


def test_frames_of_one_key_are_kept_apart():
    store = frames.Frames(32, 9)
    one, other = np.zeros((2, 4), np.int64)
    other[:2] = store._factors[1], -store._factors[0]
    columns = [np.stack([one, other, one, other]).view(np.uint8)]
    for _ in range(3):
        numbers = store.put(columns, np.zeros(0, np.int64))
        assert store.take(numbers).tobytes() == columns[0].tobytes()
    assert store.number == 2
    assert store.put([columns[0][1:2]], np.zeros(0, np.int64)) == numbers[1]


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize("stack", [1, 3])
def test_a_buffer_in_parts_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, cls, stack):
    episodes, make = Frames(CAMERA, stack, 0), NStepTransitions(1, 0.9)
    buffer, other = (buffer_of(CAMERA, stack, 30, cls) for _ in range(2))
    for _ in range(4):
        buffer.add(make([episodes.episode(10)]))
    buffer.sample(3)
    save_checkpoint(tmp_path / "saved", buffer.get_state(), metadata={})
    other.set_state(load_checkpoint(tmp_path / "saved").state)
    assert other._storage.nbytes == buffer._storage.nbytes
    for _ in range(3):
        new = make([episodes.episode(7)])
        buffer.add(new)
        other.add(new)
        one, two = buffer.sample(50), other.sample(50)
        assert_same_rows(two[0], one[0])
        np.testing.assert_array_equal(one[1], two[1])


@pytest.mark.parametrize("late", [False, True])
def test_numbers_that_a_part_does_not_hold_widen_it(late):
    """An older checkpoint has normalised numbers where the space has bytes."""
    space = model_space(CAMERA)
    rows = np.random.default_rng(0).normal(size=(21, 36 * 36 + 12)).astype(np.float32)
    if late:
        rows[:12] = np.round(rows[:12] * 9 + 30).clip(0, 9)
    buffer = ReplayBuffer(16, np.random.default_rng(0), parts=stored_parts(space))
    for n in range(20):
        buffer.add({"obs": rows[[n]], "new_obs": rows[[n + 1]], "rewards": np.full(1, n, np.float32)})
    found, _ = buffer.sample(100)
    numbers = found["rewards"].astype(int)
    assert found["obs"].tobytes() == rows[numbers].tobytes()
    assert found["new_obs"].tobytes() == rows[numbers + 1].tobytes()


def test_small_observations_and_other_columns_are_whole_columns():
    buffer = ReplayBuffer(8, np.random.default_rng(0), parts=stored_parts(Box(-1.0, 1.0, (3,))))
    buffer.add({"obs": np.zeros((2, 3), np.float32), "new_obs": np.ones((2, 3), np.float32)})
    assert set(buffer._storage.columns) == {"obs", "new_obs"}


class Moving(gym.Env):
    """A camera that moves, with joints, in episodes of 20 steps."""

    action_space = Discrete(2)
    observation_space = Dict({"eye": EYE, "joints": Box(-1.0, 1.0, (2,)), "on": MultiBinary(2)})

    def seen(self):
        return {
            "eye": np.full((36, 36, 1), self.steps, np.uint8),
            "joints": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "on": self.np_random.integers(0, 2, 2).astype(np.int8),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        return self.seen(), float(action), self.steps == 20, False, {}


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_dqn_with_a_camera_of_stacked_frames_keeps_bytes_and_each_frame_once(kind):
    some = (
        DQNConfig()
        .environment(Moving)
        .framework("numpy")
        .env_runners(frame_stack=3, num_envs_per_env_runner=2)
        .training(
            num_steps_sampled_before_learning_starts=10**6,
            replay_buffer_config={"capacity": 100, "type": kind},
        )
        .rl_module(model_config={"fcnet_hiddens": [2], "conv_filters": []})
        .debugging(seed=0)
    )
    algorithm = some.build_algo()
    for _ in range(40):
        algorithm.train()
    buffer = algorithm._training._buffers["default_policy"]
    eye = buffer._storage._observations._stores[0]
    assert eye.dtype == np.uint8
    assert eye._frames.number == 21  # equal ones of both environments, too
    rows, _ = buffer.sample(10)
    assert rows["obs"].dtype == np.float32
    assert rows["obs"].shape == (10, 3 * (36 * 36 + 4))
