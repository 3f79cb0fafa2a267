"""Tiny IMPALA and APPO learners, and episodes for them, for the tests."""

from typing import Any

import gymnasium as gym
import numpy as np
from learning import OBSERVATIONS

from plugrad import DEFAULT_MODULE_ID, Columns, SingleAgentEpisode
from plugrad_impala import APPOConfig, IMPALAConfig

CONFIGS = {"impala": IMPALAConfig, "appo": APPOConfig}
WIDTH = 4
"""Steps of the longest sequence."""
ACTIONS = {"discrete": gym.spaces.Discrete(3), "box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32)}
MODELS: dict[str, dict[str, Any]] = {
    "": {},
    "lstm": {"use_lstm": True, "lstm_cell_size": 2, "max_seq_len": WIDTH},
    "gru": {"use_gru": True, "gru_cell_size": 2, "max_seq_len": WIDTH, "vf_share_layers": True},
}
LENGTHS = ((3, True), (9, False), (1, True), (2, True), (4, False), (5, True))
"""Steps of episodes, and whether they terminated: some shorter and some longer than a sequence."""


def config(kind: str, backend: str, *, actions="discrete", model="", compile="none", **training: Any) -> Any:
    settings = {"gamma": 0.9, "lambda_": 0.8, "entropy_coeff": 0.03, "vf_loss_coeff": 0.4, "lr": 0.05}
    return (
        CONFIGS[kind]()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=ACTIONS[actions])
        .env_runners(rollout_fragment_length=WIDTH)
        .rl_module(model_config={"fcnet_hiddens": [3], **MODELS[model]})
        .training(**{"minibatch_size": None, **settings, **training})
        .debugging(seed=3)
    )


def episodes_for(
    learner: Any, lengths=LENGTHS, *, seed: int = 0, module_id: str = DEFAULT_MODULE_ID
) -> list[Any]:
    """As an older policy may have left them."""
    rng, module = np.random.default_rng(seed), learner.module[module_id]
    module.action_space.seed(seed)
    initial = module.get_initial_state()
    return [
        SingleAgentEpisode(
            observations=rng.normal(size=(steps + 1, 3)).astype(np.float32),
            actions=np.array([module.action_space.sample() for _ in range(steps)]),
            rewards=rng.normal(size=steps).astype(np.float32),
            terminated=terminated,
            extra_model_outputs={
                Columns.ACTION_LOGP: (rng.normal(size=steps) - 1.0).astype(np.float32),
                **{
                    f"{Columns.STATE_IN}/{name}": rng.normal(size=(steps, *np.shape(value))).astype(
                        np.float32
                    )
                    for name, value in initial.items()
                },
            },
            module_id=module_id,
        )
        for steps, terminated in lengths
    ]
