"""`python -m rxsteer_sweep`."""

import sys

from rxsteer_sweep.cli import main

sys.exit(main())
