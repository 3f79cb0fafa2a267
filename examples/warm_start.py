"""Continue training on another framework, with the same weights, Adam's moments, counters and schedules."""

from tempfile import TemporaryDirectory

import click
import numpy as np
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID, Columns, Learner
from plugrad_bc import BCConfig

OTHER = {"torch": "tf2", "tf2": "jax", "jax": "torch"}


@click.command()
@click.option("--backend", default="torch", type=click.Choice(list(OTHER)))
def main(backend: str) -> None:
    config = (
        BCConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(minibatch_size=64, shuffle_batch_per_epoch=False)
        .debugging(seed=0)
    )
    first = config.build_learner()
    for seed in range(3):
        print(backend, first.update(demonstrations(512, seed))[DEFAULT_MODULE_ID]["total_loss"])
    with TemporaryDirectory() as path:
        first.save_to_path(path)
        second = Learner.from_checkpoint(path, backend=OTHER[backend])

    for seed in range(3, 6):
        batch = demonstrations(512, seed)
        print(backend, first.update(batch)[DEFAULT_MODULE_ID]["total_loss"])
        print(OTHER[backend], second.update(batch)[DEFAULT_MODULE_ID]["total_loss"])
    obs = batch[Columns.OBS]
    both = [each.compute_actions(obs, explore=False)[Columns.ACTION_DIST_INPUTS] for each in (first, second)]
    print("apart", np.abs(both[0] - both[1]).max())


if __name__ == "__main__":
    main()
