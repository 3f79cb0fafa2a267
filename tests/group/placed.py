"""Run by test_placement.py in a process of its own: groups on three Ray nodes of one machine, with GPUs that are fake.

It prints what it found as one line of JSON.
"""

import json
import os
from typing import Any

import ray
from counted import encodings
from groups import be, group_config
from gymnasium.envs.classic_control import CartPoleEnv
from learning import ppo_batch
from ray.cluster_utils import Cluster
from waiting import wait_until

from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig


class KnowsItsNode(CartPoleEnv):
    @property
    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()


def where(learner: Any) -> tuple[str, str]:
    return ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]


def message(build: Any) -> str:
    try:
        build()
    except ConfigError as error:
        return str(error)
    return "no error"


def found() -> dict[str, Any]:
    one = group_config("numpy").learners(
        num_cpus_per_learner=1, num_gpus_per_learner=1, collective="ray", timeout_s=30
    )
    nodes: dict[str, Any] = {}
    with one.learners(num_learners=2, placement="pack").build_learner_group() as group:
        nodes["pack"] = group.foreach_learner(where)
        group.foreach_learner(be, {1: "die"})
        group.update(ppo_batch(16))
        group.foreach_learner(be, {})
        nodes["one replaced"] = group.foreach_learner(where)
        group.resize(3)
        nodes["resized"] = group.foreach_learner(where)
    wait_until(lambda: ray.available_resources().get("GPU") == 8, "the GPUs to be free", 0.1)
    with one.learners(num_learners=2, placement="spread").build_learner_group() as group:
        nodes["spread"] = group.foreach_learner(where)
    wait_until(lambda: ray.available_resources().get("GPU") == 8, "the GPUs to be free", 0.1)
    many = one.learners(num_learners=3, num_gpus_per_learner=3, placement="pack", timeout_s=1)
    empty = one.learners(num_learners=1, num_gpus_per_learner=0, num_cpus_per_learner=0, placement="pack")
    sampling = (
        PPOConfig()
        .framework("numpy")
        .environment(KnowsItsNode)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_env_runners=2, num_envs_per_env_runner=1, env_runner_backend="ray")
        .debugging(seed=0)
    )
    for placement in ("pack", "spread"):
        algorithm = sampling.env_runners(env_runner_placement=placement).build_algo()
        nodes[f"env runners, {placement}"] = [[each, ""] for each in algorithm.env_runners.get_attr("node")]
        algorithm.stop()
    runners = sampling.learners(timeout_s=1).env_runners(num_env_runners=9, env_runner_placement="spread")
    errors = [
        message(many.build_learner_group),
        message(empty.build_learner_group),
        message(runners.build_algo),
    ]
    wait_until(lambda: ray.available_resources().get("GPU") == 8, "the GPUs to be free", 0.1)
    several, arrays = encodings(sampling.env_runners(env_runner_placement="spread"), 3, versions=2)
    return {"encoded": [several, arrays], "nodes": nodes, "errors": errors}


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=4, num_gpus=4)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        print(json.dumps(found()))
    finally:
        ray.shutdown()
        cluster.shutdown()
