"""From environments to episodes, in numpy.

`env_runner` steps a policy in vector environments and returns episodes, `evaluation` returns the returns of whole ones.

- `environments` makes the environments that a config names; `contract` checks their answers.
- `replayable_env` saves a running episode as its seed and actions, so that a resumed run continues it.
- `rollout_fragment` holds the steps of one `sample()` and splits them into episodes.
- `recurrent_state` carries the state of a recurrent policy from step to step.
- `episode_metrics` counts steps, episodes and returns; `whole_episodes` runs a number of episodes to their ends.
"""
