"""What server and agents say to one another, and who says it.

messages        what is said, as values and as bytes: one encoding for each
facts           what a server knows of an agent: sizes and bounds
participant     the only place where private data, a ledger and a message meet
agent           where private data meet a message, in every round; exact steps on what was released
masks           pairwise masks: whoever adds up learns the sum, and no part of it
summed          how a secure sum is run: a participant's part, and all participants as one
coordinator     one loop for every transport: plan, propose, rounds, finish
server          the server: names, couplings, settings and replies
release         sufficient statistics released once, paid for and kept, and what is solved from them
statement       what a run promises, in numbers and in words
disclosure      the table of what is public, covered, covered if released once, or private
result          what a run leaves behind, and its files
jupyter         a result and a statement as a notebook shows them
journal         where a run stands, in one file, and whether what continues it is the same
"""

from tacit.protocol.agent import Agent
from tacit.protocol.coordinator import Coordinator
from tacit.protocol.messages import Broadcast, Refusal, Reply
from tacit.protocol.participant import Participant
from tacit.protocol.release import Released
from tacit.protocol.result import Progress, Result
from tacit.protocol.server import Member, Server, Transport

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
