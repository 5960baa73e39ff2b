"""An engine for agents of one's own: any object with ``exchange`` is one."""

from tacit.protocol.messages import from_bytes


class Responding:
    """Asks each agent in turn; ``through_bytes``: every message is encoded and decoded."""

    def __init__(self, agents, through_bytes=False):
        self.agents, self.through_bytes = agents, through_bytes

    def exchange(self, broadcast, deadline=None):
        if self.through_bytes:
            broadcast = from_bytes(broadcast.to_bytes())
        found = {agent.name: agent.respond(broadcast) for agent in self.agents}
        if self.through_bytes:
            found = {name: from_bytes(reply.to_bytes()) for name, reply in found.items()}
        return found
