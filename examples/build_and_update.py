"""A Learner and a LearnerGroup built from one config, with synchronous updates."""

import click
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID
from plugrad_bc import BCConfig


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    config = (
        BCConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(lr=1e-2, minibatch_size=64, num_epochs=2)
        .debugging(seed=0)
    )
    batch = demonstrations(512)

    learner = config.build_learner()
    results = learner.update(batch)
    print("learner", results[DEFAULT_MODULE_ID]["total_loss"])

    # The same code trains one learner in this process or, with .learners(num_learners=2), two in other processes.
    with config.build_learner_group() as group:
        for result in group.update(batch):  # one for each learner
            print("group", result[DEFAULT_MODULE_ID]["total_loss"])


if __name__ == "__main__":
    main()
