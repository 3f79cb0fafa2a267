"""A replay buffer that the machine cannot hold is said when it is built, before anything is allocated."""

import logging
import warnings

import gymnasium as gym
import numpy as np
import pytest

from plugrad.replay import PrioritizedReplayBuffer
from plugrad.replay.machine_memory import usable_memory
from plugrad.replay.sum_tree import SumTree
from plugrad_dqn import DQNConfig
from plugrad_sac import SACConfig

GIB = 2**30


def machine(root, group="", **files):
    """A folder that looks like the root of a machine of 8 GiB."""
    for name, text in {"proc/meminfo": "MemFree: 1 kB\nMemTotal: 8388608 kB\n", **files}.items():
        path = root / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if group:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(group)
    return root


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("", {}, 8),
        ("0::/job/step\n", {"sys/fs/cgroup/job/step/memory.max": f"{2 * GIB}\n"}, 2),
        (
            "0::/job/step\n",
            {"sys/fs/cgroup/job/memory.max": f"{3 * GIB}\n", "sys/fs/cgroup/job/step/memory.max": "max\n"},
            3,
        ),
        ("0::/not/seen/here\n", {"sys/fs/cgroup/memory.max": f"{GIB}\n"}, 1),
        ("0::/../outside\n", {"sys/fs/cgroup/memory.max": f"{GIB}\n", "sys/fs/outside/memory.max": "7\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max\n"}, 8),
        (
            "5:cpu,cpuacct:/a\n4:memory:/docker/b\n",
            {"sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": f"{4 * GIB}\n"},
            4,
        ),
        (
            "4:memory:/docker/b\n",
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{9223372036854771712}\n"},
            8,
        ),
        ("0::/odd\n", {"sys/fs/cgroup/odd/memory.max": "many\n"}, 8),
    ],
)
def test_the_limits_of_control_groups_of_both_versions_count(tmp_path, group, files, expected):
    assert usable_memory(machine(tmp_path, group, **files)) == expected * GIB


def test_this_machine_has_memory():
    found = usable_memory()
    assert found is None or found > 2**26


def off_policy(cls=DQNConfig, space=None, actions=None, **replay):
    some = cls().environment(
        observation_space=space or gym.spaces.Box(0, 255, (128, 128, 9), np.uint8),
        action_space=actions or gym.spaces.Discrete(2),
    )
    return some.environment(
        ImagesOf, env_config={"like": some.observation_space, "acts": some.action_space}
    ).training(replay_buffer_config=replay)


class ImagesOf(gym.Env):
    def __init__(self, like, acts):
        self.observation_space, self.action_space = like, acts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, True, {}


CAMERA = gym.spaces.Dict(
    {"camera": gym.spaces.Box(0, 255, (64, 64, 3), np.uint8), "joints": gym.spaces.Box(-1.0, 1.0, (7,))}
)
FORCE = gym.spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize(
    ("cls", "space", "actions", "replay"),
    [
        (DQNConfig, None, None, {"capacity": 10**9}),
        (DQNConfig, None, None, {"capacity": 10**9, "type": "prioritized"}),
        (SACConfig, CAMERA, FORCE, {"capacity": 10**10}),
        (DQNConfig, gym.spaces.Box(-1.0, 1.0, (2,)), None, {"capacity": 10**13}),
    ],
)
def test_buffers_beyond_the_memory_are_warned_of_with_their_bytes_and_what_to_type(
    cls, space, actions, replay
):
    some = off_policy(cls, space, actions, **replay)
    with pytest.warns(UserWarning, match=r"full replay buffers take \d+ bytes") as caught:
        some.framework("numpy").build_algo().stop()
    said = str(next(each.message for each in caught if "replay buffers" in str(each.message)))
    assert f"capacity={replay['capacity']} rows" in said
    fits = int(said.split('{"capacity": ')[1].split("}")[0])
    assert 1 <= fits < replay["capacity"]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="full replay buffers")
        off_policy(cls, space, actions, **{**replay, "capacity": max(fits, 256)}).framework(
            "numpy"
        ).build_algo().stop()


def test_a_buffer_says_its_size(caplog):
    with caplog.at_level(logging.INFO, "plugrad"):
        off_policy(space=gym.spaces.Box(-1.0, 1.0, (2,)), capacity=1024).framework(
            "numpy"
        ).build_algo().stop()
    row = 2 * 8 + 8 + 4 + 1 + 4
    assert (
        f"the replay buffer of module 'default_policy' takes {row:.1f} KiB when its 1024 rows are full"
        in [each.getMessage() for each in caplog.records]
    )


@pytest.mark.parametrize("capacity", [1, 2, 3, 64, 65])
def test_the_size_of_a_tree_is_what_it_takes(capacity):
    buffer = PrioritizedReplayBuffer(capacity, np.random.default_rng(0), alpha=0.5, beta=0.5)
    assert buffer._tree._nodes.nbytes == SumTree.bytes_of(capacity)
