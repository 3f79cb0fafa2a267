"""Column names of a batch, as in RLlib 2.60 (`WEIGHTS` is ours)."""


class Columns:
    """String constants: `batch[module_id][Columns.OBS]`."""

    OBS = "obs"
    INFOS = "infos"
    ACTIONS = "actions"
    REWARDS = "rewards"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"
    NEXT_OBS = "new_obs"

    ACTIONS_FOR_ENV = "actions_for_env"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_PROB = "action_prob"
    ACTION_LOGP = "action_logp"

    EMBEDDINGS = "embeddings"
    STATE_IN = "state_in"
    NEXT_STATE_IN = "next_state_in"
    STATE_OUT = "state_out"
    NEXT_STATE_OUT = "next_state_out"
    SEQ_LENS = "seq_lens"
    LOSS_MASK = "loss_mask"

    EPS_ID = "eps_id"
    AGENT_ID = "agent_id"
    MODULE_ID = "module_id"
    T = "t"

    VF_PREDS = "vf_preds"
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    ADVANTAGES = "advantages"
    VALUE_TARGETS = "value_targets"
    RETURNS_TO_GO = "returns_to_go"

    WEIGHTS = "weights"
    """Importance of each row in a loss (prioritised replay); a mean weighs its rows by it."""
