"""IMPALA and APPO: losses against a loop written from the papers, sequences, the circular buffer, and CartPole."""

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import digest, quick_mode
from vtrace_learners import ACTIONS, CONFIGS, LENGTHS, MODELS, WIDTH, config, episodes_for

from plugrad import DEFAULT_MODULE_ID, Columns, SingleAgentEpisode
from plugrad.algorithm import Algorithm
from plugrad.batch import piece_lengths
from plugrad.episodes import MultiAgentEpisode
from plugrad.returns import lambda_returns
from plugrad_impala import APPOConfig, VTraceSequences
from plugrad_impala.connectors import BOOTSTRAP_OBS, packed_lengths
from plugrad_ppo import KL_KEY

P = DEFAULT_MODULE_ID

# --- the losses, sequence by sequence ---


def outputs(learner: Any, episode: Any, start: int, stop: int) -> tuple[Any, np.ndarray]:
    """The policy in steps `start` to `stop`, and the values there and behind, in numpy."""
    module = learner.module[P]
    batch: dict[str, Any] = {Columns.OBS: episode.observations[None, start : stop + 1].astype(float)}
    if states := module.get_initial_state():
        recorded = episode.extra_model_outputs
        batch[Columns.STATE_IN] = {
            name: recorded[f"{Columns.STATE_IN}/{name}"][None, start].astype(float) for name in states
        }
    out = module.forward_train(batch)
    policy = module.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS][0, :-1])
    return policy, out[Columns.VF_PREDS][0]


def vtrace_by_loop(rewards, values, rhos, settings) -> tuple[np.ndarray, np.ndarray]:
    """Equation 1 with the products of the traces written out, and section 4.2; `values[-1]` is behind the last step."""
    rho = np.minimum(rhos, settings.vtrace_clip_rho_threshold)
    c = settings.lambda_ * np.minimum(rhos, 1.0)
    gamma, steps = settings.gamma, len(rewards)
    deltas = rho * (rewards + gamma * values[1:] - values[:-1])
    vs = [
        values[s] + sum(gamma ** (t - s) * prod(c[s:t]) * deltas[t] for t in range(s, steps))
        for s in range(steps)
    ]
    following = np.array([*vs[1:], values[-1]])
    pg_rho = np.minimum(rhos, settings.vtrace_clip_pg_rho_threshold)
    return np.array(vs), pg_rho * (rewards + gamma * following - values[:-1])


def expected_results(settings: Any, present: Any, target: Any, episodes: list[Any]) -> dict[str, float]:
    """Means over the steps that count, each sequence alone."""
    rows: dict[str, list[float]] = {}
    for episode in episodes:
        cuts = np.cumsum([0, *piece_lengths(len(episode), WIDTH)]).tolist()
        for start, stop in pairwise(cuts):
            policy, values = outputs(present, episode, start, stop)
            old_policy = outputs(target, episode, start, stop)[0]
            actions = episode.actions[start:stop]
            logp, old_logp = policy.logp(actions), old_policy.logp(actions)
            mu_logp = episode.extra_model_outputs[Columns.ACTION_LOGP][start:stop].astype(float)
            if episode.terminated and stop == len(episode):
                values = np.append(values[:-1], 0.0)
            is_appo = isinstance(settings, APPOConfig)
            rhos = np.exp((old_logp if is_appo else logp) - mu_logp)
            vs, advantages = vtrace_by_loop(episode.rewards[start:stop], values, rhos, settings)
            if is_appo:
                ratio = np.minimum(np.exp(mu_logp - old_logp), settings.target_worker_clipping)
                ratio = ratio * np.exp(logp - mu_logp)
                clipped = np.clip(ratio, 1 - settings.clip_param, 1 + settings.clip_param)
                gain = np.minimum(ratio * advantages, clipped * advantages)
            else:
                gain = logp * advantages
            found = {
                "policy_loss": -gain,
                "vf_loss": 0.5 * (values[:-1] - vs) ** 2,
                "entropy": policy.entropy(),
                "mean_rho": rhos,
                **({KL_KEY: old_policy.kl(policy)} if is_appo else {}),
            }
            counts = episode.extra_model_outputs.get(Columns.LOSS_MASK, np.ones(len(episode)))[start:stop] > 0
            for name, each in found.items():
                rows.setdefault(name, []).extend(np.ravel(each)[counts].tolist())
    return {name: float(np.mean(each)) for name, each in rows.items()}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.cross_product
