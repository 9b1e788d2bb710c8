"""A sandbox with everything in it that must outlive a pause, and the look whether it did."""

from inside import Box, await_that

FILES = """
import hashlib, os
def write_files(folder, count):
    os.makedirs(folder, exist_ok=True)
    for n in range(count):
        with open(f"{folder}/{n:04}", "wb") as f:
            f.write(os.urandom(1 + n * 7 % 4096))
def digest_of_files(folder):
    digest = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb") as f:
            digest.update(name.encode() + hashlib.sha256(f.read()).digest())
    return digest.hexdigest()
"""

MEMORY = """
import threading, time
blob = bytearray(os.urandom(%d << 20))
held = open("/tmp/held", "w+"); held.write("kept by an open file")
os.unlink("/tmp/held")
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.02)
threading.Thread(target=tick, daemon=True).start()
counter = 0
"""

LOOK = "counter += 1; held.seek(0); print(counter, hashlib.sha256(blob).hexdigest(), digest_of_files('/tmp/many'), held.read(), sep='|')"

BEAT = "n=0; while :; do n=$((n + 1)); echo $n; echo $n >> /tmp/beat; sleep 0.05; done"


class LivedIn:
    """Counts along what the counter inside must be; `look` may be called with another Box of the same sandbox."""

    def __init__(self, box, megabytes=100, files=1000):
        self.counter = 0
        box.prints(FILES + MEMORY % megabytes + f"write_files('/tmp/many', {files})")
        self.memory = box.prints("print(hashlib.sha256(blob).hexdigest())")
        self.files = box.prints("print(digest_of_files('/tmp/many'))")
        box.prints("shell_variable=kept-in-bash; cd /var", language="bash")
        self.beat = box.start(command=BEAT)["process_id"]
        self.terminal = box.terminal(command="bash --norc -i")
        self.terminal.type("kept=in-the-terminal; n=0; echo set-$kept\n")
        self.terminal.until("set-in-the-terminal")
        self.typed, self.beats, self.ticks = 0, 0, 0
        self.look(box)

    def look(self, box):
        self.counter += 1
        counter, memory, files, held = box.prints(LOOK).split("|")
        assert (int(counter), memory, files, held) == (self.counter, self.memory, self.files, "kept by an open file")
        assert box.prints("echo $shell_variable $PWD", language="bash") == "kept-in-bash /var"
        self.beats = await_that(lambda: (n := self.beats_of(box)) > self.beats and n, "another beat of the background process")
        self.ticks = await_that(lambda: (n := int(box.prints("print(ticks)"))) > self.ticks and n, "another tick of the thread")

    def beats_of(self, box):
        """How often it beat; no beat is missing or doubled, neither in its file nor in its output."""
        for lines in (box.get("/tmp/beat").splitlines(), box.output(self.beat).splitlines()):
            complete = lines[:-1]
            assert complete == [b"%d" % n for n in range(1, len(complete) + 1)], lines[-20:]
        return len(complete)

    def type(self, terminal=None):
        """What is typed into the terminal is answered by the shell that was there from the first."""
        terminal = terminal or self.terminal
        self.typed += 1
        terminal.type("n=$((n + 1)); echo shown-$n-$kept\n")
        terminal.until(f"shown-{self.typed}-in-the-terminal")

    def terminal_again(self, box):
        """On a new connection, after the server was away."""
        self.terminal.socket.close()
        self.terminal = box.terminal(process_id=self.terminal.process)
        self.type()



def lived_in(client, megabytes=100, files=1000, **fields):
    """A new sandbox and what is in it. The caller deletes it."""
    made = client.call("POST", "/v1/sandboxes", {"template": "python", "limits": {"memory_bytes": 512 << 20, "cpu": 0}, **fields})
    box = Box(client, made["sandbox_id"])
    return box, LivedIn(box, megabytes, files)
