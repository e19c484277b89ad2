"""`python -m mechinterp.sweep`: train every run of a sweep, see how far it is, get its table."""

import sys

from mechinterp.sweep.command import main

if __name__ == "__main__":
    sys.exit(main())
