"""`python -m analyses`: ask one question of one run, over all its checkpoints."""

if __name__ == "__main__":
    # Ahead of the other imports, which take a moment.
    from mechinterp.early_interrupt import leave_quietly

    leave_quietly("python -m analyses")

import sys

from analyses.command import main

if __name__ == "__main__":
    sys.exit(main())
