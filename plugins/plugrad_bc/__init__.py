"""Behaviour cloning, with MARWIL's advantage weighting (Wang et al. 2018) as an option, as a plugin of plugrad.

`plugin` is what the entry point names; `BCConfig` and `MARWILConfig` are for users.
"""

from plugrad_bc import plugin
from plugrad_bc.config import BCConfig, MARWILConfig

__all__ = ["BCConfig", "MARWILConfig", "plugin"]
