"""Weights of one backend in a run on another: targets follow, and statistics come along or a line names them."""

import warnings

import numpy as np
import pytest
from needs import backends_under_test
from partial_loads import KINDS, RAW, WITH_TARGETS, P, Parts, equal, trained

from plugrad import Algorithm, load_policy

WAYS = {
    "algorithm, component": lambda source, other, path: other.restore_from_path(path, component="rl_module"),
    "algorithm, component of one id": lambda source, other, path: other.restore_from_path(
        path, component=f"learner_group/learner/rl_module/{P}"
    ),
    "set_weights": lambda source, other, path: other.learner_group.set_weights(
        source.learner_group.get_weights()
    ),
    "set_state": lambda source, other, path: other.learner_group.set_state(
        source.learner_group.get_state("rl_module")
    ),
}
CARRY = ("algorithm, component", "algorithm, component of one id")
NEXT = {"torch": "jax", "jax": "tf2", "tf2": "torch"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`runs(kind, backend)`: a run, and its checkpoint."""
    made = {}

    def run_of(kind, backend):
        if (kind, backend) not in made:
            run = trained(kind, backend)
            made[kind, backend] = run, run.save_to_path(tmp_path_factory.mktemp(kind))
        return made[kind, backend]

    yield run_of
    for run, _ in made.values():
        run.stop()


def sides(backend):
    """From numpy to a backend and back; and from it to the next one, if that is under test too."""
    more = [(backend, NEXT[backend])] if NEXT[backend] in backends_under_test() else []
    return [("numpy", backend), (backend, "numpy"), *more]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_cross_with_their_targets_and_statistics(backend, runs, kind, way):
    for source_backend, other_backend in sides(backend):
        source, path = runs(kind, source_backend)
        other = trained(kind, other_backend, seed=9, num_steps=10)
        theirs, before = Parts(source), Parts(other)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            WAYS[way](source, other, path)
        said = [str(each.message) for each in caught if "statistics" in str(each.message)]
        found = Parts(other)
        assert equal(found.weights[P], theirs.weights[P])
        assert kind not in WITH_TARGETS or found.target_is_weights(P)
        if way in CARRY:
            assert said == []
        else:
            assert len(said) == 1
            assert equal(found.statistics[P], before.statistics[P])
            other.set_statistics({"observations": source.get_statistics()["observations"]})
            found = Parts(other)
        assert equal(found.statistics[P], theirs.statistics[P])
        assert acts_alike(found.acts[P], theirs.acts[P])
        assert not acts_alike(before.acts[P], theirs.acts[P])
        other.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_crosses_with_the_targets_that_it_had(backend, runs, kind):
    for source_backend, other_backend in sides(backend):
        source, path = runs(kind, source_backend)
        other = Algorithm.from_checkpoint(path, backend=other_backend, **environment_of(source))
        theirs, found = Parts(source), Parts(other)
        assert equal(found.weights[P], theirs.weights[P])
        assert equal(found.statistics[P], theirs.statistics[P])
        if kind in WITH_TARGETS:
            assert equal(found.targets[P], theirs.targets[P])
            assert not found.target_is_weights(P)
        assert acts_alike(found.acts[P], theirs.acts[P])
        other.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_file_acts_on_another_backend(backend, runs, kind, tmp_path):
    for source_backend, other_backend in sides(backend):
        source, path = runs(kind, source_backend)
        acts = Parts(source).acts[P]
        for saved in (source.get_policy().save(tmp_path / source_backend), path):
            policy = load_policy(saved, backend=other_backend)
            assert acts_alike(np.asarray(policy.predict(RAW)[0]), acts)


def environment_of(run):
    """What a checkpoint does not import."""
    return {"env": run.config.env, "env_config": run.config.env_config}


def acts_alike(one, other):
    """Equal choices but for one in a hundred, whose scores may be equal within rounding; forces within rounding."""
    if one.dtype.kind == "f":
        return bool(np.allclose(one, other, atol=1e-5))
    return bool(np.mean(one == other) >= 0.99)
