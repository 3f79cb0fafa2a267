"""`python -m plugrad`: the command `plugrad`, where its folder is not on the PATH."""

from plugrad.cli import main

if __name__ == "__main__":
    main(prog_name="plugrad")
