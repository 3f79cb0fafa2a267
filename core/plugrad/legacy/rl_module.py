"""An older method of modules, mixed into them."""

from typing import Any

from plugrad.legacy.warning import warn_older


class LegacyRLModule:
    """What one module and several were called with before Ray 2.35."""

    def as_multi_rl_module(self) -> Any:
        """See the module."""
        raise NotImplementedError

    def as_multi_agent(self) -> Any:
        """`as_multi_rl_module()`."""
        warn_older(f"{type(self).__name__}.as_multi_agent()", "as_multi_rl_module()")
        return self.as_multi_rl_module()
