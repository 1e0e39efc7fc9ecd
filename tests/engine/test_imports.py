"""The rooms that serve requests load without a model library."""

import subprocess
import sys

ROOMS = "flare.scheduler, flare.engine.process, flare.engine.client, flare.engine.loading, flare.device.sim"
BARRED = ("torch", "transformers", "flare_components", "flare.prepare", "flare.recipes")


def test_serving_rooms_import_no_model_library():
    script = f"import sys, {ROOMS}; print([name for name in {BARRED!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr
