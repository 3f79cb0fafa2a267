"""Older classes of modules and batches, which make those of today, and the older method of modules."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from plugrad.batch import MultiAgentBatch
from plugrad.columns import Columns
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.rl_module import MultiRLModule, RLModule
from plugrad.types import DEFAULT_MODULE_ID, ModuleID
from plugrad_rllib.instead import refuse
from plugrad_rllib.overrides import add_names, older_method
from plugrad_rllib.warning import warn_older

MultiAgentRLModule = MultiRLModule


class OlderRLModule:
    """What one module and several were called with before Ray 2.35."""

    as_multi_agent = older_method("as_multi_agent", "as_multi_rl_module")


def adapt() -> None:
    """Make the older name of modules work."""
    add_names(RLModule, OlderRLModule)
    add_names(MultiRLModule, OlderRLModule)


class SingleAgentRLModuleSpec(RLModuleSpec):
    """Makes an `RLModuleSpec`."""

    def __new__(  # type: ignore[misc]
        cls,
        module_class: Any = None,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        model_config_dict: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> RLModuleSpec:
        """Args: as `RLModuleSpec`; `model_config_dict` is its `model_config`."""
        warn_older("SingleAgentRLModuleSpec(model_config_dict=...)", "RLModuleSpec(model_config=...)")
        refuse(
            [name for name, value in others.items() if value is not None], call="SingleAgentRLModuleSpec()"
        )
        return RLModuleSpec(
            module_class=module_class,
            observation_space=observation_space,
            action_space=action_space,
            model_config=others.pop("model_config", None) or model_config_dict or {},
            **{name: value for name, value in others.items() if value is not None},
        )


class MultiAgentRLModuleSpec(MultiRLModuleSpec):
    """Makes a `MultiRLModuleSpec`."""

    def __new__(  # type: ignore[misc]
        cls,
        marl_module_class: Any = None,
        module_specs: Mapping[ModuleID, RLModuleSpec] | None = None,
        **others: Any,
    ) -> MultiRLModuleSpec:
        """Args: `module_specs` is `rl_module_specs`; `marl_module_class` may be `MultiRLModule` or a base of it."""
        warn_older("MultiAgentRLModuleSpec(module_specs=...)", "MultiRLModuleSpec(rl_module_specs=...)")
        refuse([name for name, value in others.items() if value is not None], call="MultiAgentRLModuleSpec()")
        if not issubclass(MultiRLModule, marl_module_class or MultiRLModule):
            raise TypeError(
                f"marl_module_class={marl_module_class!r}: several modules are a MultiRLModule; what they share "
                "belongs into a Learner's compute_losses"
            )
        return MultiRLModuleSpec(rl_module_specs=module_specs or {})


class SampleBatch(dict[str, Any], Columns):
    """Columns of one module: a dict `{column: array}` that counts its rows.

    Attributes:
        count: rows.
    """

    CUR_OBS = Columns.OBS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        warn_older("SampleBatch", "a dict {column: array}")

    @property
    def count(self) -> int:
        """Rows."""
        return len(next(iter(self.values()), ()))

    def env_steps(self) -> int:
        """Rows, of which each is one environment step."""
        return self.count

    def as_multi_agent(self, module_id: ModuleID | None = None) -> MultiAgentBatch:
        """The same columns as a batch of one module."""
        warn_older("SampleBatch.as_multi_agent()", "MultiAgentBatch({module_id: columns})")
        return MultiAgentBatch({module_id or DEFAULT_MODULE_ID: self}, self.count)
