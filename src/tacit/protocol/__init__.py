"""What server and agents say to one another, and who says it.

wire            messages as bytes: one encoding for each
messages        broadcast, reply and refusal
facts           what a server knows of an agent: sizes and bounds
participant     the only place where private data, a ledger and a message meet
agent           where private data meet a message, in every round: one in, one reply out
coordinator     one loop for every transport: plan, propose, rounds, finish
server          the server: names, couplings, settings and replies
release         one noisy reading of an agent's data, paid for once and kept
released        a problem of public copies, which costs nothing more to solve
public_agent    an agent of a released problem: exact steps on a public copy
exact_server    the server of a released problem: acceleration, and an end at a tolerance
keys            where noise comes from, and keys of seeded noise
statement       what a run promises, in numbers and in words
disclosure      the table of what is public, covered, covered if released once, or private
result          what a run leaves behind, and its files
jupyter         a result and a statement as a notebook shows them
journal         where a run stands, in one file
data_digest     whether a continued run has the same problem
"""

from tacit.protocol.agent import Agent
from tacit.protocol.coordinator import Coordinator, Transport
from tacit.protocol.messages import Broadcast, Refusal, Reply
from tacit.protocol.participant import Participant
from tacit.protocol.released import Released
from tacit.protocol.result import Progress, Result
from tacit.protocol.server import Member, Server

__all__ = [
    "Agent",
    "Broadcast",
    "Coordinator",
    "Member",
    "Participant",
    "Progress",
    "Refusal",
    "Released",
    "Reply",
    "Result",
    "Server",
    "Transport",
]
