"""Environments with many agents, and the env runner that samples them.

- `agent_env` is the one interface that the others see; `pettingzoo_envs` gives it to PettingZoo's environments, and the
  plugin `plugrad_rllib` to those with RLlib's interface.
- `env_faces` says which interface an environment has; `module_mapping` which module acts for an agent.
- `module_spaces` finds the spaces of modules.
- `replayable_agent_env` saves a running episode as its seed and actions.
- `agent_track` has the steps of one agent, `module_batches` those of all agents of one module as arrays.
- `acting_modules` has the modules that act, with the statistics of their observations.
- `running_episode` steps one environment, and saves its running episode and continues it; `env_runner` steps all of
  them with the policies, or with random ones. `metrics` counts steps and returns.
- `copies` makes an environment of many agents from copies of one of a single agent.
- `env_checker` checks what environments return.
"""
