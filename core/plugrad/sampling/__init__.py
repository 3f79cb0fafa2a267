"""From environments to episodes, in numpy: knows Gymnasium and a policy as a function of arrays, no learner.

`env_runner` steps vector environments made by `environments` (each a `repeatable` one, so that a resumed run can live
through a running episode again, and held to Gymnasium's `contract`), `fragments` cuts what happened into episodes,
`episode_metrics` counts, `whole_episodes` runs some to their ends, `evaluation` judges by them.
"""
