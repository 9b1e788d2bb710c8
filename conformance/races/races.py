#!/usr/bin/env python3
"""Races of the life cycle: rounds of calls at the same time against one sandbox each, from a seed, on an installation of their own.

A round makes a sandbox with a counter in its memory, and lets two or three operations loose on it. Whatever wins, afterwards the sandbox
is in one legal state, the counter is what was executed, an end has its reason, no call has failed with an error that is none of its
documented ones, and nothing is left on the machine. Rounds run some at a time, as a batch; a batch follows from its seed alone.

    races.py                       as in CI: one batch of a new seed, and those of the fixed seeds, as many as fit into 4 minutes
    races.py --rounds 2000         of new seeds, each of which is told if it goes wrong
    races.py --seed N              that batch again; --repeat 20: twenty times
"""

import argparse
import itertools
import random
import sys
import threading
import time

from harness import Host, Outcome, broken, delete_all
from installation import ApiError, installation

KILLS = ("server kill -9", "engine kill -9")
OPERATIONS = ("create", "exec", "pause", "resume", "fork", "snapshot", "extend", "kill", "delete", *KILLS)
PAIRS = list(itertools.combinations_with_replacement(OPERATIONS, 2))
# Steps of the engine at which it can be made to die (node/internal/failpoint).
FAIL_POINTS = [f"{operation}.{step}" for operation, steps in {
    "pause": "recorded quiesced stopped written verified synced renamed saved freed", "resume": "recorded prepared restored connected saved cleaned",
    "restore": "recorded prepared restored connected saved", "snapshot": "recorded written verified synced renamed sealed", "delete": "begun ended freed removed"}.items() for step in steps.split()]
# As many as keep two CPUs busy while some of them wait; a kill takes seconds to come back from, which they then share.
ROUNDS_AT_ONCE = 8
# What CI runs beside one batch of a new seed: all pairs of operations come up in them.
FIXED_SEEDS = range(1, 60)
# What a call may be refused with when it meets another: it came too late, or it has to be asked again.
LEGAL = {"sandbox_ended", "conflict", "sandbox_paused", "snapshot_not_found"}


class Wrong(Exception):
    pass


