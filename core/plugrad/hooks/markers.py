"""The two marks of the contract: `hookspec` for the specifications here, `hookimpl` for everybody's plugins."""

import pluggy

PROJECT = "plugrad"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
