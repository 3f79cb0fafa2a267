"""Template: a listener for plugrad. It begins as a line in the log for every update, with the loss of each module.

It is loaded when `--plugin template`, `config.plugins("template")` or PLUGRAD_PLUGINS names it. docs/hooks.md of
plugrad lists the hooks that it may hear; it may wrap any other one, with `@hookimpl(wrapper=True)`.
"""

import logging
from collections.abc import Mapping
from typing import Any

from plugrad import hookimpl

log = logging.getLogger(__name__)


class Template:
    """Reports one number of every update.

    Args:
        key: which, of those that `Learner.update` returns for a module.
    """

    def __init__(self, key: str = "total_loss") -> None:
        self.key = key

    @hookimpl
    def update_ended(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Called after every update, outside of any compiled program, with plain floats and numpy arrays.

        It takes as many of the hook's arguments as it needs, by name: `learner` is the other one.
        """
        for module_id, numbers in results.items():
            if self.key in numbers:
                log.info("%s of %s: %.6g", self.key, module_id, numbers[self.key])


listener = Template()
