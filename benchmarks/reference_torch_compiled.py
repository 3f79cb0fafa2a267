"""A hand-written compiled update in torch: loss, gradient, clip and Adam over one flat vector, compiled by Inductor.

`torch.compile` refuses autograd inside a step. So the step is traced by `make_fx`. It is the body of torch's
`while_loop`, which is compiled with the options of inductor that plugrad uses. The powers in Adam's corrections are
carried from step to step.
"""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from collections.abc import Callable

import numpy as np
import torch
import torch._inductor
from contestants import Contestant
from reference_torch import COLUMNS, log_prob, surrogate_loss
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op
from torch.fx.experimental.proxy_tensor import make_fx
from workload import (
    ADAM_BETAS,
    ADAM_EPS,
    GRAD_CLIP,
    LEARNING_RATE,
    Cell,
    Weights,
    initial_weights,
    row_order,
)

Carry = tuple[Tensor, ...]

OPTIONS = {
    "cpp_wrapper": True,
    "cpp_cache_precompile_headers": False,
    "cpp.use_decompose_tanh": True,
    "cpp.enable_floating_point_contract_flag": "fast",
}
"""The kernels are called from C++ and not from Python; tanh by exponentials, fused multiply-add."""


def make(cell: Cell, seed: int, option: str) -> "CompiledUpdate":
    return CompiledUpdate(cell, seed)


class CompiledUpdate(Contestant):
    """A pure function of (flat parameters, moments, powers of the betas), the order of rows and the columns."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._rng = np.random.default_rng(seed)
        weights = initial_weights(cell, seed)
        self._shapes = {name: value.shape for name, value in weights.items()}
        flat = torch.from_numpy(np.concatenate([value.reshape(-1) for value in weights.values()]))
        self._state: Carry = (
            flat,
            torch.zeros_like(flat),
            torch.zeros_like(flat),
            torch.tensor(1.0),
            torch.tensor(1.0),
        )
        self._compiled: Callable[..., Carry] | None = None

    def describe(self) -> str:
        return f"torch {torch.__version__}, make_fx and Inductor, {torch.get_num_threads()} thread"

    def update(self, shuffle: bool) -> None:
        columns = [torch.from_numpy(self.batch[name]) for name in COLUMNS]
        order = torch.from_numpy(row_order(self._cell, len(columns[0]), self._rng if shuffle else None))
        with torch.no_grad():
            if self._compiled is None:
                self._compiled = self._compile([*self._state, order, *columns])
            *state, total = self._compiled(*self._state, order, *columns)
        self._state = tuple(state)
        float(total / len(order))

    def _compile(self, examples: list[Tensor]) -> Callable[..., Carry]:
        number = len(self._state)
        order, *columns = examples[number:]
        minibatch = [column[order[0]] for column in columns]
        step = make_fx(self._step, tracing_mode="fake")(*self._state, torch.tensor(0.0), *minibatch)

        def body(done: Tensor, *given: Tensor) -> Carry:
            carried, (order, *columns) = given[: number + 1], given[number + 1 :]
            rows = order.index_select(0, done.reshape(1)).reshape(-1)
            return (done + 1, *step(*carried, *(column[rows] for column in columns)))

        def whole(*given: Tensor) -> Carry:
            carried = (torch.zeros((), dtype=torch.int64), *given[:number], torch.zeros(()))
            inputs = given[number:]
            _, *new = while_loop_op(lambda done, *rest: done < len(order), body, carried, inputs)
            return tuple(new)

        graph = make_fx(whole, tracing_mode="fake")(*examples)
        compiled: Callable[..., Carry] = torch._inductor.compile(graph, list(examples), options=OPTIONS)
        return compiled

    def _step(self, *carried: Tensor) -> Carry:
        flat, m, v, power1, power2, total, *minibatch = carried
        with torch.enable_grad():
            leaf = flat.detach().requires_grad_()
            loss = self._loss(leaf, *minibatch)
            (gradient,) = torch.autograd.grad(loss, leaf)
        gradient = gradient * (GRAD_CLIP / (gradient.norm() + 1e-6)).clamp(max=1.0)
        beta1, beta2 = ADAM_BETAS
        power1, power2 = power1 * beta1, power2 * beta2
        m = m + (1.0 - beta1) * (gradient - m)
        v = v + (1.0 - beta2) * (gradient * gradient - v)
        rate = LEARNING_RATE / (1.0 - power1)
        flat = flat - rate * m / (v.sqrt() / (1.0 - power2).sqrt() + ADAM_EPS)
        return flat, m, v, power1, power2, total + loss.detach()

    def _loss(
        self,
        flat: Tensor,
        obs: Tensor,
        actions: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        targets: Tensor,
    ) -> Tensor:
        named = self._named(flat)
        logp = log_prob(self._encoder(named, "pi", obs), named.get("pi.log_std"), actions)
        return surrogate_loss(logp, self._encoder(named, "vf", obs)[:, 0], old_logp, advantages, targets)

    def _encoder(self, named: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        for n in range(len(self._cell.hiddens)):
            x = torch.tanh(torch.addmm(named[f"{name}.{n}.bias"], x, named[f"{name}.{n}.weight"]))
        return torch.addmm(named[f"{name}.out.bias"], x, named[f"{name}.out.weight"])

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [int(np.prod(shape)) for shape in self._shapes.values()])
        return {
            name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def weights(self) -> Weights:
        return {name: value.numpy().copy() for name, value in self._named(self._state[0]).items()}
