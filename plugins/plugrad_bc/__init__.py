"""Behaviour cloning as a plugin of plugrad: MARWIL (`plugrad_offline.marwil`) with `beta=0`.

`plugin` is what the entry point names; `BCConfig` is for users.
"""

from plugrad_bc import plugin
from plugrad_bc.config import BCConfig
from plugrad_offline import MARWILConfig

__all__ = ["BCConfig", "MARWILConfig", "plugin"]
