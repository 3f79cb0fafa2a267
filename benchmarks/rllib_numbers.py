"""Write RLlib's losses, gradients and weights for the cases of `rllib_cases.py` to `tests/data/rllib`.

Run it in the peers' environment, from the folder of the repository:

    peers/bin/python benchmarks/rllib_numbers.py

Each case becomes `<name>.npz`, arrays without pickle: `batch/<column>`, `weights/<number of updates>/<parameter>`,
and `gradients/<parameter>` of the first minibatch, clipped if the case clips. `cases.json` has the settings and RLlib's
scalar results, `advantages.npz` what its connectors make of three episodes, `defaults.json` the defaults of its
configs. Parameters have RLlib's names.
"""

# mypy: disable-error-code="import-not-found"

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from rllib_cases import BASE, CASES, MODEL, STEPS_PER_UPDATE, UPDATES, Array, Batch, Case, make_batch

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "rllib"
CONFIGS = {
    "PPO": PPOConfig,
    "DQN": DQNConfig,
    "BC": BCConfig,
    "MARWIL": MARWILConfig,
    "IMPALA": IMPALAConfig,
    "APPO": APPOConfig,
}
MODULE = "default_policy"
SETTINGS = (
    *("lr", "gamma", "grad_clip", "grad_clip_by", "train_batch_size", "minibatch_size", "num_epochs"),
    *(
        "shuffle_batch_per_epoch",
        "num_learners",
        "num_env_runners",
        "num_envs_per_env_runner",
        "evaluation_interval",
    ),
    *(
        "lambda",
        "clip_param",
        "entropy_coeff",
        "vf_loss_coeff",
        "vf_clip_param",
        "use_kl_loss",
        "kl_coeff",
        "kl_target",
    ),
    *("use_critic", "use_gae", "training_intensity", "num_steps_sampled_before_learning_starts", "epsilon"),
    *(
        "target_network_update_freq",
        "tau",
        "double_q",
        "dueling",
        "n_step",
        "td_error_loss_fn",
        "adam_epsilon",
    ),
    *("num_atoms", "noisy", "replay_buffer_config", "beta", "vf_coeff", "bc_logstd_coeff"),
    *("vtrace_clip_rho_threshold", "vtrace_clip_pg_rho_threshold", "target_worker_clipping"),
    *("circular_buffer_num_batches", "circular_buffer_iterations_per_batch"),
    *("moving_average_sqd_adv_norm_start", "moving_average_sqd_adv_norm_update_rate"),
)
NETWORKS = (
    *(
        "fcnet_hiddens",
        "fcnet_activation",
        "conv_filters",
        "conv_activation",
        "vf_share_layers",
        "free_log_std",
    ),
    *("use_lstm", "lstm_cell_size", "max_seq_len"),
)
NOT_TRAINED = ("_target_", "_old_")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    described = {name: write(name, case, seed) for seed, (name, case) in enumerate(CASES.items())}
    write_json("cases.json", {"ray": ray.__version__, "torch": torch.__version__, "cases": described})
    write_advantages()
    write_json("defaults.json", {name: defaults(make()) for name, make in CONFIGS.items()})


def write(name: str, case: Case, seed: int) -> dict[str, Any]:
    """Write the arrays of one case into a file. Returns its settings and scalar results."""
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    learner, batch = build(case, seed), make_batch(case, seed)
    hold_second_biases(learner)
    arrays = {f"batch/{column}": values for column, values in batch.items()}
    arrays |= labelled("weights/0", weights(learner))
    gradients = record_gradients(learner)
    results = {}
    for number in range(1, UPDATES + 1):
        timesteps = {"num_env_steps_sampled_lifetime": number * STEPS_PER_UPDATE}
        found = learner.update(batch=theirs(case, batch), timesteps=timesteps, **case.update)
        if number in (1, UPDATES):
            arrays |= labelled(f"weights/{number}", weights(learner))
            results[str(number)] = scalars(found[MODULE])
    arrays |= labelled("gradients", gradients[0])
    np.savez_compressed(FOLDER / f"{name}.npz", allow_pickle=False, **arrays)
    print(f"{name:30} loss {results['1']['total_loss']:.6f} {results[str(UPDATES)]['total_loss']:.6f}")
    training, model = {**BASE[case.algorithm], **case.training}, {**MODEL, **case.model}
    return {**asdict(case), "training": training, "model": model, "results": results}


def write_advantages() -> None:
    """Write three episodes (terminated, truncated, unfinished) and the advantages and mask that RLlib computes."""
    torch.manual_seed(99)
    learner, rng = build(CASES["ppo"], 99), np.random.default_rng(99)
    arrays: Batch = {"lengths": np.array([4, 6, 3]), "terminated": np.array([True, False, False])}
    arrays |= {"truncated": np.array([False, True, False]), "gamma": np.array(learner.config.gamma)}
    arrays |= {"lambda": np.array(learner.config.lambda_)} | labelled("weights", weights(learner))
    episodes = []
    for number, length in enumerate(arrays["lengths"]):
        columns = {
            "observations": rng.standard_normal((length + 1, 3)).astype(np.float32),
            "actions": rng.integers(2, size=length),
            "rewards": rng.standard_normal(length),
        }
        arrays |= labelled(f"episodes/{number}", columns)
        episodes.append(episode(columns, arrays["terminated"][number], arrays["truncated"][number]))
    made = learner._make_batch_if_necessary(training_data=TrainingData(episodes=episodes))[MODULE]
    for column in ("loss_mask", "advantages", "value_targets"):
        arrays[f"batch/{column}"] = np.asarray(made[column])
    np.savez_compressed(FOLDER / "advantages.npz", allow_pickle=False, **arrays)


