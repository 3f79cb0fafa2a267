"""The Learner and its parts, a room each.

`learner` is the conductor and `hooked` its methods that are hooks; `build` runs once, `call` once per update, `step`
once per minibatch (or trace), and `undo` takes an update back; `optimizer_registry` and `defaults` answer hooks for the
core; `connectors` and `minibatches` prepare data in numpy; `metrics` reports; `inference` acts; `state` and `disk`
remember.
"""

from plugrad.learner.learner import Learner, build_learner

__all__ = ["Learner", "build_learner"]