def test_losses_are_those_of_the_loop_over_sequences(backend, kind, actions, model):
    thresholds = {"vtrace_clip_rho_threshold": 1.3, "vtrace_clip_pg_rho_threshold": 0.7}
    more = {"use_kl_loss": True, "kl_coeff": 0.6, "target_network_update_freq": 9.0} if kind == "appo" else {}
    made = config(kind, backend, actions=actions, model=model, **thresholds, **more)
    learner, present, target = (
        made.build_learner(),
        *(made.framework("numpy").build_learner() for _ in range(2)),
    )
    learner.update(episodes=episodes_for(learner, seed=1))  # from here on the target network is behind
    present.set_weights(learner.get_weights())
    episodes = episodes_for(learner, seed=2)
    expected = expected_results(made, present, target, episodes)
    kl_coeff = float(learner.coefficients[P]["kl_coeff"].numpy()) if kind == "appo" else 0.0
    found = learner.update(episodes=episodes)[P]
    loss = expected["policy_loss"] + 0.4 * expected["vf_loss"] - 0.03 * expected["entropy"]
    expected["total_loss"] = loss + kl_coeff * expected.get(KL_KEY, 0.0)
    for name, each in expected.items():
        assert found[name] == pytest.approx(each, rel=2e-4, abs=2e-5), name


