"""`python -m flare.engine`: see `flare.engine.process`."""

import sys

from flare.engine.early_driver import initialise_early

# Before the imports of the engine, which take as long.
if len(sys.argv) > 1:
    initialise_early(sys.argv[1])

from flare.engine.process import main

sys.exit(main())