def episode(columns: Batch, terminated: bool, truncated: bool) -> SingleAgentEpisode:
    length = len(columns["actions"])
    made = SingleAgentEpisode(
        observation_space=space(CASES["ppo"].observations),
        action_space=space(CASES["ppo"].actions),
        observations=list(columns["observations"]),
        actions=list(columns["actions"]),
        rewards=columns["rewards"].tolist(),
        terminated=bool(terminated),
        truncated=bool(truncated),
        extra_model_outputs={
            "action_logp": [np.float32(-0.7)] * length,
            "action_dist_inputs": [np.zeros(2, np.float32)] * length,
        },
        len_lookback_buffer=0,
    )
    made.to_numpy()
    return made


def build(case: Case, seed: int) -> Any:
    """Build RLlib's learner."""
    spaces = space(case.observations), space(case.actions)
    config = (
        CONFIGS[case.algorithm]()
        .environment(observation_space=spaces[0], action_space=spaces[1])
        .rl_module(model_config=DefaultModelConfig(**{**MODEL, **case.model}))
        .training(**{**BASE[case.algorithm], **case.training})
        .debugging(seed=seed)
    )
    return config.build_learner(spaces={MODULE: spaces})


def space(described: dict[str, Any]) -> gym.Space[Any]:
    if described["type"] == "Box":
        return gym.spaces.Box(-np.inf, np.inf, tuple(described["shape"]), np.float32)
    if described["type"] == "Discrete":
        return gym.spaces.Discrete(described["n"])
    return gym.spaces.MultiDiscrete(described["nvec"])


def theirs(case: Case, batch: Batch) -> MultiAgentBatch:
    """Make RLlib's form of the batch. Each update needs a new one, because a learner may change it."""
    columns: dict[str, Any] = {}
    for path, values in batch.items():
        *folders, last = path.split("/")
        inner = columns
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = values.copy()
    made = SampleBatch(columns, _zero_padded=bool(case.lengths))
    return MultiAgentBatch({MODULE: made}, env_steps=case.rows)


def parameters(learner: Any) -> dict[str, Any]:
    """Return the trained parameters by name. A layer that two networks share has its first name."""
    module = learner.module[MODULE].unwrapped()
    return {
        name: each
        for name, each in module.named_parameters()
        if not any(mark in name for mark in NOT_TRAINED)
    }


def weights(learner: Any) -> dict[str, Array]:
    return {name: each.detach().numpy().copy() for name, each in parameters(learner).items()}


def record_gradients(learner: Any) -> list[dict[str, Array]]:
    """Record the gradients that the learner applies from now on, one dict per minibatch."""
    seen: list[dict[str, Array]] = []
    names, apply = {id(each): name for name, each in parameters(learner).items()}, learner.apply_gradients

    def recording(gradients: dict[Any, Any]) -> None:
        seen.append(
            {names[id(ref)]: g.detach().numpy().copy() for ref, g in gradients.items() if g is not None}
        )
        apply(gradients)

    learner.apply_gradients = recording
    return seen


def hold_second_biases(learner: Any) -> None:
    """Keep the second biases of torch's LSTM at zero: Adam moves the sum of two biases twice as far as one."""
    for name, each in parameters(learner).items():
        if name.endswith("bias_hh_l0"):
            each.data.zero_()
            each.requires_grad_(False)


def labelled(folder: str, arrays: dict[str, Array]) -> Batch:
    return {f"{folder}/{name}": values for name, values in arrays.items()}


def scalars(results: Any) -> dict[str, float]:
    """Return the results that are one finite number."""
    found = {}
    for name, stats in results.items():
        value = np.asarray(stats.peek() if hasattr(stats, "peek") else stats)
        if value.size == 1 and value.dtype.kind in "fiub" and np.isfinite(value).all():
            found[name] = float(value.reshape(-1)[0])
    return found


def defaults(config: Any) -> dict[str, Any]:
    """Return the config's values of `SETTINGS`, by argument name, and its network settings."""
    settings = config.to_dict()
    found = {name: settings[name] for name in SETTINGS if name in settings}
    found["rollout_fragment_length"] = config.get_rollout_fragment_length()
    found["evaluation_explore"] = (config.evaluation_config or {}).get("explore", config.explore)
    model = asdict(DefaultModelConfig()) | dict(config._model_config_auto_includes)
    return json.loads(json.dumps({**found, "model_config": {name: model[name] for name in NETWORKS}}))  # type: ignore[no-any-return]


def write_json(name: str, document: Any) -> None:
    (FOLDER / name).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
