"""An offline run reads observations as they were recorded: weights that saw normalised ones do not fit."""

import pytest
from partial_loads import P, equal, trained

from plugrad.errors import RestoreMismatchError
from plugrad.offline import save_episodes
from plugrad_offline import MARWILConfig


@pytest.mark.filterwarnings("ignore:.*was written with other plugins")
@pytest.mark.parametrize("normalized", [False, True])
def test_an_offline_run_refuses_weights_that_saw_normalised_numbers_and_takes_others(normalized, tmp_path):
    source = trained("ppo", normalized=normalized)
    paths = [source.save_to_path(tmp_path / "run")]
    paths += [source.learner_group.save_to_path(tmp_path / "learners")]
    data = source.record(2)
    spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
    save_episodes(tmp_path / "episodes", data.episodes, **spaces)
    config = (
        MARWILConfig().framework("numpy").offline_data(input_=str(tmp_path / "episodes")).debugging(seed=9)
    )
    config = config.environment(source.config.env, env_config=source.config.env_config)
    other = config.rl_module(model_config={"fcnet_hiddens": [4]}).training(minibatch_size=None).build_algo()
    theirs, before = (run.learner_group.get_weights()[P] for run in (source, other))
    for path in paths:
        if normalized:
            with pytest.raises(RestoreMismatchError, match=r"with normalize_observations, .* without it"):
                other.restore_from_path(path, component="rl_module")
            assert equal(other.learner_group.get_weights()[P], before)
        else:
            other.restore_from_path(path, component="rl_module")
            found = other.learner_group.get_weights()[P]
            assert equal(found, theirs)
            assert not equal(found, before)
    source.stop()
    other.stop()
