"""Lives of learners in a process with two CPUs: `python lives_on_jax_devices.py DEVICE LIFE...` prints their numbers.

test_jax_devices.py runs this. Two CPUs stand in for a GPU and a CPU: JAX computes on the first where nobody says
otherwise, so an array of a learner on the second that nobody placed is found on the first.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import jax
import numpy as np

OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
P = "default_policy"
ROWS = 8


def numbers(tree: Any) -> str:
    """The bits of a tree of arrays as a short text."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        found.update(
            np.asarray(leaf).tobytes() if isinstance(leaf, np.ndarray | float) else repr(leaf).encode()
        )
    return found.hexdigest()[:16]


@contextmanager
def all_arrays_on(device: str) -> Iterator[None]:
    """Fail if an array that is made in the block, and still there at its end, is on another device."""
    before = {id(each) for each in jax.live_arrays("cpu")}
    yield
    strays = [
        f"{each.dtype}{list(each.shape)} on {each.device}"
        for each in jax.live_arrays("cpu")
        if id(each) not in before and str(each.device) != {"cpu": "cpu:0"}.get(device, device)
    ]
    assert not strays, f"a learner on {device} has {strays}"


def batch(actions: Any) -> dict[str, Any]:
    """Transitions of eight steps, with what the losses of PPO, DQN and SAC read."""
    rng = np.random.default_rng(0)
    floats = {name: rng.normal(size=(ROWS, 3)).astype(np.float32) for name in ("obs", "new_obs")}
    floats |= {name: rng.normal(size=ROWS).astype(np.float32) for name in ("rewards", "advantages")}
    floats |= {name: np.full(ROWS, -0.5, np.float32) for name in ("action_logp", "value_targets", "vf_preds")}
    return {
        **floats,
        "action_dist_inputs": np.zeros((ROWS, 2), np.float32),
        "actions": actions,
        "terminateds": np.arange(ROWS) % 3 == 0,
        "truncateds": np.zeros(ROWS, bool),
    }


def learner_of(algorithm: str, device: str, compile_mode: str, space: gym.Space[Any]) -> Any:
    """A small learner."""
    import plugrad

    config = plugrad.get_algorithm(algorithm)().framework("jax", device=device, compile=compile_mode)
    config = config.training(minibatch_size=4).rl_module(model_config={"fcnet_hiddens": [4]})
    return config.debugging(seed=0).build_learner(spaces={P: (OBS, space)})


def update(algorithm: str, device: str, compile_mode: str) -> Any:
    """One update, acting and the state of a learner."""
    discrete = algorithm != "sac"
    space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    actions = np.arange(ROWS) % 2 if discrete else np.linspace(-0.9, 0.9, ROWS, dtype=np.float32)[:, None]
    with all_arrays_on(device):
        learner = learner_of(algorithm, device, compile_mode, space)
        assert learner.device == device
        results = learner.update(batch(actions))[P]
        acted = learner.compute_actions(batch(actions)["obs"])
        return numbers([dict(results), acted, learner.get_state()["rl_module"]])


LIVES: dict[str, Callable[[str], Any]] = {
    f"{algorithm} {mode}": lambda device, a=algorithm, m=mode: update(a, device, m)  # type: ignore[misc]
    for algorithm in ("ppo", "dqn", "sac")
    for mode in ("auto", "none", "forward_train")
}

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    device, *lives = sys.argv[1:]
    print(json.dumps({life: LIVES[life](device) for life in lives}))
