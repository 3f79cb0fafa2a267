"""What hook methods need from the Learner."""

from typing import Any, Protocol

from plugrad.config import Config
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID


class HookCaller(Protocol):
    """A learner that calls its plugins."""

    config: Config
    """The settings; `config.get_config_for_module(module_id)` gives those of one module."""

    def config_view(self, module_id: ModuleID) -> ConfigView:
        """A module's config with scheduled fields as tensors: what losses get."""
        raise NotImplementedError

    def _provide(self, hook: str, **arguments: Any) -> Any:
        """The result of the hook's provider, without wrappers and overrides."""
        raise NotImplementedError
