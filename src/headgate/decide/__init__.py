"""Decide what a batch means for each table: its next state, and a list of actions. Nothing is read or written here.

===================  ==============================================================================
``_decide``          the decision: ``decide(arrival, known, policy)``
``_case``            its inputs
``_states``          the states of a table, and the transitions
``_statements``      effects of DDL; ``_alter``: of ALTERs on columns
``_columns``         columns after the batch; ``_definitions``, ``_misfits``: of images
``_table_decision``  a table's course through the batch; ``_ledger_state``: what the ledger promises
``_plan``            the actions on a current table
``actions``          what they are, and why a replay is safe
===================  ==============================================================================
"""

from __future__ import annotations

from headgate.decide._case import Arrival, Policy, TableBefore
from headgate.decide._decide import LACKS_ROWS, Decision, decide, suspend
from headgate.decide._ledger_state import Divergence
from headgate.decide._misfits import RESERVED_ANYWHERE, hook_name, refiltered, rehooked
from headgate.decide._states import State
from headgate.decide._table_decision import StatementOutcome

__all__ = [
    "LACKS_ROWS",
    "RESERVED_ANYWHERE",
    "Arrival",
    "Decision",
    "Divergence",
    "Policy",
    "State",
    "StatementOutcome",
    "TableBefore",
    "decide",
    "hook_name",
    "refiltered",
    "rehooked",
    "suspend",
]
