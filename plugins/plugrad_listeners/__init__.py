"""Listeners that ship with plugrad, each a short example of what a listener can do.

By name, with their defaults: `config.plugins("early-stopping")` or `plugrad train --plugin early-stopping`. With other
settings: as an object, `Learner(plugins=[EntropyBonus(0.05)])`, or in a plugin file; docs/listeners.md shows both.
Nothing of another distribution is imported here.
"""

from plugrad_listeners.early_stopping import EarlyStopping
from plugrad_listeners.entropy_bonus import EntropyBonus
from plugrad_listeners.gradient_noise_scale import GradientNoiseScale
from plugrad_listeners.mlflow_logger import MlflowLogger
from plugrad_listeners.run_logger import RunLogger
from plugrad_listeners.tensorboard_logger import TensorboardLogger
from plugrad_listeners.wandb_logger import WandbLogger

__all__ = [
    "EarlyStopping",
    "EntropyBonus",
    "GradientNoiseScale",
    "MlflowLogger",
    "RunLogger",
    "TensorboardLogger",
    "WandbLogger",
]
