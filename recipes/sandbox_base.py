"""Trains the sandbox's bundled base models: `--architecture clip` or `siglip`."""

from hfcomp.experiments.sandbox_base import main

if __name__ == "__main__":
    main()
