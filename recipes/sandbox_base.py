"""Makes the sandbox's base models, which the package brings along: `--architecture clip` or `siglip`."""

from hfcomp.experiments.sandbox_base import main

if __name__ == "__main__":
    main()
