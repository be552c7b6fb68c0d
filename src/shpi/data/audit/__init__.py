"""The audit of a log: facts, findings with a severity and a remedy, a terminal report and JSON."""

from shpi.data.audit.report import AuditReport, audit

__all__ = ["AuditReport", "audit"]
