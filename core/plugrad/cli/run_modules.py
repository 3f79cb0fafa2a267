"""The modules of a run when one of its checkpoints was saved; listeners may have added or removed some since."""

from typing import TypeVar

from plugrad.algorithm.modules import SETTINGS_OF_MODULES
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint import Checkpoint
from plugrad.config.module_specs import specs_of
from plugrad.config.serialize import decode_field
from plugrad.config.size_limits import check_size
from plugrad.learner.state.checkpoint import as_checkpoint_error, stored_bytes

AnyConfig = TypeVar("AnyConfig", bound=AlgorithmConfig)


def with_modules_of(config: AnyConfig, checkpoint: Checkpoint) -> AnyConfig:
    """A run's config with the modules that one of its checkpoints has.

    Args:
        config: of the run's `config.toml`.
        checkpoint: an algorithm's.

    Returns:
        The config with the checkpoint's settings of modules, which may name code as those of the file; nothing is
        looked up here. The config itself if it has the same modules, or none of them: then it is of another run.

    Raises:
        ConfigError: the checkpoint's settings are refused, or too large.
        CheckpointError: they hold something that does not fit.
    """
    with as_checkpoint_error(checkpoint):
        then, now = set(checkpoint.metadata.get("module_ids", ())), set(specs_of(config))
        if then == now or not then & now:
            return config
        saved, fields = checkpoint.metadata["config"], config.fields()
        taken = {name: saved[name] for name in (*SETTINGS_OF_MODULES, "agent_to_module") if name in saved}
        check_size(taken, stored_bytes=stored_bytes(checkpoint.state))
        return config.changed(
            **{name: decode_field(fields[name], each, none_words=False) for name, each in taken.items()}
        )
