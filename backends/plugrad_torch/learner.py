"""`TorchLearner`: a Learner for code that is written in torch."""

from typing import ClassVar

from plugrad.learner import Learner


class TorchLearner(Learner):
    """A Learner whose losses and hooks may use torch directly; its config must say `framework("torch")`."""

    framework: ClassVar[str | None] = "torch"
