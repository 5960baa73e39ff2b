"""STAND-IN."""
from __future__ import annotations
import os, time, json
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from tacit.federation.job import TOPIC, BYTES

class StudyController(Controller):
    def start_controller(self, fl_ctx): ...
    def stop_controller(self, fl_ctx): ...
    def process_result_of_unknown_task(self, *a, **k): ...
    def control_flow(self, abort_signal, fl_ctx):
        engine = fl_ctx.get_engine()
        names = [c.name for c in engine.get_clients()]
        out = open("/tmp/nv/controller.log", "a")
        n = 8 * 7840
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(len(names))
        t00 = time.time()
        for r in range(60):
            reqs = {}
            for name in names:
                s = Shareable(); s[BYTES] = os.urandom(n); reqs[name] = s
            t0 = time.time(); c0 = time.process_time()
            def one(name):
                with engine.new_context() as c:
                    return name, engine.send_aux_request([name], TOPIC, reqs[name], 60.0, c).get(name)
            ans = {k: v for k, v in pool.map(one, reqs) if v is not None}
            print(r, time.time() - t0, time.process_time() - c0, {k: (v.get_return_code(), len(v.get(BYTES, b""))) for k, v in ans.items()} if r < 8 or r > 55 else len(ans), file=out, flush=True)
            if len(ans) < len(names) or any(BYTES not in v for v in ans.values()): time.sleep(.5)
            if abort_signal.triggered: print("abort", file=out, flush=True); return
