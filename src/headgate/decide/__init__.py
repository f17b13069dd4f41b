"""Decide what a batch means for each table: its next state, and a list of actions. Nothing is read or written here.

===================  ==============================================================================
``_decide``          the decision: ``decide(arrival, before, policy)``
``_case``            its inputs
``states``           the states of a table, the kinds of events, and the transitions
``_course``          the events of a batch; state, warnings, outcomes and re-read request derived from them
``_statements``      events of DDL; ``_alter``: of ALTERs on columns
``_images``          events of images
``_columns``         columns after the batch; ``_definitions``, ``_misfits``: of images
``_ledger_state``    the table's state in the ledger, and what that promises
``_plan``            the actions on a current table
``actions``          what they are, and why a replay is safe
===================  ==============================================================================
"""

from __future__ import annotations

from headgate.decide._case import Arrival, Divergence, Policy, TableBefore
from headgate.decide._course import StatementOutcome
from headgate.decide._decide import Decision, decide, reread_reason, suspend
from headgate.decide._images import LACKS_CHANGES, LACKS_ROWS
from headgate.decide._misfits import RESERVED_ANYWHERE, changed_setting

__all__ = [
    "LACKS_CHANGES",
    "LACKS_ROWS",
    "RESERVED_ANYWHERE",
    "Arrival",
    "Decision",
    "Divergence",
    "Policy",
    "StatementOutcome",
    "TableBefore",
    "changed_setting",
    "decide",
    "reread_reason",
    "suspend",
]
