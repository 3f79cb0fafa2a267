"""`Tf2Learner`: a Learner for code that is written in TensorFlow."""

from typing import ClassVar

from plugrad.learner import Learner


class Tf2Learner(Learner):
    """A Learner whose losses and hooks may use TensorFlow directly; its config must say `framework("tf2")`."""

    framework: ClassVar[str | None] = "tf2"