class Round:
    """One sandbox and what is done to it."""

    def __init__(self, seed, pair):
        self.chooser = random.Random(seed)
        self.name = f"race-{seed % 10**12}-{self.chooser.randrange(10**6)}"
        self.paused, self.auto = self.chooser.random() < 0.3, self.chooser.random() < 0.7
        self.operations = list(pair)
        if self.chooser.random() < 0.3:
            self.operations.append(self.chooser.choice([name for name in OPERATIONS if name not in KILLS]))
        self.delays = [self.chooser.choice((0, 0, self.chooser.uniform(0, 0.02), self.chooser.uniform(0, 0.12))) for _ in self.operations]
        self.outcomes = [None] * len(self.operations)
        self.told = []

    def say(self, text):
        self.told.append(text)

    def set_up(self, host):
        self.host, self.client = host, host.client()
        self.id = self.client.call("POST", "/v1/sandboxes", {"template": "python", "name": self.name, "auto_resume": self.auto})["sandbox_id"]
        self.path = f"/v1/sandboxes/{self.id}"
        self.run("n = 0")
        if self.paused:
            self.client.call("POST", f"{self.path}:pause")
        self.say(f"{self.id} {'paused' if self.paused else 'running'}, auto_resume {self.auto}")

    def run(self, code, client=None):
        return (client or self.client).exec(code, sandbox_id=self.id, timeout_seconds=60)

    def act(self, at, begin):
        """Operation number `at`, its delay after `begin`."""
        name, client = self.operations[at], self.host.client()
        time.sleep(max(0, begin + self.delays[at] - time.monotonic()))
        seconds = random.Random(f"{self.name}{at}").choice((3600, None, 1))
        calls = {
            "create": lambda: client.call("POST", "/v1/sandboxes", {"template": "python", "name": self.name, "if_exists": "get"}),
            "exec": lambda: self.run("n += 1; print(n)", client),
            "pause": lambda: client.call("POST", f"{self.path}:pause"),
            "resume": lambda: client.call("POST", f"{self.path}:resume", {}),
            "fork": lambda: client.call("POST", f"{self.path}:fork", {"count": 2})["items"],
            "snapshot": lambda: client.call("POST", f"{self.path}/snapshots", {"kind": "memory"}),
            "extend": lambda: client.call("POST", f"{self.path}:extend", {"seconds": seconds}),
            "kill": lambda: self.host.kill_sentry(self.id),
            "delete": lambda: client.delete(self.id),
        }
        try:
            self.outcomes[at] = Outcome(calls[name])
        except Exception as e:
            self.outcomes[at] = e
        client.close()

    def wake(self, client):
        try:
            if client.sandbox(self.id)["state"] == "paused":
                client.call("POST", f"{self.path}:resume", {})
        except Exception as e:
            if not broken(e) and not isinstance(e, ApiError):
                raise
        client.close()

    def of(self, name):
        return [outcome for operation, outcome in zip(self.operations, self.outcomes) if operation == name and outcome is not None]

    def require(self, condition, what):
        if not condition:
            raise Wrong(what)

    def check(self, killed):
        for operation, delay, outcome in zip(self.operations, self.delays, self.outcomes):
            if operation in KILLS:
                continue
            self.say(f"{operation} after {delay * 1e3:.0f} ms -> {outcome}")
        for operation, outcome in zip(self.operations, self.outcomes):
            if operation in KILLS:
                continue
            self.require(isinstance(outcome, Outcome), f"{operation} came to nothing: {outcome!r}")
            self.require(not outcome.lost or killed, f"{operation}: the connection broke, and nobody was killed")
            self.require(not outcome.error or outcome.code in LEGAL, f"{operation} was refused with what is no answer to a race")
            self.require(outcome.code != "sandbox_paused" or not self.auto, f"{operation} found it paused, and it resumes by itself")
            if outcome.code == "sandbox_ended":
                self.require({"delete", "kill"} & set(self.operations), f"{operation} found it ended, and nobody ended it")
        self.counted()
        view = self.settled()
        self.say(f"settled: {view['state']} {view.get('end_reason') or ''} {view.get('end_detail') or ''}")
        if view["state"] != "ended" and not self.lives():
            # Killed, and it was not known yet.
            view = self.settled()
        if view["state"] == "ended":
            self.ended(view)
        self.children(view)
        self.runs()

    def counted(self):
        """How often the counter must, and may, have been raised."""
        self.least = self.most = 0
        for outcome in self.of("exec"):
            if outcome.error:
                continue
            self.most += 1
            if outcome.value:
                reason = outcome.value["exit_reason"]
                if reason == "completed":
                    self.least += 1
                else:
                    # It has a reason, and it is one that this round can have.
                    self.require(reason in ("sandbox_ended", "lost", "kernel_died") and outcome.value["detail"] and {"delete", "kill"} & set(self.operations), f"exec ended as {reason}: {outcome.value['detail']}")

    def settled(self):
        end = time.monotonic() + 60
        while True:
            view = self.client.sandbox(self.id)
            if view["state"] in ("running", "paused", "ended"):
                return view
            self.require(time.monotonic() < end, f"stuck in {view['state']}")
            time.sleep(0.02)

    def ended(self, view):
        reason = view["end_reason"]
        legal = ({"deleted"} if "delete" in self.operations else set()) | ({"crashed", "lost", "out_of_memory"} if "kill" in self.operations else set())
        self.require(reason in legal and view["end_detail"] is not None and view["ended_at"], f"ended as {reason} ({view['end_detail']}), legal: {sorted(legal)}")
        try:
            self.client.call("POST", f"{self.path}:resume", {})
            raise Wrong("what has ended was resumed")
        except ApiError as e:
            self.require(e.code == "sandbox_ended", f"what has ended says {e}")

    def lives(self):
        """False where it turns out that it was killed."""
        self.require(not any(outcome.value for outcome in self.of("delete")), "deleted, and it lives")
        end = time.monotonic() + 60
        while True:
            try:
                # Its time must not run out while it is looked at.
                self.client.call("POST", f"{self.path}:extend", {"seconds": None})
                if self.client.sandbox(self.id)["state"] != "running":
                    self.client.call("POST", f"{self.path}:resume", {})
                answer = self.run("print(n)")
                break
            except ApiError as e:
                if e.code == "sandbox_ended" and "kill" in self.operations:
                    return False
                # What was under way when its time ran out.
                self.require(not self.auto and e.code == "sandbox_paused" or e.code == "conflict", f"it lives and answers {e}")
                self.require(time.monotonic() < end, f"it never answers: {e}")
        self.say(f"counter: {answer['output']} of {self.least} to {self.most}")
        if answer["exit_reason"] == "sandbox_ended" and "kill" in self.operations:
            return False
        self.require(answer["exit_reason"] == "completed", f"it lives, but {answer['exit_reason']}: {answer['detail']}")
        self.require(self.least <= int(answer["output"]) <= self.most, f"counter {answer['output']}, {self.least} to {self.most} were executed")
        return True

    def children(self, view):
        """What was forked, made from the snapshot or created has the state of a moment of this one."""
        made = [item for outcome in self.of("fork") if outcome.value for item in outcome.value]
        self.require(all(len(outcome.value) == 2 for outcome in self.of("fork") if outcome.value), "not all forks are there")
        for outcome in self.of("snapshot"):
            if outcome.value:
                self.require(outcome.value["state"] == "ready", f"snapshot is {outcome.value['state']}")
                made.append(self.client.call("POST", "/v1/sandboxes", {"snapshot": outcome.value["snapshot_id"]}))
        for item in made:
            answer = self.client.exec("print(n)", sandbox_id=item["sandbox_id"], timeout_seconds=60)
            self.require(answer["exit_reason"] == "completed" and 0 <= int(answer["output"]) <= self.most, f"{item['sandbox_id']} prints {answer['output']} ({answer['exit_reason']}), at most {self.most} were executed")
        for outcome in self.of("create"):
            if outcome.value and outcome.value["sandbox_id"] != self.id:
                self.require(view["state"] == "ended", "its name was given away while it lived")

    def runs(self):
        runs = self.client.call("GET", f"{self.path}/runs")["items"]
        open_runs = [run for run in runs if not run["ended_at"]]
        state = self.client.sandbox(self.id)["state"]
        self.require(len(open_runs) == (1 if state == "running" else 0), f"{state}, and {len(open_runs)} of {len(runs)} runs are open")
        self.require(all(run["end_reason"] for run in runs if run["ended_at"]), "a run ended without a reason")

    def clean_up(self):
        begin = time.monotonic()
        self.client.delete(self.id)
        took = time.monotonic() - begin
        self.say(f"deleted in {took * 1e3:.0f} ms")
        self.require(self.client.sandbox(self.id)["state"] == "ended", "it lives after its deletion")
        self.client.close()


