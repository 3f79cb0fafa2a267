"""Classes of a framework that a file may name: its own modules, and nothing else of it."""

import pytest

from plugrad.importing.trusted_names import LEARNER, MODULE, reason_against

MODULES = {"torch": "torch.nn:Linear", "tf2": "keras:Sequential", "jax": "flax.nnx:Linear"}
FUNCTIONS = {"torch": "torch:load", "tf2": "keras.models:load_model", "jax": "flax.nnx:merge"}
OTHERS = {"torch": "torch.optim:SGD", "tf2": "keras.layers:Lambda", "jax": "flax.nnx:Optimizer"}


def test_a_file_may_name_modules_of_the_framework(backend: str) -> None:
    assert reason_against(MODULES[backend], MODULE) is None


@pytest.mark.parametrize("names", [FUNCTIONS, OTHERS])
def test_a_file_may_name_nothing_else_of_it(backend: str, names: dict[str, str]) -> None:
    assert "no class derived from" in str(reason_against(names[backend], MODULE))


def test_a_file_may_name_an_installed_learner(backend: str) -> None:
    assert reason_against("plugrad:Learner", LEARNER) is None
    assert reason_against(f"plugrad_{backend}:Learner", LEARNER) is not None
