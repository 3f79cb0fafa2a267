"""Asynchronous updates: a later call or a future returns the results."""

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
        .training(lr=1e-2, minibatch_size=64)
        .debugging(seed=0)
    )
    with config.build_learner_group() as group:
        for seed in range(3):
            # Results of earlier calls that are done: none at first.
            for result in group.update(demonstrations(256, seed), async_update=True):
                print("earlier", result[DEFAULT_MODULE_ID]["total_loss"])

        future = group.submit(demonstrations(256, seed=3))
        (result,) = future.result()  # waits for this one
        print("future", result[DEFAULT_MODULE_ID]["total_loss"])
        print(group.get_stats())  # submitted = applied + failed + dropped + in_flight


if __name__ == "__main__":
    main()