class Batch:
    """Rounds that run at the same time. All of it follows from the seed."""

    def __init__(self, seed, pairs=None):
        self.seed, chooser = seed, random.Random(seed)
        if pairs is None:
            with_kill = chooser.random() < 0.15
            choice = [pair for pair in PAIRS if (set(pair) & set(KILLS) != set()) == with_kill]
            pairs = [chooser.choice(choice) for _ in range(ROUNDS_AT_ONCE)]
        self.rounds = [Round(chooser.randrange(1 << 60), pair) for pair in pairs]
        kills = {name for pair in pairs for name in pair if name in KILLS}
        # Where one round's kill is another's too, each gets it once: after a time, or at a step of the engine.
        self.kills = [(name, chooser.uniform(0, 0.15), chooser.choice(FAIL_POINTS) if name == KILLS[1] and chooser.random() < 0.5 else None) for name in sorted(kills)]

    def run(self, host):
        """Messages of the rounds that went wrong."""
        failures = []
        each(self.rounds, lambda one: one.set_up(host), failures)
        if not failures:
            for _, _, point in self.kills:
                if point:
                    host.set_fail_point(point)
            begin = time.monotonic() + 0.005
            threads = [threading.Thread(target=one.act, args=(at, begin)) for one in self.rounds for at, name in enumerate(one.operations) if name not in KILLS]
            threads += [threading.Thread(target=self.kill, args=(host, begin, *kill)) for kill in self.kills]
            for thread in threads:
                thread.start()
            end = time.monotonic() + 180
            for thread in threads:
                thread.join(3)
            while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
                # What runs stands still while it is paused, and its caller waits until somebody resumes it.
                for one in self.rounds:
                    if any(name == "exec" and outcome is None for name, outcome in zip(one.operations, one.outcomes)):
                        one.wake(host.client())
                time.sleep(0.5)
            stuck = [str(one.operations) for one in self.rounds if any(o is None for name, o in zip(one.operations, one.outcomes) if name not in KILLS)]
            if stuck:
                failures.append(f"calls that never came back: {stuck}")
            if self.kills:
                host.atoll.wait_ready(120)
                for one in self.rounds:
                    one.client.close()
            each(self.rounds, lambda one: one.check(self.kills), failures)
            each(self.rounds, lambda one: one.clean_up(), failures)
        client = host.client()
        delete_all(client)
        if left := host.nothing_left(client):
            failures.append(f"left behind: {left}, pools: {client.call('GET', '/v1/pools')['items']}")
        client.close()
        return failures

    def kill(self, host, begin, name, delay, point):
        if point:
            host.await_fail_point(5)
        else:
            time.sleep(max(0, begin + delay - time.monotonic()))
            host.kill(name.split()[0])

    def __str__(self):
        return "; ".join(" × ".join(one.operations) for one in self.rounds) + "".join(f"; {name} {f'at {point}' if point else f'after {delay * 1e3:.0f} ms'}" for name, delay, point in self.kills)


