"""What of the protocols is supported: one list, which the documentation repeats and the tests send.

`answer` says what an answer is, `features` is the list. What is not in it is an unknown field: ignored, and
named in the log.
"""

from flare.server.support.answer import BYPASSED, REFUSED, SERVED, Answer, Feature, Protocol
from flare.server.support.features import FEATURES

__all__ = ["BYPASSED", "FEATURES", "REFUSED", "SERVED", "Answer", "Feature", "Protocol"]
