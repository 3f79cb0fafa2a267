"""Optimizers of torch: a user's own behind plugrad's interface, and torch's fused Adam for plugrad's.

All others step by the neutral formula. The fused kernel computes the same formula as `plugrad.optimizers.Adam`; the
parity tests check this.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.errors import OptimizerError
from plugrad.gradients import FlatVariable, Gradients, flat_of, layouts_in
from plugrad.hooks.backend_helpers import check_is_optimizer, check_params
from plugrad.hooks.markers import hookimpl
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Adam, DelayedOptimizer, Guard, Optimizer, undelayed
from plugrad.types import Array
from plugrad_torch import versions
from plugrad_torch.sharding import ShardedParameters, stepping_parts
from plugrad_torch.step_recorder import is_recording
from plugrad_torch.variables import FlatParameters

GROUP_RATES = "learning_rates"
"""Slot with the learning rates of all param groups, in float64 as torch has them."""
_CANNOT = (torch.optim.LBFGS, torch.optim.SparseAdam)


class FrameworkOptimizerState:
    """All that a torch optimizer keeps, learning rates included, as one value."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def read(self) -> Any:
        """The live state dict."""
        return self._optimizer.state_dict()

    def assign(self, value: Any) -> None:
        """Put a state dict back, also one without state."""
        self._optimizer.load_state_dict(deepcopy(value))

    def snapshot(self) -> Any:
        """A copy."""
        return deepcopy(self._optimizer.state_dict())

    def numpy(self) -> Array:
        """Learning rates and state of all parameters as bytes, uint8 [n]: equal for equal states only."""
        state, groups = self._optimizer.state_dict()["state"], self._optimizer.param_groups
        values = [group["lr"] for group in groups] + [
            value
            for _, slots in sorted(state.items())
            for _, value in sorted(slots.items())
            if value is not None
        ]
        found = [np.atleast_1d(np.asarray(_to_numpy(value))).ravel().view(np.uint8) for value in values]
        return np.concatenate(found)


