"""Signals: what users ask of a running pipeline, in Debezium's names and JSON, whatever way they come."""

from __future__ import annotations

from headgate.control._signals import SIGNAL_TYPES, Condition, Outbox, Signal, parse_signal, signal_file, submit

__all__ = ["SIGNAL_TYPES", "Condition", "Outbox", "Signal", "parse_signal", "signal_file", "submit"]
