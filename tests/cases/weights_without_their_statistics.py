"""Weights alone leave the statistics of observations behind, and a warning says so; an Algorithm carries them."""

import tempfile
import warnings

import numpy as np
from case import P, check, in_environment

OBS = np.array([0.2, 0.98, 6.0], np.float32)


def algorithm(seed):
    config = in_environment("Pendulum-v1", seed=seed, train_batch_size=200, minibatch_size=100, num_epochs=1)
    return config.env_runners(normalize_observations=True).build_algo()


with tempfile.TemporaryDirectory() as path:
    source = algorithm(0)
    source.train()
    source.save_to_path(path)
    right = source.get_policy().predict(OBS)[0]
    source.stop()

    alone = algorithm(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        alone.learner_group.restore_from_path(path, component=f"rl_module/{P}")
    said = [str(each.message) for each in caught]
    check(any("statistics" in line for line in said), f"no warning names the statistics: {said}")
    alone.stop()

    whole = algorithm(2)
    whole.restore_from_path(path, component="rl_module")
    found = whole.get_policy().predict(OBS)[0]
    whole.stop()
    check(np.allclose(found, right, atol=1e-5), f"action {found}, where the source's is {right}")
