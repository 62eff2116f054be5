"""``python -m sluice.cli``."""

import sys

from . import main

sys.exit(main())
