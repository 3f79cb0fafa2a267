"""Two Ray nodes on one machine: a group across them exchanges by gloo, and survives the loss of one."""

import json
import os
import subprocess
import sys

SCRIPT = """
import json, logging, ray, torch
from ray.cluster_utils import Cluster
from groups import group_config
from learning import largest_difference, ppo_batch

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
far = cluster.add_node(num_cpus=2, resources={"far": 1})
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
config = group_config("torch").learners(num_learners=3, num_cpus_per_learner=1, on_failure="shrink")
one = config.learners(num_learners=0).build_learner()
node = lambda learner: ray.get_runtime_context().get_node_id()
wish = config.learners(num_learners=1, num_cpus_per_learner=2, custom_resources_per_learner={"far": 1})
with wish.build_learner_group() as group:
    placed = group.foreach_learner(lambda learner: [node(learner), torch.get_num_threads()])
    placed = placed == [[far.node_id, 2]]
with config.build_learner_group() as group:
    kind = group.get_stats()["collective"]
    nodes = len(set(group.foreach_learner(node)))
    for seed in range(2):
        one.update(ppo_batch(64, seed=seed)), group.update(ppo_batch(64, seed=seed))
    before = largest_difference(one.get_weights(), group.get_weights())
    cluster.remove_node(far)
    one.update(ppo_batch(64, seed=2)), group.update(ppo_batch(64, seed=2))
    after = largest_difference(one.get_weights(), group.get_weights())
    print(json.dumps([placed, kind, nodes, before, after, len(group)]))
ray.shutdown()
cluster.shutdown()
"""


def test_a_group_on_two_nodes_trains_and_loses_one_without_losing_the_run() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    placed, kind, nodes, before, after, left = json.loads(done.stdout.splitlines()[-1])
    assert placed
    assert (kind, nodes) == ("gloo", 2)
    assert max(before, after) < 1e-6
    assert 1 <= left < 3
