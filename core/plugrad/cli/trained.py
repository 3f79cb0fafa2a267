"""What a command that judges a policy opens: the algorithm of a run directory, or of a checkpoint alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from plugrad.cli.run_directory import RunDirectory, saying_what_a_run_needs
from plugrad.cli.trust import Trust

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm


NOBODY = Trust()


def open_trained(run: Path, backend: str | None, trust: Trust = NOBODY) -> tuple["Algorithm", Path]:
    """The algorithm, restored, and the checkpoint that it was restored from.

    Args:
        run: a run directory, of which the best checkpoint is taken, or a checkpoint. The settings of a run may name
            code as far as `trust` allows; those of a checkpoint may not.
        backend: another than the one that trained.
        trust: what the user vouches for; an environment that was typed takes the place of the run's.

    Raises:
        ConfigError: the run's settings name code that nobody vouches for.
    """
    from plugrad.algorithm import Algorithm  # late: --help needs no algorithm
    from plugrad.learner import checkpointing
    from plugrad.learner.expected_weights import expecting_weights

    if not (run / "config.toml").is_file():
        return Algorithm.from_checkpoint(str(run), backend=backend, env=trust.env), run
    directory = RunDirectory(run)
    path = directory.checkpoint()
    state = checkpointing.load(path, kind="algorithm").state
    with saying_what_a_run_needs(run):
        config = directory.read_config(checkpointing.stored_bytes(state))
        # Judging a policy is nothing for listeners, and no work for many processes.
        config = config.plugins().learners(num_learners=0).env_runners(num_env_runners=0)
        trust.check(config, directory.config_file)
        config = config if trust.env is None else config.environment(trust.env)
        config = config if backend is None else config.framework(backend)
        with expecting_weights(state.get("learner", {})):
            algorithm = config.build_algo()
    algorithm.restore_from_path(str(path))
    return algorithm, path
