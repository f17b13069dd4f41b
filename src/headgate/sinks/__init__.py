"""One batch of the stream, from its decision to its row in the ledger.

=====================  =====================================================================================
``_writer``            the order: read, decide for all tables, write them, send messages, history, ledger
``_report``            what a batch did, and its progress, for display
``_planner_messages``  messages to the planner: requests for reading tables again, and results
``_forgotten``         tables that a signal removes from the ledger
=====================  =====================================================================================

``headgate.decide`` has the decisions, ``headgate.apply`` writes tables, ``headgate.kafka`` sends messages.
"""

from __future__ import annotations

from headgate.sinks._forgotten import forget_tables
from headgate.sinks._planner_messages import PlannerMessages
from headgate.sinks._report import BatchReport, Progress, log_signals
from headgate.sinks._writer import BatchWriter

__all__ = ["BatchReport", "BatchWriter", "PlannerMessages", "Progress", "forget_tables", "log_signals"]
