"""An engine that records all that a party hands to it, and a context for its calls."""

from contextlib import contextmanager

from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import make_reply

from tacit.transports.nvflare.controller import PING


class Recorder:
    """In place of NVFLARE's engine at a site: every call, with what it was given."""

    def __init__(self):
        self.calls, self.handler, self.refused = [], None, {}

    def __getattr__(self, name):
        def called(*args, **kwargs):
            self.calls.append((name, args, kwargs))

        return called

    def get_cell(self):
        return self

    def register_request_cb(self, channel, topic, cb):
        """Of the engine's network agent: what it may be asked here from now on."""
        self.refused[channel, topic] = cb(None)

    def register_aux_message_handler(self, topic, handler):
        self.calls.append(("register", (topic,), {}))
        self.handler = handler


class Context:
    """NVFLARE's context of a call; what is put into it is recorded."""

    def __init__(self, engine, workspace):
        self.engine, self.put = engine, []
        self.known = {FLContextKey.WORKSPACE_ROOT: str(workspace)}

    def get_engine(self):
        return self.engine

    def get_prop(self, key, default=None):
        return self.known.get(key, default)

    def set_prop(self, key, value, *args, **kwargs):
        self.put.append((key, value))

    def get_job_id(self):
        return "job"


class Post:
    """In place of NVFLARE's engine at the server: carries messages to executors by site."""

    def __init__(self, sites, alive=False):
        self.sites, self.sent, self.replies, self.alive = sites, [], [], alive

    @contextmanager
    def new_context(self):
        yield Context(self, "/")

    def send_aux_request(self, targets, topic, message, timeout, fl_ctx, optional):
        (site,) = targets
        if topic == PING and self.alive:  # which the engine answers, not a party
            return {site: make_reply(ReturnCode.OK)}
        self.sent.append((site, topic, message))
        reply = self.sites[site](topic, message, fl_ctx)
        if reply is None:
            return {}
        self.replies.append((site, reply))
        return {site: reply}
