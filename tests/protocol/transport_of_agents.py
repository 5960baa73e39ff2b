"""A transport for agents of one's own: any object with ``ask`` is one."""

from tacit.protocol.messages import from_bytes


class Responding:
    """Asks each agent in turn; ``through_bytes``: every message is encoded and decoded."""

    def __init__(self, agents, through_bytes=False):
        self.agents, self.through_bytes = agents, through_bytes

    def ask(self, requests, deadline=None):
        if self.through_bytes:
            requests = {name: from_bytes(asked.to_bytes()) for name, asked in requests.items()}
        found = {agent.name: agent.respond(requests[agent.name]) for agent in self.agents}
        if self.through_bytes:
            found = {name: from_bytes(reply.to_bytes()) for name, reply in found.items()}
        return found
