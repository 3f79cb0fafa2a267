"""Losses with names, for `Learner.forward_backward(batch, loss=name)`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from plugrad.errors import ConfigError, did_you_mean
from plugrad.types import ModuleID, Tensor

Loss: TypeAlias = Callable[[Any, ModuleID, Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]
"""`loss(learner, module_id, batch, fwd_out)` returns a scalar, computed with `learner.ops`."""
_named: dict[str, Loss] = {}


def named_loss(name: str) -> Callable[[Loss], Loss]:
    """Give a loss a name, by which `Learner.forward_backward(batch, loss=name)` finds it.

        @named_loss("squared_error")
        def squared_error(learner, module_id, batch, fwd_out):
            error = fwd_out["vf_preds"] - batch["value_targets"]
            return mean_over_rows(learner.ops, learner.ops.square(error), batch)

    Args:
        name: in all learners; those in other processes know it if they have imported the function's module.

    Returns:
        A decorator, which returns the function.

    Raises:
        ConfigError: another function has this name.
    """

    def register(loss: Loss) -> Loss:
        former = _named.get(name, loss)
        where, there = ((each.__module__, each.__qualname__) for each in (loss, former))
        if where != there:
            raise ConfigError(
                f"named_loss({name!r}): {'.'.join(there)} has this name; give one of the two another"
            )
        _named[name] = loss
        return loss

    return register


def find_loss(name: str) -> Loss:
    """The loss with a name.

    Args:
        name: from `named_loss`.

    Returns:
        The function.

    Raises:
        ConfigError: no loss has this name.
    """
    if name not in _named:
        known = ", ".join(map(repr, _named)) or "none"
        raise ConfigError(
            f"no loss named {name!r}: there are {known}; import the module that registers it with "
            f"plugrad.losses.named_loss, or give the function itself.{did_you_mean(name, _named)}"
        )
    return _named[name]
