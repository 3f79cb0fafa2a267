"""The older name of modules: what they were called with before."""

from typing import Any

from plugrad.rl_module import MultiRLModule, RLModule
from plugrad_rllib.subclasses import add_names
from plugrad_rllib.warning import warn_older


class OlderRLModule:
    """Methods of one module and of several."""

    def as_multi_agent(self: Any) -> MultiRLModule:
        """`as_multi_rl_module()`, as it was called before Ray 2.35."""
        warn_older(f"{type(self).__name__}.as_multi_agent()", "as_multi_rl_module()")
        modules: MultiRLModule = self.as_multi_rl_module()
        return modules


def adapt() -> None:
    """Make the older name work."""
    add_names(RLModule, OlderRLModule)
    add_names(MultiRLModule, OlderRLModule)
