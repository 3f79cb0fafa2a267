"""Settings, loss, gradients, steps, checkpoints and learning, on every backend that is installed."""

from plugrad.testing.algorithm_suite import *  # noqa: F403
