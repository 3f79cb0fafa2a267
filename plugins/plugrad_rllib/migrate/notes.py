"""What a rewriting could not do, and where it is explained."""

from dataclasses import dataclass, field

PAGE = "docs/from-rllib.md"


@dataclass(frozen=True, order=True)
class Note:
    """One line of a program that needs a look.

    Attributes:
        line: of the program as it was, from 1.
        text: what was found, and what to type.
        page: of plugrad's documentation.
    """

    line: int
    text: str
    page: str = PAGE


@dataclass
class Notes:
    """The notes on one program.

    Attributes:
        found: in the order of the rewritings.
    """

    found: set[Note] = field(default_factory=set)

    def add(self, line: int, text: str, page: str = PAGE) -> None:
        """Keep a note.

        Args:
            line: of the program as it was.
            text: what was found, and what to type.
            page: where it is explained.
        """
        self.found.add(Note(line, text, page))
