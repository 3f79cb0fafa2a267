"""The mappings that traced hooks are given and give, in an order that nobody promised."""

from collections.abc import Callable, Generator, Mapping
from functools import wraps
from typing import Any

from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.testing.strict.mappings import unchangeable, unordered

_READ_ONLY = ("batch", "fwd_out")
_GRADIENTS = ("gradients", "gradients_dict", "module_gradients_dict", "param_dict")
_HOOKS = (
    *(
        "compute_losses",
        "compute_loss_for_module",
        "postprocess_gradients",
        "postprocess_gradients_for_module",
    ),
    *("apply_gradients", "filter_param_dict_for_optimizer", "_reduce_gradients"),
)

Wrapper = Generator[None, Any, Any]


def give_unordered(learner: LearnerProtocol) -> None:
    """From now on, call the learner's traced hooks with mappings in another order; a batch cannot be changed."""
    for name in _HOOKS:
        method = getattr(learner, name)
        if not hasattr(method, "__strict__"):
            setattr(learner, name, _converting(method))


def _converting(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {name: _given(name, value) for name, value in kwargs.items()}
        return _answer(method(*[_gradients(each) for each in args], **named))

    vars(call)["__strict__"] = True
    return call


def _given(name: str, value: Any) -> Any:
    if name in _READ_ONLY:
        return unchangeable(value)
    return _gradients(value) if name in _GRADIENTS else value


def _gradients(value: Any) -> Any:
    return unordered(value.items()) if isinstance(value, Mapping) else value


_answer = _gradients


@hookimpl(wrapper=True)
def compute_losses() -> Wrapper:
    """Losses in another order."""
    return _answer((yield))


@hookimpl(wrapper=True)
def postprocess_gradients() -> Wrapper:
    """Gradients in another order."""
    return _answer((yield))


@hookimpl(wrapper=True)
def postprocess_gradients_for_module() -> Wrapper:
    """Gradients in another order."""
    return _answer((yield))
