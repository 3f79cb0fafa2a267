"""Check that environments with many agents keep their contract.

An error names the environment, the agent, the step, what was found and what was expected.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from plugrad.errors import EnvContractError
from plugrad.sampling.env_checker import describe

ANSWER = ("observations", "rewards", "terminateds", "truncateds", "infos")


def raise_contract_error(name: str, found: str, expected: str, **facts: Any) -> NoReturn:
    """Raise the error of an environment that breaks its contract.

    Args:
        name: of the environment.
        found: what it did, as the end of a sentence.
        expected: what it should do.
        **facts: such as `agent` and `step`.

    Raises:
        EnvContractError: always.
    """
    raise EnvContractError(
        f"environment {name}: {found}; expected: {expected}",
        env=name,
        found=found,
        expected=expected,
        **facts,
    )


def unpacked(name: str, method: str, answer: Any, length: int) -> tuple[Any, ...]:
    """The parts of an answer.

    Args:
        name: of the environment.
        method: such as "step()".
        answer: what it returned.
        length: the number of its parts.

    Returns:
        The answer.

    Raises:
        EnvContractError: it is no tuple of this length.
    """
    if not isinstance(answer, tuple | list) or len(answer) != length:
        parts = "(observations, infos)" if length == 2 else f"({', '.join(ANSWER)})"
        raise_contract_error(name, f"{method} returned {describe(answer)}", f"return {parts}")
    return tuple(answer)


def check_dicts(name: str, method: str, **parts: Any) -> None:
    """Refuse parts of an answer that are no dicts by agent.

    Args:
        name: of the environment.
        method: such as "step()".
        **parts: of its answer.

    Raises:
        EnvContractError: names the part.
    """
    for part, found in parts.items():
        if type(found) is not dict and not isinstance(found, Mapping):
            raise_contract_error(
                name, f"{method} returned {part} {describe(found)}", f"{part} are a dict by agent"
            )