class FrameworkOptimizer(Optimizer):
    """An optimizer of torch as one of plugrad.

    Args:
        optimizer: the user's object.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """See `Optimizer.bind`: it keeps the parameters' names in the order in which a state dict numbers them."""
        assert isinstance(parameters, FlatParameters)
        self.parameters = parameters
        names = {id(p): ref for p, ref in zip(parameters.params, parameters.layout.refs, strict=True)}
        self._refs = [names[id(param)] for param in _params(self.optimizer)]

    @property
    def variables(self) -> list[Variable]:
        """See `Optimizer`."""
        return [self.parameters, FrameworkOptimizerState(self.optimizer)]

    def step(self, ops: Ops, gradient: Tensor, guard: Callable[[Tensor, Tensor], Tensor]) -> None:
        """See `Optimizer.step`: in place. A step that must not count is skipped, which needs a host synchronisation."""
        flat = self.parameters
        assert isinstance(flat, FlatParameters)
        if not bool(guard(ops.ones(()), ops.zeros(()))):
            return
        flat.attach()
        if gradient is not flat.gradient:
            flat.gradient.copy_(gradient)
        self.optimizer.step()

    def get_slots(self) -> dict[str, Any]:
        """See `Optimizer`; before the first step only the learning rates."""
        return self._by_slot(self.optimizer)

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """See `Optimizer`: a state from before the first step fits at any time, else one as it is after a step."""
        has_stepped = any(slot != GROUP_RATES for slot in saved)
        like = self._by_slot(
            _stepped_copy(self.optimizer) if has_stepped and not self.optimizer.state else self.optimizer
        )
        return like if has_stepped else {GROUP_RATES: like[GROUP_RATES]}

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """See `Optimizer`."""
        slots = {slot: values for slot, values in saved.items() if slot != GROUP_RATES}
        by_parameter = {
            n: {slot: _to_tensor(values[ref]) for slot, values in slots.items() if ref in values}
            for n, ref in enumerate(self._refs)
            if slots
        }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": by_parameter, "param_groups": groups})
        for group, rate in zip(self.optimizer.param_groups, saved[GROUP_RATES], strict=True):
            _set_rate(group, float(rate))

    def _by_slot(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        slots: dict[str, Any] = {
            GROUP_RATES: np.array([float(group["lr"]) for group in optimizer.param_groups])
        }
        for ref, param in zip(self._refs, _params(optimizer), strict=True):
            for slot, value in optimizer.state.get(param, {}).items():
                if value is not None:
                    slots.setdefault(slot, {})[ref] = _to_numpy(value)
        return slots


def _params(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _to_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else value


def _to_tensor(value: Any) -> Any:
    return torch.tensor(np.array(value)) if isinstance(value, np.ndarray | np.generic) else value


def _stepped_copy(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """A twin over copies of the parameters after a step without a slope: it has the state that the first step makes."""
    twin: Any = object.__new__(type(optimizer))
    vars(twin).update(vars(optimizer))
    twin._optimizer_step_pre_hooks, twin._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    twin.state = defaultdict(dict)
    twin.param_groups = [
        {**group, "params": [_copy_with_zero_gradient(param) for param in group["params"]]}
        for group in optimizer.param_groups
    ]
    twin.step()
    copied: torch.optim.Optimizer = twin
    return copied


def _copy_with_zero_gradient(param: Tensor) -> Tensor:
    copied = param.detach().clone().requires_grad_(True)
    copied.grad = torch.zeros_like(copied)
    return copied


@hookimpl
def wrap_optimizer(optimizer: Any) -> Optimizer:
    """See `GradientSpec.wrap_optimizer`."""
    return FrameworkOptimizer(optimizer) if isinstance(optimizer, torch.optim.Optimizer) else optimizer


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Sequence[Tensor]) -> None:
    """See `GradientSpec.check_registered_optimizer`: an optimizer of plugrad or of torch, and a list of parameters.

    Raises:
        OptimizerError: it is no such optimizer; its groups are not exactly `params`; it needs more than gradients.
    """
    check_params(params, torch.Tensor, "torch parameters")
    if not isinstance(optimizer, torch.optim.Optimizer):
        check_is_optimizer(optimizer, "torch.optim.Optimizer")
        return
    name = f"torch.optim.{type(optimizer).__name__}"
    if isinstance(optimizer, _CANNOT):
        raise OptimizerError(f"{name} needs more than a step with dense gradients: use another optimizer")
    own, given = {id(param) for param in _params(optimizer)}, {id(param) for param in params}
    if own != given:
        raise OptimizerError(
            f"the param groups of {name} have {len(own)} parameters, {len(own & given)} of them of the {len(given)} in "
            f"params: they must be the same; type params = learner.get_parameters(module), {name}(params, ...) and "
            "register_optimizer(params=params, ...)"
        )


@hookimpl
def get_optimizer_lr(optimizer: Any) -> float:
    """See `GradientSpec.get_optimizer_lr`: the variable, or the first param group."""
    return float(
        optimizer.lr.numpy() if isinstance(optimizer, Optimizer) else optimizer.param_groups[0]["lr"]
    )


@hookimpl
def set_optimizer_lr(optimizer: Any, lr: float) -> None:
    """See `GradientSpec.set_optimizer_lr`: all param groups; a rate that is a tensor is set in place."""
    if isinstance(optimizer, Optimizer):
        optimizer.lr.assign(lr)
        return
    for group in optimizer.param_groups:
        _set_rate(group, lr)


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


_fused_adam_: Any = versions.FUSED_ADAM.find()


@hookimpl
def apply_gradients(learner: LearnerProtocol, gradients_dict: Gradients) -> None:
    """See `LearnerSpec.apply_gradients`: the fused kernel for Adam where it can be, else the neutral formula."""
    for each in learner.registered_optimizers.values():
        if layouts_in(gradients_dict, [each.layout]):
            optimizer = each.optimizer_adapter
            in_place = _steps_in_place(optimizer, learner)
            if in_place and isinstance(optimizer, DelayedOptimizer) and learner.device == "cpu":
                # Elsewhere reading the count would wait for the device.
                if not optimizer.steps.count_on_host():
                    continue
                optimizer = optimizer.optimizer
            gradient = flat_of(learner.ops, gradients_dict, each.layout)
            parameters = optimizer.parameters
            if isinstance(parameters, ShardedParameters) and parameters.is_divided:
                with stepping_parts(parameters, undelayed(optimizer).slots.values()) as part:
                    _step(learner, optimizer, gradient[part], in_place=in_place)
            else:
                _step(learner, optimizer, gradient, in_place=in_place)


def _step(learner: LearnerProtocol, optimizer: Optimizer, gradient: Tensor, *, in_place: bool) -> None:
    if in_place and _fused_adam_ is not None and type(optimizer) is Adam:
        fused_adam(optimizer, gradient)
    elif (
        is_recording(gradient)
        and _fused_adam_ is not None
        and not learner.is_guarded
        and (adam := _adam_in(optimizer)) is not None
    ):
        keep: Guard = learner.guard
        if isinstance(optimizer, DelayedOptimizer):
            keep = optimizer.steps.count(learner.ops, keep)
        _fused_adam_on_copies(adam, gradient, keep)
    else:
        optimizer.step(learner.ops, gradient, learner.guard)


def _steps_in_place(optimizer: Optimizer, learner: LearnerProtocol) -> bool:
    """Neither while traced nor where a step may have to be taken back."""
    flat = optimizer.parameters
    traced = isinstance(flat, FlatParameters) and flat.tracer is not None
    return not traced and not learner.is_guarded


def _adam_in(optimizer: Optimizer) -> Adam | None:
    inner = optimizer.optimizer if isinstance(optimizer, DelayedOptimizer) else optimizer
    return inner if type(inner) is Adam else None


def fused_adam(adam: Adam, gradient: Tensor) -> None:
    """Step Adam with one kernel for moments and parameters, in place.

    Args:
        adam: registered, so that it has its variables.
        gradient: flat, [size].
    """
    slots = {name: slot.read() for name, slot in adam.slots.items()}
    slots["count"] += 1.0
    _fused(adam, adam.parameters.read(), gradient, slots)


def _fused_adam_on_copies(adam: Adam, gradient: Tensor, keep: Guard) -> None:
    """The same numbers in a recorded step, which must not change its arguments."""
    variables: dict[str, Any] = {"parameters": adam.parameters, **adam.slots}
    before = {name: variable.read() for name, variable in variables.items()}
    after = {name: value.clone() for name, value in before.items()}
    after["count"] += 1.0
    _fused(adam, after["parameters"], gradient, after)
    for name, variable in variables.items():
        variable.assign(keep(after[name], before[name]))


def _fused(adam: Adam, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor]) -> None:
    _fused_adam_(
        [parameters],
        [gradient],
        [slots["m"]],
        [slots["v"]],
        [],
        [slots["count"]],
        lr=adam.lr.read(),
        beta1=adam.beta1,
        beta2=adam.beta2,
        weight_decay=0.0,
        eps=adam.eps,
        amsgrad=False,
        maximize=False,
    )
