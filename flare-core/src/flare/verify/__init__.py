"""Verification: is a core whole, is it for this machine, and does it still say what it said when it was made?

Part of serving: needs the core file and its device, neither torch (beyond the CPU device) nor anything of
preparation. Preparation records the oracle with the same functions.
"""

from flare.verify.core import NAMES, Verification, load_verified
from flare.verify.report import Check, Outcome, Report

__all__ = ["NAMES", "Check", "Outcome", "Report", "Verification", "load_verified"]
