"""`python -m transduce`."""

from transduce.cli.main import main

if __name__ == "__main__":
    main()
