"""The largest values of settings that reserve memory, start processes, wait or repeat.

A larger one cannot be meant: it would end in a raw error, or in a loop that nobody sees the end of.
"""

from typing import Any, Final

_SECONDS = "systems wait no longer than 24 days in one call"
_PROCESSES = "each is a process of its own"
_QUEUE = "so many are requested before the first is taken"
_MEMORY = "the rows of a batch, and the order in which they are drawn, are in memory"
_FRAGMENT = "the steps of a sample are reserved in memory before the first is taken"
_LOOP = "an update repeats so often before it returns"

UPPER_LIMITS: Final[dict[str, dict[str, Any]]] = {
    "timeout_s": {"maximum": 2_000_000, "reason": _SECONDS},
    "build_timeout_s": {"maximum": 2_000_000, "reason": _SECONDS},
    "num_learners": {"maximum": 10_000, "reason": _PROCESSES},
    "num_standby_learners": {"maximum": 10_000, "reason": _PROCESSES},
    "num_env_runners": {"maximum": 10_000, "reason": _PROCESSES},
    "num_envs_per_env_runner": {"maximum": 1_000_000, "reason": "each is made before the first step"},
    "max_requests_in_flight_per_learner": {"maximum": 10_000, "reason": _QUEUE},
    "max_requests_in_flight_per_env_runner": {"maximum": 10_000, "reason": _QUEUE},
    "train_batch_size": {"maximum": 10**8, "reason": _MEMORY},
    "minibatch_size": {"maximum": 10**8, "reason": _MEMORY},
    "num_epochs": {"maximum": 100_000, "reason": _LOOP},
    "accumulate": {"maximum": 1_000_000, "reason": _LOOP},
    "rollout_fragment_length": {"maximum": 10**7, "reason": _FRAGMENT},
    "frame_stack": {"maximum": 1_000, "reason": "each observation holds so many frames"},
    "evaluation_num_episodes": {
        "maximum": 1_000_000,
        "reason": "an evaluation plays them all before it returns",
    },
    "min_sample_timesteps_per_iteration": {
        "maximum": 10**8,
        "reason": "train() samples so many before it returns; for a longer training call it again",
    },
    "training_intensity": {"maximum": 1_000_000, "reason": _LOOP},
    "n_step": {"maximum": 100_000, "reason": "so many steps of each environment wait in memory"},
}
"""Arguments of `field` by the name of a setting; algorithm plugins declare their own."""
