"""STAND-IN."""
from nvflare.apis.executor import Executor
from nvflare.apis.event_type import EventType
from nvflare.apis.shareable import Shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from tacit.federation.job import TOPIC, BYTES

class PartyExecutor(Executor):
    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self.answer)
    def answer(self, topic, request, fl_ctx):
        reply = make_reply(ReturnCode.OK); reply[BYTES] = request[BYTES]; return reply
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        return make_reply(ReturnCode.TASK_UNKNOWN)
