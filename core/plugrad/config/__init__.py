"""Settings: one frozen class, declared once, changed by fluent calls, written as JSON and TOML.

from plugrad import AlgorithmConfig
from plugrad.config import field

@dataclass(frozen=True, kw_only=True)
class MyConfig(AlgorithmConfig):
    lr: float = field(5e-5)  # another default; help and rules are inherited
    clip_param: float = field(0.2, minimum=0, help="how far the policy may move")
"""

from plugrad.config.config import RAY, Config
from plugrad.config.fields import SECTIONS, FieldInfo, field

__all__ = ["RAY", "SECTIONS", "Config", "FieldInfo", "field"]
