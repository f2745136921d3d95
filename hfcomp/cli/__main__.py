"""`python -m hfcomp.cli`, which `accelerate launch -m` and `torchrun -m` start in several processes."""

from hfcomp.cli import main

if __name__ == "__main__":
    main()
