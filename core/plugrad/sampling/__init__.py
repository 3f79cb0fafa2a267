"""From environments to episodes, in numpy, or to batches of tensors.

`make_env_runner` makes the env runner of a config. `env_runner` steps a policy in vector environments and returns
episodes, `evaluation` runs whole ones and gives their returns.

- `environments` makes the environments that a config names, `named_envs` resolves their names, `env_checker` checks
  their answers.
- `vector_envs` has the interface of environments that step together, and those that step in turn; others step in
  processes of their own (`async_envs`), in a vectorised version (`native_envs`) or in a native pool (`envpool_envs`).
  `vectorization` makes those that a config asks for.
- `tensor_env_runner` makes batches of environments whose tensors stay on a device (`tensor_envs`).
- `wrappers` wraps environments as settings say, `atari` and `frame_stack` among them; `learner_rewards` makes the
  rewards that a learner sees. `faults` has a wrapper for simulators that fail now and then.
- `rollout` takes one step of all environments, and saves running episodes and continues them; `replayable_env` records
  one as its seed and actions.
- `rollout_fragment` holds the steps of one `sample()` and splits them into episodes.
- `recurrent_state` carries the state of a recurrent policy from step to step.
- `episode_metrics` counts steps, episodes and returns.
- `watched_episodes` has running episodes as listeners see them, `logged_metrics` what listeners log.
"""

from typing import TYPE_CHECKING

from plugrad.importing.on_use import imported_on_use

if TYPE_CHECKING:
    from plugrad.sampling.env_runner import make_env_runner
    from plugrad.sampling.sample import Sample, sample_from_state
    from plugrad.sampling.vectorization import steps_per_env

__all__ = ["Sample", "make_env_runner", "sample_from_state", "steps_per_env"]

_PLACES = {
    "Sample": "plugrad.sampling.sample",
    "make_env_runner": "plugrad.sampling.env_runner",
    "sample_from_state": "plugrad.sampling.sample",
    "steps_per_env": "plugrad.sampling.vectorization",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = imported_on_use(__name__, _PLACES)
