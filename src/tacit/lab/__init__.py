"""Adversaries, attacks, the paper's figures, demo problems. Only the command line imports it.

audit            empirical lower bounds on epsilon, beside what the privacy statement claims
reproduce        the paper's figures and claims
record_recovery  what an eavesdropper learns about the records of small agents
load_recovery    what an eavesdropper learns about the loads of a grid
demo_problems    one small real problem of each kind
"""
