"""How a return is printed."""


def return_words(value: float) -> str:
    """A return with one decimal, a small one with three digits: "487.3", "9.61", "0.0123"."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def range_words(low: float, high: float) -> str:
    """The lowest and the highest of some returns: "from 9.61 to 487.3"."""
    return f"from {return_words(low)} to {return_words(high)}"
