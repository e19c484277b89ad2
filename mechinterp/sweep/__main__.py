"""`python -m mechinterp.sweep`: train every run of a sweep, see how far it is, get its table."""

if __name__ == "__main__":
    # Ahead of the other imports, which take a moment.
    from mechinterp.early_interrupt import leave_quietly

    leave_quietly("python -m mechinterp.sweep")

import sys

from mechinterp.sweep.command import main

if __name__ == "__main__":
    sys.exit(main())
