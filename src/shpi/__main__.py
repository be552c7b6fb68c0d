"""``python -m shpi`` is the command ``shpi``."""

import sys

from shpi.cli import main

if __name__ == "__main__":
    sys.exit(main())
