"""Writes policy files of this version, and beside each the actions that they chose.

`python tests/data/policies/make.py` once for each release, before it; what is there already stays as it is. Every later
version must open them all, without the framework that wrote them (`tests/core/test_policy_without_framework.py`).
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from plugrad.checkpoint.formats import pack
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

HERE = Path(__file__).parent
ROWS = 6
IMAGES = Box(0, 255, (20, 20, 1), np.uint8)
PARTS = Dict({"image": IMAGES, "speed": Box(-1.0, 1.0, (2,), np.float32)})
CONFIGS = {
    "images-torch": (
        PPOConfig()
        .framework("torch")
        .rl_module(model_config={"conv_filters": [[2, 6, 4]], "fcnet_hiddens": [4]}),
        IMAGES,
        Box(-1.0, 2.0, (2,), np.float32),
    ),
    "parts-tf2": (
        PPOConfig()
        .framework("tf2")
        .rl_module(model_config={"conv_filters": [[2, 6, 4]], "fcnet_hiddens": [4]}),
        PARTS,
        Box(-1.0, 2.0, (2,), np.float32),
    ),
    "numbers-tf2": (
        DQNConfig().framework("tf2").rl_module(model_config={"fcnet_hiddens": [8]}),
        Box(-1.0, 1.0, (3,), np.float32),
        Discrete(3, start=5),
    ),
}


def observe(space: Box) -> np.ndarray:
    """Observations that are not close to each other."""
    rng = np.random.default_rng(0)
    shape = (ROWS, *space.shape)
    return (
        rng.integers(256, size=shape, dtype=np.uint8)
        if space.dtype == np.uint8
        else rng.normal(size=shape, scale=3.0)
    )


def main() -> None:
    folder = HERE / version("plugrad")
    for name, (config, observed, told) in CONFIGS.items():
        path = folder / f"{name}.safetensors"
        if path.exists():
            continue
        config = config.environment(observation_space=observed, action_space=told).debugging(seed=0)
        learner = config.build_learner()
        weights, rng = learner.get_weights(), np.random.default_rng(1)
        for each in weights["default_policy"].values():  # larger ones than at the beginning
            each += rng.normal(size=each.shape, scale=0.4).astype(each.dtype)
        learner.set_weights(weights)
        policy = learner.get_policy()
        policy.save(path)
        parts = observed.spaces if isinstance(observed, Dict) else {"": observed}
        batch = {key: observe(each) for key, each in parts.items()}
        actions = policy.predict(batch if isinstance(observed, Dict) else batch[""])[0]
        arrays = {f"observation/{key}": each for key, each in batch.items()} | {"actions": actions}
        path.with_suffix(".expected").write_bytes(pack(arrays, {}))


if __name__ == "__main__":
    main()
