"""Behaviour cloning with a loss in plain TensorFlow, so that existing code can stay as it is."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns
from plugrad_tf2 import Tf2Learner


class BCTf2Learner(Tf2Learner):
    """Behaviour cloning: maximises the log-probability of the recorded actions."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, tf.Tensor], fwd_out: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        logits = fwd_out[Columns.ACTION_DIST_INPUTS]
        actions = batch[Columns.ACTIONS]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits))


def main() -> None:
    config = (
        AlgorithmConfig()
        .environment("CartPole-v1")
        .framework("tf2")
        .training(lr=3e-3, minibatch_size=128)
        .learners(learner_class=BCTf2Learner)
        .debugging(seed=0)
    )
    learner, batch = config.build_learner(), demonstrations(2048)
    for _ in range(5):
        print(learner.update(batch)[DEFAULT_MODULE_ID]["total_loss"])  # ln 2 at first


if __name__ == "__main__":
    main()
