"""A model that follows a script, behind the interface of OpenAI's chat completions on a loopback port: agents can be driven through their tools without any model."""

import contextlib
import http.server
import json
import threading


class Call:
    """A turn in which the model calls a tool."""

    def __init__(self, tool, **arguments):
        self.tool, self.arguments = tool, arguments

    def message(self, number, heard):
        call = {"id": f"call-{number}", "type": "function", "function": {"name": self.tool, "arguments": json.dumps(self.arguments)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


class Say:
    """A turn in which the model answers; `text` may be a function of all that it has been told so far."""

    def __init__(self, text):
        self.text = text

    def message(self, number, heard):
        return {"role": "assistant", "content": self.text(heard) if callable(self.text) else self.text}


def told(messages):
    """What tools have answered, in order."""
    texts = []
    for message in messages:
        if message.get("role") == "tool":
            content = message["content"]
            texts.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return texts


@contextlib.contextmanager
def scripted(*turns):
    """Yields the address of the model. Turns are taken one a request; a request beyond the last is refused."""
    lock = threading.Lock()
    taken = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(taken)
                taken.append(body["messages"])
            if number >= len(turns):
                return self.reply(400, {"error": {"message": f"the script has {len(turns)} turns only"}})
            message = turns[number].message(number, body["messages"])
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self.reply(200, {"id": f"chat-{number}", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice], "usage": usage})

        def reply(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
