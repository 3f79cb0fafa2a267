"""REDQ as a plugin of plugrad: SAC with an ensemble of critics, of which a target asks a few at random.

Source: Chen et al. 2021, "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model", arXiv:2101.05982.

`plugrad_redq.plugin` is what the entry point names; `REDQConfig` is for users.
"""

from plugrad_redq.config import REDQConfig

__all__ = ["REDQConfig"]
