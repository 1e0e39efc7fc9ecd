"""`python -m flare.engine`: see `flare.engine.process`."""

import sys

from flare.engine.early import begin

begin(sys.argv[1:])

from flare.engine.process import main  # noqa: E402  (the device starts beside these imports)

sys.exit(main())
