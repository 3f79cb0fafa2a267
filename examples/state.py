"""Save and load a learner's state, or a part of it: in memory, between learners, and on disk."""

from tempfile import TemporaryDirectory

import click
import numpy as np
from demonstrations import demonstrations

from plugrad import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Learner
from plugrad_bc import BCConfig


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    config = BCConfig().environment("CartPole-v1").framework(backend).training(minibatch_size=64)
    learner, other = config.build_learner(), config.build_learner()
    learner.update(demonstrations(256))

    # The weights alone; the other learner keeps its optimizer and its counters.
    weights = learner.get_state(components=COMPONENT_RL_MODULE)
    other.set_state(weights)
    name, array = next(iter(weights[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID].items()))
    print("equal", name, np.array_equal(array, other.get_weights()[DEFAULT_MODULE_ID][name]))

    # The whole state: the learner continues exactly where it was.
    other.set_state(learner.get_state())
    print("components", *learner.get_state())

    with TemporaryDirectory() as path:
        learner.save_to_path(path)
        restored = Learner.from_checkpoint(path)  # backend="tf2" opens it on TensorFlow
        print("restored", *restored.module)


if __name__ == "__main__":
    main()
