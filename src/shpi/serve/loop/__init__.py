"""The loop around the decisions: compact, audit, fit, evaluate, gate, canary, promote or roll back.

    control    which policy serves whom, and the history of changes
    compact    events to the canonical log
    monitor    rewards per user of each arm, compared by confidence sequences
    canary     when a stage is over, and when to roll back
    cycle      the steps of one round, each of which can be resumed
    forget     remove the data of one user

Each of them works on the folder of a service, whether a server runs on it or not.
"""
