"""One optimizer for each network of a module: policy, critics, temperature."""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.optimizers import make_optimizer
from plugrad.types import ModuleID


def register_optimizers(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: Config,
    networks: Mapping[str, Mapping[str, Any]],
    constants: Collection[str] = (),
) -> None:
    """Register an optimizer for each network of a module: those whose names begin with its word.

    Args:
        learner: whose modules are built.
        module_id: the module.
        config: the module's: optimizer, lr.
        networks: `{word: arguments of `register_optimizer`}`; a learning rate of None is `config.lr`.
        constants: words of parameters that keep their values, if the module has them.

    Raises:
        ConfigError: no parameter has the word, as may happen with a user's own module; or a network has no
            learning rate.
    """
    prefix = f"{module_id}/"
    params = {
        learner.get_param_ref(param).removeprefix(prefix): param
        for param in learner.get_parameters(learner.module[module_id])
    }
    for network, settings in networks.items():
        own = [param for name, param in params.items() if is_of(name, network)]
        if not own:
            raise ConfigError(
                f"module {module_id!r} ({learner.module[module_id].class_name}) has no parameters whose names begin "
                f"with the word {network!r}; there are {', '.join(params)}. A model that is called with observations "
                "alone has no values of actions: docs/module-contracts.md has the names, inputs and outputs that each "
                "algorithm asks of a module",
                module_id=module_id,
            )
        lr = settings["lr_or_lr_schedule"]
        if lr is None and config.lr is None:
            raise ConfigError(
                f"lr=None, and {settings['optimizer_name']}_lr is None, too: set lr, or each part's own learning rate",
                field="lr",
                module_id=module_id,
            )
        learner.register_optimizer(
            module_id=module_id,
            optimizer=make_optimizer(config.optimizer),
            params=own,
            **{**settings, "lr_or_lr_schedule": config.lr if lr is None else lr},
        )
    if frozen := [name for name in params if any(is_of(name, each) for each in constants)]:
        learner.freeze_parameters(module_id, frozen)


def target_names(learner: LearnerProtocol, module_id: ModuleID, word: str) -> list[str]:
    """The names of a module's parameters that begin with a word, for `get_target_parameters`.

    Args:
        learner: whose modules are built.
        module_id: the module.
        word: such as "qf".

    Returns:
        Names in `module.get_state()`.
    """
    return [name for name in learner.module[module_id].get_state() if is_of(name, word)]


def is_of(parameter: str, word: str) -> bool:
    """Whether a parameter's name begins with a word: `pi.0.weight` and `pi_encoder.weight` with "pi", `pixels.0` not.

    Args:
        parameter: its name in `module.get_state()`.
        word: such as "pi", "qf" or "log_alpha".

    Returns:
        True if it does.
    """
    return parameter.startswith(word) and not parameter[len(word) : len(word) + 1].isalpha()
