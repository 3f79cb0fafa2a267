"""`JaxLearner`: a Learner for code that is written in JAX."""

from typing import ClassVar

from plugrad.learner import Learner


class JaxLearner(Learner):
    """A Learner whose losses and hooks may use JAX directly; its config must say `framework("jax")`."""

    framework: ClassVar[str | None] = "jax"
