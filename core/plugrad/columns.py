"""The names of a batch's columns."""


class Columns:
    """The names of a batch's columns, as in RLlib 2.60 (the masks, `N_STEP` and `WEIGHTS` are plugrad's own).

        batch[module_id][Columns.OBS]

    Shapes below are those of rows; a stateful module has sequences [B, T, ...] in place of [B, ...]. Names marked
    "RLlib's" are kept for connectors and losses written for RLlib; plugrad itself does not read or write these columns.
    """

    OBS = "obs"
    """Observations [B, ...], of the module's observation space."""
    INFOS = "infos"
    """The info dicts of the environment (RLlib's)."""
    ACTIONS = "actions"
    """Actions [B, ...], of the module's action space, counted from 0."""
    REWARDS = "rewards"
    """Rewards, float32 [B]."""
    TERMINATEDS = "terminateds"
    """Whether the episode ended in this step, bool [B]."""
    TRUNCATEDS = "truncateds"
    """Whether the episode was cut off after this step, bool [B]."""
    NEXT_OBS = "new_obs"
    """Observations after the step [B, ...]."""
    ACTION_MASK = "action_mask"
    """The actions that are allowed in OBS, bool [B, choices]: see `plugrad.action_masks`."""
    NEXT_ACTION_MASK = "new_action_mask"
    """The actions that are allowed in NEXT_OBS, bool [B, choices]; not read where the episode terminated."""

    ENV_REWARDS = "env_rewards"
    """Rewards as the environment gave them, float32 [B]; present where REWARDS are clipped or normalised."""
    LIFE_LOST = "life_lost"
    """Whether the step lost a life but not the game, bool [B]. TERMINATEDS is True there, although the game went on."""

    ACTIONS_FOR_ENV = "actions_for_env"
    """Actions as the environment takes them, such as clipped ones (RLlib's)."""
    ACTION_DIST_INPUTS = "action_dist_inputs"
    """Outputs of the policy head, float32 [B, inputs]: the logits of the action distribution."""
    ACTION_PROB = "action_prob"
    """Probability of the action when it was drawn, float32 [B] (RLlib's)."""
    ACTION_LOGP = "action_logp"
    """Log-probability of the action when it was drawn, in nats, float32 [B]."""

    EMBEDDINGS = "embeddings"
    """Features of an encoder, float32 [B, features] (RLlib's)."""
    STATE_IN = "state_in"
    """The recurrent state before the first step of each sequence: `{name: [B, ...]}`."""
    NEXT_STATE_IN = "next_state_in"
    """STATE_IN for NEXT_OBS (RLlib's)."""
    STATE_OUT = "state_out"
    """The recurrent state after the last step of each sequence: `{name: [B, ...]}`."""
    NEXT_STATE_OUT = "next_state_out"
    """STATE_OUT for NEXT_OBS (RLlib's)."""
    SEQ_LENS = "seq_lens"
    """The number of real steps of each sequence, int [B]; the others are padding."""
    LOSS_MASK = "loss_mask"
    """Whether a row [B] or step [B, T] counts in the loss, or how much: see `plugrad.losses.agg_mask`."""

    EPS_ID = "eps_id"
    """The episode's id (RLlib's)."""
    AGENT_ID = "agent_id"
    """The agent's id (RLlib's)."""
    MODULE_ID = "module_id"
    """The module's id (RLlib's)."""
    T = "t"
    """The number of the step in its episode (RLlib's)."""

    VF_PREDS = "vf_preds"
    """State values of the value network, float32 [B]."""
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    """Bootstrapped state values, float32 [B] (RLlib's)."""
    ADVANTAGES = "advantages"
    """Advantages, such as those of generalized advantage estimation, float32 [B]."""
    VALUE_TARGETS = "value_targets"
    """What the value network is trained towards, float32 [B]."""
    RETURNS_TO_GO = "returns_to_go"
    """The discounted sum of the rewards from each step to the end of its episode, float32 [B]."""

    WEIGHTS = "weights"
    """The weight of each row in a loss, float32 [B], as prioritized replay gives it."""
    N_STEP = "n_step"
    """How many rewards REWARDS sums in each row, float32 [B], as `plugrad.replay` counts; 1 without this column."""
