"""`Network`, written once over ops for every backend, and the layers of the built-in ones: parameters and functions.

A layer has a name, such as `pi.0`; its parameters are `pi.0.weight` and `pi.0.bias`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from plugrad.distributions import Distribution, distribution_class
from plugrad.errors import ConfigError
from plugrad.networks import initializers
from plugrad.ops import Ops, Shape
from plugrad.spaces import kinds
from plugrad.types import Array, Tensor

ACTIVATIONS: dict[str, Callable[[Ops], Callable[[Tensor], Tensor]]] = {
    "tanh": lambda ops: ops.tanh,
    "relu": lambda ops: ops.relu,
    "sigmoid": lambda ops: ops.sigmoid,
    "linear": lambda ops: lambda x: x,
}
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = sqrt(2.0), 0.01, 1.0
"""Gains of `orthogonal` for hidden layers, policy heads and value heads.

Source: Andrychowicz et al. 2021, arXiv:2006.05990, choices C56 and C57 (small initial policy).
"""

LAYER_NORM_EPSILON = 1e-5

Initializer: TypeAlias = Callable[[np.random.Generator, Any, float], Array]
"""`init(rng, shape, scale)` gives a float32 array."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a network.

    Args:
        name: such as `pi.0.weight`.
        shape: its shape.
        init: the initializer.
        scale: the initializer's last argument, such as a gain.
    """

    name: str
    shape: tuple[int, ...]
    init: Initializer
    scale: float


def layer_parameters(name: str, weight: Shape, gain: float, *, ortho_init: bool = True) -> list[Parameter]:
    """The parameters of a dense layer or a convolution.

    Args:
        name: the layer's name.
        weight: the weight's shape: (in, out), or (kernel, kernel, in, out).
        gain: the gain of the orthogonal weight.
        ortho_init: True: an orthogonal weight and a zero bias. False: both uniform within 1 / sqrt(inputs), the default
            of torch.nn.Linear and torch.nn.Conv2d.

    Returns:
        `<name>.weight`, then `<name>.bias` (out,).
    """
    if not ortho_init:
        bound = 1.0 / sqrt(prod(weight[:-1]))
        return [
            Parameter(f"{name}.weight", weight, initializers.uniform, bound),
            Parameter(f"{name}.bias", weight[-1:], initializers.uniform, bound),
        ]
    return [
        Parameter(f"{name}.weight", weight, initializers.orthogonal, gain),
        Parameter(f"{name}.bias", weight[-1:], initializers.constant, 0.0),
    ]


def stacked(parameters: Iterable[Parameter], copies: int) -> list[Parameter]:
    """The parameters of several networks computed together: shapes (copies, ...), each copy drawn separately."""
    return [
        Parameter(each.name, (copies, *each.shape), _draw_each(each.init), each.scale) for each in parameters
    ]


def _draw_each(init: Initializer) -> Initializer:
    def draw(rng: np.random.Generator, shape: Shape, scale: float) -> Array:
        return np.stack([init(rng, shape[1:], scale) for _ in range(shape[0])])

    return draw


def dense(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Apply a dense layer.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [..., in].

    Returns:
        [..., out].
    """
    return ops.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def convolution(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
    """Apply a convolution without padding.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [B, H, W, in].
        stride: the stride in both height and width.

    Returns:
        [B, H', W', out]; `H' = (H - kernel) // stride + 1`, `W'` likewise.
    """
    return ops.conv2d(x, weights[f"{name}.weight"], stride) + weights[f"{name}.bias"]


def layer_norm(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Normalise the features of each row: `weight (x - mean) / sqrt(variance + 1e-5) + bias`.

    Source: Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 4. The 1e-5 is the default of torch.nn.LayerNorm.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`: `<name>.weight` and `<name>.bias` (width,), or (n, width) for n networks.
        name: the layer's name.
        x: [..., width], or [n, B, width] for n networks.

    Returns:
        The shape of `x`.
    """
    scale, offset = weights[f"{name}.weight"], weights[f"{name}.bias"]
    if len(ops.shape(scale)) > 1:
        scale, offset = ops.expand_dims(scale, -2), ops.expand_dims(offset, -2)
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    return centred / ops.sqrt(variance + LAYER_NORM_EPSILON) * scale + offset


def layer_norm_parameters(name: str, width: int) -> list[Parameter]:
    """The parameters of a layer norm: `<name>.weight` (width,) of ones, and `<name>.bias` (width,) of zeros."""
    return [
        Parameter(f"{name}.weight", (width,), initializers.constant, 1.0),
        Parameter(f"{name}.bias", (width,), initializers.constant, 0.0),
    ]


def reshape_inner(ops: Ops, x: Tensor, rank: int, inner: Shape) -> Tensor:
    """Reshape the last dimensions; a trace need not know the length of the first dimension.

    Args:
        ops: tensor functions.
        x: [..., *last dimensions].
        rank: how many last dimensions there are.
        inner: their new shape.

    Returns:
        [..., *inner].
    """
    shape = ops.shape(x)
    leading = shape[: len(shape) - rank]
    return ops.reshape(x, ((-1, *leading[1:]) if leading else ()) + inner)


class HiddenLayers:
    """Dense layers, each followed by a layer norm if `layer_norm` is set, and by an activation.

    Parameters of layer `<i>`: `<name>.<i>.weight` and `<name>.<i>.bias`, then `<name>.<i>.norm.weight` and
    `<name>.<i>.norm.bias` if there is a layer norm.

    Sources of the layer norm before the activation: Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 4; in
    critics, Hiraoka et al. 2022, arXiv:2110.02034, figure 1.

    Args:
        inputs: number of inputs.
        config: a complete `model_config`; reads `fcnet_hiddens`, `fcnet_activation`, `layer_norm` and `ortho_init`.

    Attributes:
        width: number of outputs.
    """

    def __init__(self, inputs: int, config: Mapping[str, Any]) -> None:
        self._widths = (inputs, *config["fcnet_hiddens"])
        self._activation = config["fcnet_activation"]
        self._layer_norm = config["layer_norm"]
        self._ortho_init = config["ortho_init"]
        self.width: int = self._widths[-1]

    def __len__(self) -> int:
        return len(self._widths) - 1

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name."""
        parameters = []
        for n, widths in enumerate(pairwise(self._widths)):
            layer = f"{name}.{n}"
            parameters += layer_parameters(layer, widths, HIDDEN_GAIN, ortho_init=self._ortho_init)
            parameters += layer_norm_parameters(f"{layer}.norm", widths[1]) if self._layer_norm else []
        return parameters

    def forward(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """Compute the last layer's outputs.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: [..., inputs].

        Returns:
            [..., width].
        """
        activate = ACTIVATIONS[self._activation](ops)
        for n in range(len(self._widths) - 1):
            x = dense(ops, weights, f"{name}.{n}", x)
            x = layer_norm(ops, weights, f"{name}.{n}.norm", x) if self._layer_norm else x
            x = activate(x)
        return x


class Network(ABC):
    """The parameters of a network, and the function that it computes over ops.

    For your own network, derive from it and return it from the hook `build_network`. A backend makes an RLModule from
    it that holds the weights; numpy ops run the same function for acting. Weights are (in, out), those of convolutions
    (kernel, kernel, in, out). Flat vectors and checkpoints use the names and the order of the parameters.

    Attributes:
        parameters: all parameters, in canonical order; set by the subclass.
        acts_in_numpy: whether acting runs in numpy, which is faster than a framework's call for small dense layers and
            slower for convolutions.
        action_space: space of one action; set when a module is made from the network.
        critic_only: keys of a Dict observation that ACTION_DIST_INPUTS do not depend on; policies do not ask for them.
        uint8_rule: its rule of `uint8_scale`, if the other rule gives its observations other factors; set as
            `action_space`.
    """

    parameters: tuple[Parameter, ...]
    acts_in_numpy: bool = True
    action_space: gym.Space[Any] | None = None
    critic_only: Sequence[str] = ()
    uint8_rule: str | None = None
    _classes: tuple[Any, ...] = ()
    """An action space, how many kinds of spaces were registered, and `{ops: distribution class}` of this space."""

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Array]:
        """Draw the weights, in the order of `parameters`: `{name: float32 array}`."""
        return {each.name: each.init(rng, each.shape, each.scale) for each in self.parameters}

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode: `{name: float32 array}`; empty for a network without one."""
        return {}

    def distribution_class(self, action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
        """The class of the action distribution that takes ACTION_DIST_INPUTS; by default the action space's.

        Acting and losses use it: a module's `get_train_action_dist_cls` returns it. Override it for a network whose
        outputs have another meaning:

            def distribution_class(self, action_space, ops):
                return squashed_gaussian_class(action_space, ops)

        Args:
            action_space: space of one action.
            ops: the tensor functions that the class computes with.

        Returns:
            A class that takes ACTION_DIST_INPUTS, such as one from `plugrad.distributions.distribution_class`.

        Raises:
            ConfigError: there is no distribution for this space.
        """
        known = self._classes
        if not known or known[0] is not action_space or known[1] != kinds.num_registered:
            known = action_space, kinds.num_registered, {}
            object.__setattr__(self, "_classes", known)  # an author's class may be a frozen dataclass
        classes: dict[Ops, type[Distribution]] = known[2]
        if ops not in classes:
            classes[ops] = distribution_class(action_space, ops)
        return classes[ops]

    def __getstate__(self) -> Any:
        # Classes with ops have no name that another process could import.
        state = super().__getstate__()
        own, *slots = state if isinstance(state, tuple) else (state,)
        own = {name: value for name, value in (own or {}).items() if name != "_classes"}
        return (own, *slots) if slots else own

    def distribution(self, ops: Ops, outputs: Tensor) -> Distribution:
        """The action distributions for outputs of this network, of the class `distribution_class`.

        Args:
            ops: tensor functions.
            outputs: ACTION_DIST_INPUTS [..., inputs].

        Returns:
            A batch of distributions [...].

        Raises:
            ConfigError: no module was made from the network, or there is no distribution for its action space.
            BatchError: the last dimension is not the number of inputs.
        """
        if self.action_space is None:
            raise ConfigError(f"{type(self).__name__} has no action_space: no module was made of it")
        return self.distribution_class(self.action_space, ops).from_logits(outputs)

    @abstractmethod
    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute the columns of a batch. Compiled update modes trace this method.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            batch: `{column: tensor}`, at least OBS [B, ...]. With a recurrent state these are sequences; see
                `RLModule.get_initial_state`.
            value: whether to compute also what acting does not need, such as VF_PREDS.

        Returns:
            `{column: tensor}`, at least ACTION_DIST_INPUTS [B, inputs]; with a recurrent state also STATE_OUT.
        """
