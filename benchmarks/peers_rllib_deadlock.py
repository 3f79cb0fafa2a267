"""RLlib's LearnerGroup with two learners on gloo, on the rows of `deadlock.py`. For the peers' venv.

peers/bin/python benchmarks/peers_rllib_deadlock.py "opposite orders" 60
"""

# mypy: disable-error-code="import-not-found"

import json
import os
import sys
from queue import Empty, Queue
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np
import peers_rllib
import ray
from deadlock_rows import UPDATES, hiddens, rows
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from workload import SMALL


def main() -> None:
    case, limit_s = sys.argv[1], float(sys.argv[2])
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    group, answers = build(case), Queue[Any]()

    def train() -> None:
        start = perf_counter()
        try:
            for update in range(UPDATES):
                update_once(group, case, update)
            found = group.foreach_learner(lambda learner: weights(learner.get_state()))
            first, second = (each.get() for each in found)
            answers.put({"seconds": perf_counter() - start, "differ": float(np.abs(first - second).max())})
        except Exception as error:
            lines = [each.strip() for each in str(error).splitlines() if each.strip()]
            answers.put({"seconds": perf_counter() - start, "error": lines[-1] if lines else repr(error)})

    Thread(target=train, daemon=True).start()
    try:
        found = answers.get(timeout=limit_s)
    except Empty:
        found = {"hangs": limit_s}
    print(json.dumps(found), flush=True)
    ray.shutdown()
    os._exit(0)  # past the thread, which may hang


def build(case: str) -> Any:
    observations, actions = peers_rllib.spaces(SMALL)
    specs = {
        module_id: RLModuleSpec(
            observation_space=observations,
            action_space=actions,
            model_config=DefaultModelConfig(fcnet_hiddens=[width], vf_share_layers=False),
        )
        for module_id, width in hiddens(case).items()
    }
    config = (
        peers_rllib.make_config(SMALL, 0, observations, actions)
        .multi_agent(policies={*specs}, policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .learners(num_learners=2, num_cpus_per_learner=1)
    )
    return config.build_learner_group(spaces=dict.fromkeys(specs, (observations, actions)))


def update_once(group: Any, case: str, update: int) -> None:
    shares = [rows(case, learner, update) for learner in range(2)]
    group.update(
        batches=[
            MultiAgentBatch({name: SampleBatch(batch) for name, batch in each.items()}, env_steps=64)
            for each in shares
        ],
        timesteps={"num_env_steps_sampled_lifetime": 128 * (update + 1)},
        num_epochs=1,
    )


def weights(state: Any) -> Any:
    modules = state["rl_module"]
    return np.concatenate([np.ravel(each) for name in sorted(modules) for each in modules[name].values()])


if __name__ == "__main__":
    main()
