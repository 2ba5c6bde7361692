"""`python -m ella`."""

import sys

from ella.cli import main

sys.exit(main())
