"""`python -m evenodds`: the command line, also under `accelerate launch` and `torchrun`."""

import sys

from evenodds.cli import main

if __name__ == "__main__":
    sys.exit(main())
