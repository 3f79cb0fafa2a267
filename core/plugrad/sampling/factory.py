"""Make the env runner of a config."""

from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.recurrent_state import InitialState, PolicyFunction
from plugrad.sampling.settings import SamplingConfig
from plugrad.types import DEFAULT_MODULE_ID, ModuleID


def make_env_runner(
    *,
    config: SamplingConfig,
    act: PolicyFunction,
    initial_state: InitialState | None = None,
    seed: int | None = None,
    normalizer: ObservationNormalizer | None = None,
    module_id: ModuleID = DEFAULT_MODULE_ID,
) -> EnvRunner:
    """Make the env runner of a config.

    Args:
        config: an `AlgorithmConfig`, or whatever has the settings of `SamplingConfig`.
        act: the policy; see `EnvRunner`.
        initial_state: of a recurrent policy; see `EnvRunner`.
        seed: seeds the environments; None: from the system.
        normalizer: statistics of observations to use in place of new ones.
        module_id: the module that acts.

    Returns:
        An env runner.

    Raises:
        ConfigError: the environment cannot be made.
    """
    return EnvRunner(
        config=config,
        act=act,
        initial_state=initial_state,
        seed=seed,
        normalizer=normalizer,
        module_id=module_id,
    )
