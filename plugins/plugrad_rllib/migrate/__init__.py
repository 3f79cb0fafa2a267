"""`plugrad migrate`: programs for RLlib's new API stack, rewritten for plugrad.

- `names`: what RLlib's classes, functions and constants are called here.
- `settings`: where a setting of RLlib's config is set here.
- `imports`, `configs`, `environments`, `results`: one rewriting each, over the syntax tree of a file.
- `rewrite`: all of them, one after the other. `notes`: what they did and what they could not do.
- `weights`: the weights of RLlib's checkpoints, which `unpickle_child` reads in a process of its own.
- `command`: the command line.
"""
