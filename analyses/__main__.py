"""`python -m analyses`: ask one question of one run, over all its checkpoints."""

import sys

from analyses.command import main

if __name__ == "__main__":
    sys.exit(main())