def each(rounds, call, failures):
    def one(item):
        try:
            call(item)
        except (Wrong, ApiError, AssertionError, KeyError, ValueError, TypeError) as e:
            failures.append(f"{' × '.join(item.operations)}: {type(e).__name__} {e}\n    " + "\n    ".join(item.told))
        except Exception as e:
            failures.append(f"{' × '.join(item.operations)}: {'the connection broke: ' if broken(e) else ''}{e!r}\n    " + "\n    ".join(item.told))

    threads = [threading.Thread(target=one, args=(item,)) for item in rounds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="so many, of seeds that follow one another")
    parser.add_argument("--seconds", type=float, help="stop after so long; 0: never (default: 240 of the fixed seeds, else never)")
    parser.add_argument("--all", action="store_true", help="20,000 rounds, however long they take")
    parser.add_argument("--seed", type=int, help="run the batch of this seed only")
    parser.add_argument("--repeat", type=int, default=1, help="of --seed: so many times")
    parser.add_argument("--first", type=int, help="seed of the first batch; others follow it (default: from the clock)")
    parser.add_argument("--keep-going", type=int, default=3, help="give up after so many batches that went wrong")
    options = parser.parse_args()
    if options.all:
        options.rounds = 20000
    of_ci = options.rounds is None and options.seed is None and options.first is None
    if options.seconds is None:
        options.seconds = 240 if of_ci else 0
    with installation(pool_depth=ROUNDS_AT_ONCE) as atoll:
        # What it takes to build one is no time of the races.
        begin = time.monotonic()
        host = Host(atoll)
        rounds, wrong, covered, kills = 0, [], set(), 0
        first = options.first if options.first is not None else int(time.time() * 1000)
        if options.seed is not None:
            seeds = itertools.repeat(options.seed, options.repeat)
        elif of_ci:
            seeds = itertools.chain([first], FIXED_SEEDS)
        else:
            seeds = range(first, first - (-(options.rounds or 2000) // ROUNDS_AT_ONCE))
        print(f"seed {options.seed}" if options.seed is not None else f"new seed {first}, and {f'fixed ones from {FIXED_SEEDS[0]} to {FIXED_SEEDS[-1]}' if of_ci else 'those after it'}", flush=True)
        shown = time.monotonic()
        cut = False
        for seed in seeds:
            if rounds and options.seconds and time.monotonic() - begin > options.seconds - 10:
                cut = True
                break
            batch = Batch(seed)
            if options.seed is not None:
                print(f"batch {seed}: {batch}", flush=True)
            failures = batch.run(host)
            rounds += len(batch.rounds)
            kills += len(batch.kills)
            covered |= {tuple(sorted((a, b))) for one in batch.rounds for a in one.operations for b in one.operations}
            if failures:
                wrong.append(seed)
                print(f"\nFAIL seed {seed} (replay: conformance/races/races.py --seed {seed} --repeat 20)\n  {batch}\n  " + "\n  ".join(failures), flush=True)
                if len(wrong) >= options.keep_going:
                    print(host.atoll.logs())
                    break
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"  {rounds} rounds after {shown - begin:.0f} s, {kills} kills; server {host.resident('server')} MiB, engine {host.resident('engine')} MiB", flush=True)
        took = time.monotonic() - begin
        if cut:
            print(f"only {rounds} rounds fit into {options.seconds:.0f} s on this machine: seeds from {seed} on were left out")
    print(f"{rounds} rounds in {took:.0f} s, {kills} kills, {len(covered)} pairs of operations, failing seeds: {wrong or 'none'}")
    print(f"{rounds - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
