"""Older names of modules: what they were called with before, and overrides of `lend`."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.types import Tensor
from plugrad_rllib.overrides import Bridge, beneath, honour_overrides, older
from plugrad_rllib.subclasses import adapt_subclasses, add_names
from plugrad_rllib.warning import warn_older


class OlderRLModule:
    """Methods of one module and of several."""

    def as_multi_agent(self: Any) -> MultiRLModule:
        """`as_multi_rl_module()`, as it was called before Ray 2.35."""
        warn_older(f"{type(self).__name__}.as_multi_agent()", "as_multi_rl_module()")
        modules: MultiRLModule = self.as_multi_rl_module()
        return modules


@contextmanager
def _cross_functional_call(module: Any, below: Any, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """`functional_call` by way of an overridden `lend`, which may call `super().lend(...)` only on entering."""
    with ExitStack() as stack:
        with beneath(module, functional_call=below):
            stack.enter_context(older(module, "lend")(tensors))
        yield


BRIDGES = (Bridge("functional_call", ("lend",), _cross_functional_call),)


def adapt() -> None:
    """Make the older names of modules work, and overrides by them."""
    add_names(RLModule, OlderRLModule)
    add_names(MultiRLModule, OlderRLModule)
    adapt_subclasses(RLModule, partial(honour_overrides, RLModule, BRIDGES))
