"""Users' models with BatchNorm and Dropout, the same in each framework: what acts otherwise than it is trained.

They are those that the backends themselves go through the backend suite with.
"""

from importlib import import_module
from importlib.util import find_spec

FRAMEWORKS = {"torch": "torch", "tf2": "tensorflow", "jax": "flax"}
CLASSES = {
    backend: import_module(f"plugrad_{backend}.testing").NormedModel
    for backend, framework in FRAMEWORKS.items()
    if find_spec(framework)
}
"""By backend, of those that are installed."""

STATISTICS = {
    "torch": ("model.body.1.num_batches_tracked", "model.body.1.running_mean", "model.body.1.running_var"),
    "tf2": ("model.4.moving_mean", "model.5.moving_variance", "model.8.seed_generator_state"),
    "jax": ("model.dropout.rngs.count", "model.norm.mean", "model.norm.var"),
}
"""Names of what they keep beside their parameters."""


def normed(backend, seed=0, **settings):
    """A new one; equal seeds give equal ones."""
    if backend == "jax":
        settings["rngs"] = import_module("flax.nnx").Rngs(seed)
    elif backend == "torch":
        import_module("torch").manual_seed(seed)
    else:
        import_module("tensorflow").keras.utils.set_random_seed(seed)
    return CLASSES[backend](**settings)


def statistics(learner, module_id="default_policy"):
    """What the learner's model keeps beside its parameters, by name."""
    weights = learner.get_weights()[module_id]
    return {name: weights[name] for name in STATISTICS[learner.config.backend] if name in weights}
