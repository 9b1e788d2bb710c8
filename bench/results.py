"""Rich results: a plot in the template data-science, in turns with ipykernel on the host; and what listing files costs."""

import base64
import json
import time

from load import Session, percentile, summary, wait_idle

SETUP = "import matplotlib.pyplot as plt"
PLOT = "plt.plot(range(100), label='l')\nplt.title('t')\nplt.legend()\nplt.show()"


class Results:
    def __init__(self, bench, atoll, gateway):
        self.bench, self.atoll, self.gateway = bench, atoll, gateway

    def all(self):
        print("Rich results", flush=True)
        self.plots()
        self.files()

    def plots(self):
        client = self.atoll.client(timeout=1800)  # the image may be made now
        if all(template["id"] != "data-science" for template in client.call("GET", "/v1/templates")["items"]):
            print("  this server has no template data-science: no plots", flush=True)
            return
        made = client.call("POST", "/v1/sandboxes", {"template": "data-science", "limits": {"cpu": 0, "memory_bytes": 1 << 30}})
        session, kernel = Session(self.atoll.url, self.atoll.key, made["sandbox_id"]), self.gateway.session()
        session.exec(SETUP, language="python", timeout_seconds=120)
        kernel.run("%matplotlib inline\n" + SETUP)
        prepared, ours, theirs = session.exec_request(PLOT, language="python"), [], []
        for n in range(self.bench.n(25) + 1):
            wait_idle(0.5)
            begin = time.monotonic()
            answer = json.loads(session.send(prepared))
            took = time.monotonic() - begin
            if base64.b64decode(answer["results"][0]["data"]["image/png"])[:4] != b"\x89PNG":
                raise RuntimeError(answer)
            begin = time.monotonic()
            kernel.run(PLOT)
            if n:  # the first one loads fonts on both sides
                ours.append(took)
                theirs.append(time.monotonic() - begin)
        self.bench.row("baseline: a plot by Kernel Gateway, without a sandbox, p50", percentile(theirs, 50) * 1e3, "ms", all=summary(theirs))
        self.bench.row("(m) a plot as picture and chart, warm, CPU limit lifted, p50", percentile(ours, 50) * 1e3, "ms", all=summary(ours))
        self.bench.row("(m) / Kernel Gateway", percentile(ours, 50) / percentile(theirs, 50), "×")
        session.close()
        kernel.close()
        client.close()

    def files(self):
        session = Session(self.atoll.url, self.atoll.key)
        session.exec("x = 0", language="python")
        for count in (10, 10000):
            session.exec(f"import os\nfor i in range({count}):\n    os.makedirs(f'd{{i % 100}}', exist_ok=True); open(f'd{{i % 100}}/{{i}}', 'w').close()", language="python", timeout_seconds=120)
            plain = session.exec_request("x+=1; print(x)", language="python")
            asked = session.exec_request("x+=1; print(x)", language="python", list_files=True)
            without, listed = [], []
            for _ in range(self.bench.n(25)):
                wait_idle(0.5)
                for request, times in ((plain, without), (asked, listed)):
                    begin = time.monotonic()
                    session.send(request)
                    times.append(time.monotonic() - begin)
            self.bench.row(f"(n) list_files with {count:,} files, beyond a run without, p50", (percentile(listed, 50) - percentile(without, 50)) * 1e3, "ms", all=summary(listed))
        session.close()
