"""Kinds of spaces, the layout of rows of their values, and whether rows of one space may be read for another.

`kinds` is the table of what is known of each kind. `register` adds a kind of your own:

    register(
        Angle,
        as_space=lambda space: Box(-1.0, 1.0, (2,)),
        to_array=lambda space, angle: (cos(angle), sin(angle)),
        from_array=lambda space, array: atan2(array[1], array[0]),
        arguments=lambda space: {},
        make=lambda data: Angle(),
    )
"""

from plugrad.spaces.fit import check_fit as check_fit
from plugrad.spaces.fit import row_order as row_order
from plugrad.spaces.kinds import array_space, register
from plugrad.spaces.layout import in_order_of as in_order_of

__all__ = ["array_space", "register"]
