"""`python -m fedadmm` is `fedadmm`."""

from fedadmm.cli import main

if __name__ == "__main__":
    main()
