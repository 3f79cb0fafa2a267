"""Your own loss, written once for every backend: behaviour cloning as a Learner subclass."""

from collections.abc import Mapping
from typing import Any

import click
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns, Learner


class BCLearner(Learner):
    """Behaviour cloning: maximises the log-probability of the recorded actions."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        distribution_class = self.module[module_id].get_train_action_dist_cls()
        distribution = distribution_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        return -self.ops.mean(distribution.logp(batch[Columns.ACTIONS]))


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    config = (
        AlgorithmConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(lr=3e-3, minibatch_size=128)
        .learners(learner_class=BCLearner)
        .debugging(seed=0)
    )
    learner, batch = config.build_learner(), demonstrations(2048)
    for _ in range(5):
        print(learner.update(batch)[DEFAULT_MODULE_ID]["total_loss"])  # ln 2 at first


if __name__ == "__main__":
    main()
