"""The networks of IQL: a Gaussian policy, twin critics and a value, written once over ops."""

from collections.abc import Mapping

from plugrad import Columns, RLModuleSpec
from plugrad.networks.encoders import Encoder
from plugrad.networks.initializers import constant
from plugrad.networks.layers import VALUE_GAIN, Parameter, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.types import Tensor
from plugrad_sac import POLICY, BoxPolicyAndCritics

VALUE = "vf"
"""Names of the value network's parameters begin with it."""
LOG_STD = f"{POLICY}.log_std"
NEXT_VF_PREDS = "next_vf_preds"
"""The values [B] of NEXT_OBS."""
LOWEST_LOG_STD = -5.0
"""Lower bound of the log standard deviation of actions rescaled to [-1, 1]; the authors' value."""


class IQLNetwork(BoxPolicyAndCritics):
    """A policy, twin critics and a value network, without shared layers, for a bounded Box.

    The policy is a Gaussian. Its mean is squashed into the bounds; its standard deviation is the same in all states, at
    first half of the bounds' width. With ACTIONS and NEXT_OBS in the batch there are VF_PREDS and NEXT_VF_PREDS beside
    what `BoxPolicyAndCritics` computes.

    Parameters, in order: those of `BoxPolicyAndCritics`; `pi.log_std`; `vf.*`, `vf.out.*`.

    Args:
        spec: spaces and `model_config`; `inference_only` leaves critics and value out.

    Raises:
        ConfigError: the action space is no float Box with one axis and finite bounds.
    """

    algorithm = "IQL"

    def __init__(self, spec: RLModuleSpec) -> None:
        super().__init__(spec, outputs_per_dimension=1)
        config = spec.network_config()
        self._value = Encoder(spec.observation_space, config)
        self.parameters += (Parameter(LOG_STD, (self._num_dimensions,), constant, config["log_std_init"]),)
        if not spec.inference_only:
            self.parameters += (
                *self._value.parameters(VALUE),
                *layer_parameters(
                    f"{VALUE}.out", (self._value.width, 1), VALUE_GAIN, ortho_init=config["ortho_init"]
                ),
            )

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and the class."""
        columns = super().forward(ops, weights, batch, value=value)
        if Columns.ACTION_DIST_INPUTS in columns:
            means = columns[Columns.ACTION_DIST_INPUTS]
            columns[Columns.ACTION_DIST_INPUTS] = self._gaussian(ops, means, weights[LOG_STD])
        if Columns.ACTIONS in batch:
            columns[Columns.VF_PREDS] = self._values_of(ops, weights, batch[Columns.OBS])
            columns[NEXT_VF_PREDS] = self._values_of(ops, weights, batch[Columns.NEXT_OBS])
        return columns

    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        """Means [B, d] before they are squashed; `forward` makes ACTION_DIST_INPUTS of them."""
        return outputs

    def _gaussian(self, ops: Ops, means: Tensor, log_std: Tensor) -> Tensor:
        """The inputs [B, 2 d] of a `DiagGaussian` in the actions' own units."""
        bounds = self._bounds(ops)
        ones = ops.ones_like(means)
        half_widths = bounds.unscale_actions(ones) - bounds.unscale_actions(0.0 * ones)
        log_std = ops.clip(log_std, min=LOWEST_LOG_STD) + ops.log(half_widths)
        return ops.concat([bounds.unscale_actions(ops.tanh(means)), log_std], -1)

    def _values_of(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor) -> Tensor:
        x = self._value.features(ops, weights, VALUE, self._value.prepare(ops, obs))
        return ops.squeeze(dense(ops, weights, f"{VALUE}.out", x), -1)
