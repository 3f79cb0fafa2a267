"""One optimizer for each network of a module: policy, critics, temperature."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.optimizers import make_optimizer
from plugrad.types import ModuleID


def register_optimizers(
    learner: LearnerProtocol, module_id: ModuleID, config: Config, networks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Register an optimizer for each network of a module: the parameters whose names begin with a prefix.

    Args:
        learner: whose modules are built.
        module_id: the module.
        config: the module's: optimizer, lr.
        networks: `{prefix: arguments of `register_optimizer`}`; a learning rate of None is `config.lr`.

    Raises:
        ConfigError: no parameter has the prefix, as may happen with a user's own module.
    """
    prefix = f"{module_id}/"
    params = {
        learner.get_param_ref(param).removeprefix(prefix): param
        for param in learner.get_parameters(learner.module[module_id])
    }
    for network, settings in networks.items():
        own = [param for name, param in params.items() if name.startswith(network)]
        if not own:
            raise ConfigError(
                f"module {module_id!r} has no parameters whose names begin with {network!r}; there are "
                f"{', '.join(params)}"
            )
        lr = settings["lr_or_lr_schedule"]
        learner.register_optimizer(
            module_id=module_id,
            optimizer=make_optimizer(config.optimizer),
            params=own,
            **{**settings, "lr_or_lr_schedule": config.lr if lr is None else lr},
        )
