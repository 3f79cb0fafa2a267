"""`PLUGRAD_TRACE=1` where steps are compiled: their hooks are seen while they are traced, and the last line says so."""

import re

from plugrad.hooks.tracing import VARIABLE
from plugrad.testing.tiny_learners import tiny_batch, tiny_learner
from plugrad_listeners import EntropyBonus

STEPS = {"torch": [2, 2], "tf2": [1, 0], "jax": [1, 0]}
"""That Python runs in two updates of two minibatches: torch is eager, the others one program, as "auto" chooses."""
LOSSES = {**STEPS, "jax": [2, 0]}
"""Computed in them: JAX records no operations, so the core looks for wrong broadcasts in losses of their own."""


def test_what_is_compiled_is_seen_once(backend, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")
    learner = tiny_learner(backend, compile="auto", plugins=[EntropyBonus()])
    for steps, losses in zip(STEPS[backend], LOSSES[backend], strict=True):
        capsys.readouterr()
        learner.update(tiny_batch(16))
        said = capsys.readouterr().err
        assert re.findall(r"-- updated by (.*); steps that Python ran: (\d+)", said) == [
            (learner.update_mode, str(steps))
        ]
        assert said.count("compute_losses  listener 'EntropyBonus', wrapping") == losses
        assert said.count("differentiate  backend") == steps