@pytest.mark.parametrize("model", ["", "lstm"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_targets_follow_from_steps_that_do_not_count(backend, kind, model):
    made = config(kind, backend, model=model, **({"use_kl_loss": True} if kind == "appo" else {}))
    learner, present = made.build_learner(), made.framework("numpy").build_learner()
    present.set_weights(learner.get_weights())
    episodes = episodes_for(learner)
    for episode in episodes:
        counts = np.arange(len(episode)) % 3 > 0
        episode.extra_model_outputs[Columns.LOSS_MASK] = counts if episode is episodes[0] else ~counts
    assert not episodes[0].extra_model_outputs[Columns.LOSS_MASK][0]
    assert not episodes[3].extra_model_outputs[Columns.LOSS_MASK][-1]  # where it terminates
    expected = expected_results(made, present, present, episodes)
    found = learner.update(episodes=episodes)[P]
    for name, each in expected.items():
        assert found[name] == pytest.approx(each, rel=2e-4, abs=2e-5), name


@pytest.mark.parametrize("mode", ["auto", pytest.param("complete_update", marks=pytest.mark.long)])
@pytest.mark.parametrize("model", ["", "lstm"])
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.cross_product
def test_compiled_updates_in_minibatches_are_those_of_numpy(backend, kind, model, mode):
    cut = {"minibatch_size": 9, "shuffle_batch_per_epoch": True}
    made = config(kind, backend, model=model, compile=mode, **cut)
    learner, reference = made.build_learner(), made.framework("numpy", compile="none").build_learner()
    for n in range(2):
        episodes = episodes_for(learner, LENGTHS[n : n + 4], seed=n)
        losses = [each.update(episodes=episodes)[P]["total_loss"] for each in (learner, reference)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-4)
    wanted = reference.get_weights()[P]
    for name, weights in learner.get_weights()[P].items():
        np.testing.assert_allclose(weights, wanted[name], rtol=0, atol=2e-5, err_msg=name)


# --- by hand ---


def test_on_policy_value_targets_are_lambda_returns():
    learner = config("impala", "numpy").build_learner()
    (episode,) = episodes_for(learner, ((WIDTH, False),))
    policy, values = outputs(learner, episode, 0, WIDTH)
    episode.extra_model_outputs[Columns.ACTION_LOGP][:] = policy.logp(episode.actions)
    targets = lambda_returns(episode.rewards, values[1:], 0.9, 0.8)
    found = learner.update(episodes=[episode])[P]
    assert found["mean_rho"] == pytest.approx(1.0, abs=1e-6)
    assert found["vf_loss"] == pytest.approx(0.5 * np.mean((values[:-1] - targets) ** 2), rel=1e-5)


def test_large_ratios_are_clipped_each_by_its_threshold():
    thresholds = {"vtrace_clip_rho_threshold": 0.5, "vtrace_clip_pg_rho_threshold": 3.0}
    learner = config("impala", "numpy", **thresholds).build_learner()
    (episode,) = episodes_for(learner, ((1, True),))
    policy, (value, _) = outputs(learner, episode, 0, 1)
    logp = float(policy.logp(episode.actions)[0])
    episode.extra_model_outputs[Columns.ACTION_LOGP][:] = logp - np.log(4.0)  # a ratio of 4
    found, error = learner.update(episodes=[episode])[P], float(episode.rewards[0]) - value
    assert found["mean_rho"] == pytest.approx(4.0, rel=1e-5)
    assert found["vf_loss"] == pytest.approx(0.5 * (0.5 * error) ** 2, rel=1e-5)
    assert found["policy_loss"] == pytest.approx(-logp * 3.0 * error, rel=1e-5)


@pytest.mark.parametrize("model", ["", "gru"])
def test_two_modules_learn_as_each_alone(model):
    made = config("impala", "numpy", model=model).multi_agent(policies=["left", "right"])
    both = made.build_learner()
    parts = {
        name: episodes_for(both, LENGTHS[n : n + 2], seed=n, module_id=name)
        for n, name in enumerate(("left", "right"))
    }
    together = [
        MultiAgentEpisode(agent_episodes=dict(zip(parts, each, strict=True)))
        for each in zip(*parts.values(), strict=False)
    ]
    found = both.update(episodes=together)
    for name, own in parts.items():
        alone = made.build_learner().update(episodes=own[: len(together)])
        assert found[name]["total_loss"] == pytest.approx(alone[name]["total_loss"], rel=1e-6)


# --- sequences ---

EPISODES = st.lists(st.tuples(st.integers(1, 11), st.booleans()), min_size=1, max_size=8)


@given(ended=EPISODES, longest=st.integers(1, 7))
def test_packed_sequences_end_where_a_value_is_needed(ended, longest):
    episodes = [
        SingleAgentEpisode(
            observations=np.zeros(n + 1), actions=np.zeros(n), rewards=np.zeros(n), terminated=terminated
        )
        for n, terminated in ended
    ]
    lengths = packed_lengths(episodes, longest)
    ends, boundaries = np.cumsum(lengths), np.cumsum([n for n, _ in ended])
    assert all(1 <= length <= longest for length in lengths)
    assert ends[-1] == boundaries[-1]
    for (_, terminated), boundary in zip(ended, boundaries, strict=True):
        assert terminated or boundary in ends
    pieces = [each for n, _ in ended for each in piece_lengths(n, longest)]
    assert len(lengths) <= len(pieces)
    assert set(ends) <= set(np.cumsum(pieces))


@pytest.mark.parametrize("model", MODELS)
def test_behind_each_sequence_is_the_observation_that_its_last_step_led_to(model):
    learner = config("impala", "numpy", model=model).build_learner()
    episodes = episodes_for(learner, ((3, True), (1, True), (6, False), (2, True)))
    columns = learner.run_connectors(episodes)[P]
    obs = [each.observations for each in episodes]
    lasts = [obs[0][3], obs[1][1], obs[2][4], obs[2][6], obs[3][2]]
    lengths = [3, 1, 4, 2, 2]
    if not model:  # the first two are one sequence
        lasts, lengths = lasts[1:], [4, 4, 2, 2]
    assert columns[Columns.SEQ_LENS].tolist() == lengths
    for n, (last, length) in enumerate(zip(lasts, lengths, strict=True)):
        seen = columns[BOOTSTRAP_OBS][n]
        np.testing.assert_array_equal(seen[length if model else 0], last)
        if model:
            np.testing.assert_array_equal(seen[:length], columns[Columns.OBS][n, :length])
            assert not seen[length + 1 :].any()


def test_a_batch_of_the_callers_own_stays_as_it_is():
    learner = config("impala", "numpy").build_learner()
    batch = {P: {Columns.OBS: np.zeros((2, 3))}}
    assert VTraceSequences(WIDTH)(learner=learner, batch=batch, episodes=[]) == batch


# --- APPO's buffer and target network ---


def cartpole(kind: str, backend: str, **training: Any) -> Any:
    made = CONFIGS[kind]().framework(backend, compile=quick_mode(backend)).environment("CartPole-v1")
    made = made.env_runners(num_envs_per_env_runner=2, rollout_fragment_length=None).rl_module(
        model_config={"fcnet_hiddens": [2]}
    )
    return made.training(**{"train_batch_size": 32, **training}).debugging(seed=4)


BUFFER = {"circular_buffer_num_batches": 3, "circular_buffer_iterations_per_batch": 3}


def test_appo_learns_from_each_step_and_from_each_batch_a_few_times():
    algorithm = cartpole("appo", "numpy", train_batch_size=16, **BUFFER).build_algo()
    updates = []
    for _ in range(6):
        results = algorithm.train()
        updates.append(results["learners/__all_modules__/weights_seq_no"])
    algorithm.stop()
    assert updates[:3] == [1, 2, 5]  # the buffer is full
    assert {after - before for before, after in pairwise(updates)} <= {1, 3}
    assert results["num_env_steps_trained_lifetime"] == results["num_env_steps_sampled_lifetime"] == 6 * 16
    assert results["env_runners/weights_staleness_max"] > 0


def test_the_target_network_moves_after_so_many_trained_steps():
    learner = config("appo", "numpy", train_batch_size=24, target_network_update_freq=0.25).build_learner()
    assert learner.config.steps_between_target_updates == 0.25 * 4 * 2 * 24
    moved = []
    for n in range(5):  # of 24 steps each
        learner.update(episodes=episodes_for(learner, seed=n))
        target = np.concatenate([np.ravel(each) for each in learner.targets[P].get_state().values()])
        present = np.concatenate([np.ravel(each) for each in learner.get_weights()[P].values()])
        moved.append(bool(np.array_equal(target, present)))
    assert moved == [False, True, False, True, False]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_resumed_run_equals_one_that_was_never_stopped(backend, kind, tmp_path):
    more = {**BUFFER, "target_network_update_freq": 0.5} if kind == "appo" else {}
    whole = cartpole(kind, backend, **more).build_algo()
    for _ in range(3):  # APPO's buffer is full
        whole.train()
    whole.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path)
    for _ in range(2):
        results = [each.train() for each in (whole, resumed)]
    found = [digest(each.learner_group.get_weights()) for each in (whole, resumed)]
    for each in (whole, resumed):
        each.stop()
    assert found[0] == found[1]
    for name in (
        "env_runners/weights_staleness_max",
        "num_env_steps_trained_lifetime",
        "learners/default_policy/mean_rho",
    ):
        assert results[0][name] == results[1][name], name


# --- CartPole ---


@pytest.mark.long
@pytest.mark.parametrize("runners", [0, 2])
@pytest.mark.parametrize("kind", CONFIGS)
def test_cartpole_is_solved_by_the_defaults(backend, kind, runners):
    made = CONFIGS[kind]().environment("CartPole-v1").framework(backend)
    algorithm = made.env_runners(num_env_runners=runners).debugging(seed=0).build_algo()
    reached, rhos = 0.0, []
    try:
        while reached < 450:
            results = algorithm.train()
            reached = results.get("env_runners/episode_return_mean") or 0.0
            rhos.append(results.get("learners/default_policy/mean_rho", 1.0))
            assert results["num_env_steps_sampled_lifetime"] < 600_000, f"a mean return of only {reached}"
    finally:
        algorithm.stop()
    if runners:
        assert max(abs(rho - 1.0) for rho in rhos) > 1e-3


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_no_gradient_flows_through_the_targets_of_v_trace(kind, backend):
    """The last bias of the values moves by the mean error alone: with `vs` as constants, d/db of (v - vs)^2 / 2."""
    settings = {"optimizer": {"type": "sgd"}, "grad_clip": None, "num_epochs": 1}
    learner = config(kind, backend, **settings).build_learner()
    reference = config(kind, "numpy", **settings).build_learner()
    reference.set_weights(learner.get_weights())
    episodes, errors = episodes_for(learner), []
    for episode in episodes:
        cuts = np.cumsum([0, *piece_lengths(len(episode), WIDTH)]).tolist()
        for start, stop in pairwise(cuts):
            policy, values = outputs(reference, episode, start, stop)
            if episode.terminated and stop == len(episode):
                values = np.append(values[:-1], 0.0)
            mu_logp = episode.extra_model_outputs[Columns.ACTION_LOGP][start:stop].astype(float)
            rhos = np.exp(policy.logp(episode.actions[start:stop]) - mu_logp)
            vs, _ = vtrace_by_loop(episode.rewards[start:stop], values, rhos, learner.config)
            errors += list(values[:-1] - vs)
    before = learner.get_weights()[P]["vf.out.bias"]
    learner.update(episodes=episodes)
    moved = learner.get_weights()[P]["vf.out.bias"] - before
    expected = -learner.config.lr * learner.config.vf_loss_coeff * np.mean(errors)
    assert abs(expected) > 1e-4
    np.testing.assert_allclose(moved, expected, rtol=1e-4)
