"""Another learning rate on resume (`hyperparameters="config"`) keeps what training adapted: KL and MARWIL's average."""

import tempfile

import numpy as np
from case import P, check, small

from plugrad import SingleAgentEpisode
from plugrad_offline import MARWILConfig
from plugrad_ppo import PPOConfig

KINDS = {
    "kl_coeff": (PPOConfig, {"use_kl_loss": True, "kl_target": 1e-6, "num_epochs": 2}),
    "moving_average_sqd_adv_norm_start": (MARWILConfig, {"moving_average_sqd_adv_norm_update_rate": 0.2}),
}
rng = np.random.default_rng(0)


def episode(learner):
    obs = rng.normal(size=(13, 3)).astype(np.float32)
    outputs = learner.compute_actions(obs[:-1])
    return SingleAgentEpisode(
        observations=obs,
        actions=outputs.pop("actions"),
        rewards=rng.normal(size=12).astype(np.float32),
        terminated=True,
        extra_model_outputs=outputs,
    )


for name, (kind, settings) in KINDS.items():

    def learner_with(lr, kind=kind, settings=settings):
        return small(kind, lr=lr, **settings).build_learner()

    def value(learner, name=name):
        return float(np.asarray(learner.get_state("coefficients")["coefficients"][P][name]))

    learner = learner_with(0.01)
    configured = getattr(learner.config, name)
    for _ in range(6):
        learner.update(episodes=[episode(learner)])
    adapted = value(learner)
    check(adapted != configured, f"{name} did not adapt: {adapted}")
    with tempfile.TemporaryDirectory() as path:
        learner.save_to_path(path)
        for lr in (0.01, 0.003):
            resumed = learner_with(lr)
            resumed.restore_from_path(path, hyperparameters="config")
            check(value(resumed) == adapted, f"{name}: {value(resumed)} after the load, {adapted} before it")
            used = resumed._get_optimizer_lr(resumed.get_optimizer(P))
            check(abs(used - lr) < 1e-8, f"the learning rate is {used}, not {lr}")
