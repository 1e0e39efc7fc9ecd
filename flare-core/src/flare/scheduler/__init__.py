"""Request life cycle, admission and planning. Pure Python: no device, no clock, no randomness.

The same calls give the same plans. Time enters only as measured program costs.
"""

from flare.scheduler.listener import Listener
from flare.scheduler.plan import Capture, Lane, Plan, Transfer
from flare.scheduler.records import LaneRecord
from flare.scheduler.refusal import Refusal
from flare.scheduler.request import Phase, Request, RequestSpec
from flare.scheduler.scheduler import Scheduler
from flare.scheduler.settings import Settings
from flare.scheduler.speculation import ProposalSource
from flare.scheduler.tiers import Saving, Stored, Ticket, Tiers

__all__ = [
    "Capture",
    "Lane",
    "LaneRecord",
    "Listener",
    "Phase",
    "Plan",
    "ProposalSource",
    "Refusal",
    "Request",
    "RequestSpec",
    "Saving",
    "Scheduler",
    "Settings",
    "Stored",
    "Ticket",
    "Tiers",
    "Transfer",
]
