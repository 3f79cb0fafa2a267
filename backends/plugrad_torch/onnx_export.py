"""Users' modules as ONNX models, by torch's exporter."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from plugrad.hooks.backend_types import Forward
from plugrad.hooks.markers import hookimpl
from plugrad.importing.on_use import require_extra
from plugrad_torch.module import TorchRLModule


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself: its own deprecations, and that torchvision is not installed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


class _Ordered(torch.nn.Module):
    """A forward pass as a function of tensors in order, which is what the exporter takes.

    Args:
        module: whose parameters it reads.
        forward: the forward pass.
        columns: what the tensors are, in order.
    """

    def __init__(self, module: TorchRLModule, forward: Forward, columns: Sequence[str]) -> None:
        super().__init__()
        self.module = module
        self._columns, self._forward = columns, forward

    def forward(self, *tensors: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The columns of the forward pass."""
        return self._forward(dict(zip(self._columns, tensors, strict=True)))


@hookimpl
def export_onnx(module: TorchRLModule, forward: Forward, columns: Mapping[str, Any], opset: int) -> bytes:
    """Export a forward pass; see `BackendSpec.export_onnx`.

    Args:
        module: of the user's.
        forward: its forward pass.
        columns: `{column: tensor [2, ...]}`, an example.
        opset: version of ONNX's operators.

    Returns:
        A serialised `onnx.ModelProto`.

    Raises:
        MissingFrameworkError: `onnxscript`, which the exporter needs, is not installed.
    """
    require_extra("onnxscript", "onnx", "torch's ONNX exporter")

    def run() -> Any:
        with torch.no_grad(), _quiet():
            return torch.onnx.export(
                _Ordered(module, forward, tuple(columns)),
                tuple(columns.values()),
                dynamo=True,
                opset_version=opset,
                input_names=list(columns),
                output_names=list(forward(columns)),
                dynamic_shapes=(tuple({0: "N"} for _ in columns),),
                verbose=False,
            )

    model: bytes = module.in_mode(False, run).model_proto.SerializeToString()
    return model
