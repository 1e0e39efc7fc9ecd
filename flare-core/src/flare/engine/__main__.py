"""`python -m flare.engine`: see `flare.engine.process`."""

import sys

from flare.engine.process import main

sys.exit(main())
