"""Decisions over HTTP, with exact propensities, rewards of any delay, and a loop that learns and rolls back.

    decide    one decision in microseconds
    store     durable records, each id answered once
    web       the API
    loop      compact, audit, fit, evaluate, gate, canary, promote or roll back
    page      is it learning?

`shpi serve FOLDER` starts it, `Client` talks to it. Needs the extra: ``pip install 'shpi[serve]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.serve.client import AsyncClient, Client, ServeError
    from shpi.serve.decide import CompiledPolicy, compile_policy
    from shpi.serve.service import Service
    from shpi.serve.settings import Settings
    from shpi.serve.web.app import App

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "CompiledPolicy",
    "ServeError",
    "Service",
    "Settings",
    "compile_policy",
]

# Imported when first used: a client needs neither a server nor numpy.
_HOME = {
    "App": "shpi.serve.web.app",
    "AsyncClient": "shpi.serve.client",
    "Client": "shpi.serve.client",
    "CompiledPolicy": "shpi.serve.decide",
    "ServeError": "shpi.serve.client",
    "Service": "shpi.serve.service",
    "Settings": "shpi.serve.settings",
    "compile_policy": "shpi.serve.decide",
}


__getattr__, __dir__ = lazy_names(__name__, _HOME)
