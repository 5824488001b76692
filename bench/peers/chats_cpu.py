"""Conversations with heddle's server and with llama.cpp's own, each with what it keeps of the turns before.

  chats_cpu.py measure SERVER --json PART   one server: conversations, then new tokens alone
  chats_cpu.py join PART... --out FILE      all parts as one record, and a table of it

run_chats.sh does both, server by server in turns. SERVER is heddle, heddle-no-cache (with --no-prefix-cache) or llama.cpp. Sixteen users hold
a conversation of ten turns each, user i with adapter i modulo 8. All begin with one system message of some 350 tokens; a turn adds a short
question of the user's own and the answer that the server gives, greedy, up to 32 tokens. All users ask turn t at once, when all have their
answers to turn t - 1. The first token's time is that from the request to the first event with text, or to the end of an answer that has none.
Both servers have the same number of threads, 16 rows of 2048 tokens at once, the same GGUF file and adapters. llama.cpp has its prompt cache,
continuous batching on, flash attention at its default (auto), and a slot for each user, which the request names: so each finds its own
conversation in its slot, with its own adapter, and nothing is copied when a slot has nothing to do (--no-cache-idle-slots).

The time of a turn's new tokens alone: of heddle with its cache, after each turn all users send, at once again, what the turn added to the
prompt (the mark that ends the answer before it, the question with its marks, and the mark that begins an answer) as a request of its own to
the same adapter, which finds nothing in a cache and has no tokens before it. The users, the load and the tokens are those of the turn, without
the conversation. After turn ten they do so five times, of all servers, and then with as many tokens as turn ten computed, with those of the
page that was not whole. The ratios are medians of those of each round, whose two sides are seconds apart: a machine that others use is not as
fast at all times.

Answers of heddle with and without the cache must be equal, or join ends with an error. CPU shares are those of all cores over a turn.
"""
import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

import server_cpu
import summarize

ROOT = server_cpu.ROOT
HEDDLE, WITHOUT, LLAMA = "heddle", "heddle-no-cache", "llama.cpp"
USERS, TURNS, ADAPTERS, CONTEXT, MAX_TOKENS, TIMES_ALONE = 16, 10, 8, 2048, 32, 5
ALONE, COMPUTED = "new tokens alone", "computed tokens alone"  # in place of a turn
RATIO_WANTED = 1.3  # of turn ten's first token to that of its new tokens alone
SYSTEM = """You work at the front desk of a weaving mill that is open to visitors. People who stand before you want to know how cloth is
made, what the machines do and where they find things in the house. Answer in one or two short sentences and in plain words. Do not guess:
say so if you do not know. The mill has three floors. On the ground floor the wool is sorted, washed and carded, and the noise of the carding
machines is loud, so visitors get ear plugs at the door. On the first floor there are twelve looms, of which four are run by hand and eight by
a belt from the water wheel. The oldest loom was built in 1784 and still makes blankets on Sundays. On the second floor cloth is dyed, pressed
and folded, and there is a small shop that sells scarves, blankets and yarn. Children may try a small loom at the window under the eyes of a
weaver. Dogs stay outside. Bags go into the lockers at the left of the entrance, for which a coin is needed that comes back. The mill is open
from nine to five, on Sundays from eleven, and closed on Mondays and in January. A tour takes an hour and begins at ten, at one and at three.
Groups of more than eight people call a day before. There is tea, soup and bread in the yard, and the well has water that one can drink. The
bus to the station leaves every twenty minutes from the bridge, the last one at half past six. Photos are welcome, but without a flash on
the second floor, because light fades the dyes."""
TOPICS = ("blankets", "scarves", "the oldest loom", "the water wheel", "carding", "the dyes", "the shop", "lockers", "the tours", "soup",
          "the yarn", "the small loom", "ear plugs", "pressing", "the bus", "washing")
QUESTIONS = ("We have never been in a mill. What should I know about {} before we start?",
             "Who in the house takes care of {}? I would like to ask something.",
             "On which floor do I find out more about {}? My knees are not what they were.",
             "Is there something about {} that most visitors miss? We have time.",
             "How long has this house had {}? A book that I read says for two hundred years.",
             "My daughter is six. What do children like about {}?",
             "What goes wrong with {} in winter, when it is cold and the wheel has ice?",
             "May I take a photo that shows {}? It is for the newspaper of our school.",
             "And what does it cost to keep {}? I mean in a year, with all that breaks.",
             "Thank you, that was kind. What is the one thing to remember about {}?")
FIGURES = ("first_token_ms", "total_ms", "prompt_tokens", "cached_tokens", "answer_tokens")


def command_of(args, names):
    if args.server == LLAMA:
        files = ",".join(str(args.peers / "inputs/adapters" / f"{name}.gguf") for name in names)
        return [args.peers / "bin/llama-server", "--model", args.model, "--threads", str(args.threads), "--parallel", str(USERS),
                "--ctx-size", str(USERS * CONTEXT), "--port", str(server_cpu.PORT), "--lora", files, "--lora-init-without-apply",
                "--cache-prompt", "--no-cache-idle-slots", "--cont-batching", "--offline"]
    adapters = [part for name in names for part in ("--adapter", f"{name}={ROOT / 'examples/adapters' / name}")]
    return [args.heddle, "serve", "--model", args.model, "--threads", str(args.threads), "--max-batch", str(USERS),
            "--max-context", str(CONTEXT), "--port", str(server_cpu.PORT), *adapters,
            *(["--no-prefix-cache"] if args.server == WITHOUT else [])]


def fields_of(server, names, user):
    """How a user's requests name the adapter, and to llama.cpp the user's slot."""
    name = names[user % len(names)]
    fields = dict(temperature=0, max_tokens=MAX_TOKENS, stream=True, stream_options=dict(include_usage=True))
    if server == LLAMA:
        return dict(**fields, lora=[dict(id=names.index(name), scale=1.0)], id_slot=user, cache_prompt=True)
    return dict(**fields, model=name)


def text_of(message):
    """The text that an event has, of a conversation or of a completion."""
    choices = message.get("choices") or [{}]
    return choices[0].get("delta", choices[0]).get("content") or choices[0].get("text") or ""


def ask(path, body):
    """One answer: its text, times and counts."""
    connection = http.client.HTTPConnection("127.0.0.1", server_cpu.PORT, timeout=600)
    with contextlib.closing(connection):
        data, text, first, usage = json.dumps(body), "", None, None
        begin = time.monotonic()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(response.read()[-500:])
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            message = json.loads(line[6:])
            piece, usage = text_of(message), message.get("usage") or usage
            first = time.monotonic() if piece and first is None else first
            text += piece
        end = time.monotonic()
    return dict(text=text, first_token_ms=round(1e3 * ((first or end) - begin), 1), total_ms=round(1e3 * (end - begin), 1),
                prompt_tokens=usage["prompt_tokens"], answer_tokens=usage["completion_tokens"],
                cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))


def ask_all(path, bodies):
    """The answers to requests that are sent at once."""
    answers, failed, barrier = [None] * len(bodies), [], threading.Barrier(len(bodies))

    def one(i):
        try:
            barrier.wait(60)
            answers[i] = ask(path, bodies[i])
        except Exception as error:  # noqa: BLE001 whatever it is, the measurement has failed
            failed.append(repr(error))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"{len(failed)} of {len(bodies)} requests failed, the first: {failed[0]}")
    return answers


def question_of(turn, user):
    return QUESTIONS[turn].format(TOPICS[user])


def new_text(turn, user):
    """What a turn adds to the prompt after the text of the answer before it, in the marks of the model's template."""
    return f"<|im_end|>\n<|im_start|>user\n{question_of(turn, user)}<|im_end|>\n<|im_start|>assistant\n"


def tokens_of(server, text):
    field = dict(content=text, parse_special=True) if server == LLAMA else dict(prompt=text, add_special_tokens=False)
    request = urllib.request.Request(f"http://127.0.0.1:{server_cpu.PORT}/tokenize", json.dumps(field).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["tokens"]


def clocks():
    """Wall clock, and the CPU seconds of this program, which is all clients."""
    return time.time(), time.process_time()


def told(args, turn, answers, watch, begin):
    """One record of a part: what all users had in a turn."""
    wall, client_seconds = begin
    now = time.time()
    server, busy = watch.shares(wall, now)
    client = (time.process_time() - client_seconds) / (now - wall) / os.cpu_count()
    record = dict(server=args.server, turn=turn, **{name: [answer[name] for answer in answers] for name in FIGURES},
                  client_cpu_share=round(client, 3), server_cpu_share=server, other_cpu_share=round(busy - client - server, 3), load_average=round(os.getloadavg()[0], 2),
                  texts=[answer["text"] for answer in answers])
    print(f"{args.server}, {turn}: first token {statistics.median(record['first_token_ms']):.0f} ms, whole answer "
          f"{statistics.median(record['total_ms']):.0f} ms, {sum(record['prompt_tokens'])} prompt tokens, "
          f"{sum(record['cached_tokens'])} of them cached, others took {record['other_cpu_share']:.1%}", file=sys.stderr, flush=True)
    return record


def ask_alone(args, names, prompts, salt):
    """The answers to prompts of tokens of which nothing is cached."""
    bodies = [dict(prompt=prompt, **fields_of(args.server, names, user)) for user, prompt in enumerate(prompts)]
    for user, body in enumerate(bodies):
        body.update(dict(cache_prompt=False) if args.server == LLAMA else dict(cache_salt=f"{salt}, user {user}"))
    answers = ask_all("/v1/completions", bodies)
    if any(answer["cached_tokens"] for answer in answers):
        sys.exit(f"{args.server}: tokens of requests that find nothing were cached")
    return answers


def converse(args, names, watch):
    """Records of all turns."""
    conversations, records = [[dict(role="system", content=SYSTEM)] for _ in range(args.users)], []
    for turn in range(args.turns):
        for user, messages in enumerate(conversations):
            messages.append(dict(role="user", content=question_of(turn, user)))
        begin = clocks()
        answers = ask_all("/v1/chat/completions", [dict(messages=messages, **fields_of(args.server, names, user))
                                                   for user, messages in enumerate(conversations)])
        records.append(told(args, turn + 1, answers, watch, begin))
        if args.server == HEDDLE and turn > 0:
            prompts = [tokens_of(args.server, new_text(turn, user)) for user in range(args.users)]
            records[-1]["alone_ms"] = [answer["first_token_ms"] for answer in ask_alone(args, names, prompts, f"turn {turn}")]
        for messages, answer in zip(conversations, answers, strict=True):
            messages.append(dict(role="assistant", content=answer["text"]))
    return records


def alone(args, names, watch, last):
    """Records of the last turn's new tokens alone, and of as many as it computed."""
    texts = [new_text(args.turns - 1, user) for user in range(args.users)]
    before = tokens_of(args.server, SYSTEM)  # in the place of the page that was not whole
    new = [tokens_of(args.server, text) for text in texts]
    computed = [prompt - cached for prompt, cached in zip(last["prompt_tokens"], last["cached_tokens"], strict=True)]
    filled = [[*before, *tokens][-count:] for tokens, count in zip(new, computed, strict=True)]
    records = []
    for what, prompts in ((ALONE, new), (COMPUTED, filled)) if args.server == HEDDLE else ((ALONE, new),):
        begin = clocks()
        answers = [answer for i in range(TIMES_ALONE) for answer in ask_alone(args, names, prompts, f"{what} {i}")]
        records.append(told(args, what, answers, watch, begin))
    return records


def warm_up(args, names):
    """One answer of each adapter, of which the conversations have nothing."""
    ask_all("/v1/completions", [dict(prompt="The loom", **fields_of(args.server, names, user)) for user in range(args.users)])


def measure(args):
    names = sorted(path.stem for path in (args.peers / "inputs/adapters").glob("*.gguf"))[:ADAPTERS]
    command, load = command_of(args, names), wait_for_quiet(args.wait)
    with tempfile.TemporaryDirectory() as temporary:
        with server_cpu.served(command, pathlib.Path(temporary) / "server.log") as server:
            with server_cpu.CpuWatch([server.pid]) as watch:
                warm_up(args, names)
                records = converse(args, names, watch)
                records += alone(args, names, watch, records[-1])
    part = dict(records=records, threads=args.threads, users=args.users, load_before=load,
                commands={args.server: server_cpu.shown(args, command)})
    args.json.write_text(json.dumps(part, indent=1) + "\n")


def wait_for_quiet(seconds):
    """Waits for a load average below 1, at most so long. Returns what it is then."""
    deadline = time.monotonic() + seconds
    while os.getloadavg()[0] >= 1 and time.monotonic() < deadline:
        time.sleep(5)
    return round(os.getloadavg()[0], 2)


def joined(parts):
    """Records of all rounds by server and turn, without texts. All answers of heddle must be equal, round by round and user by user."""
    records, texts = {}, {}
    for record in (record for part in parts for record in part["records"]):
        key = (record["server"], record["turn"])
        of_rounds = records.setdefault(key, dict(server=key[0], turn=key[1], unit="ms to the first token", rounds=[]))
        said = record.pop("texts")
        if key[0] != LLAMA and isinstance(key[1], int) and texts.setdefault(key[1], said) != said:
            sys.exit(f"turn {key[1]} has other answers from {key[0]} than before")
        of_rounds["rounds"].append({name: value for name, value in record.items() if name not in ("server", "turn")})
    for record in records.values():
        rounds = record.pop("rounds")
        for name in (*FIGURES, "alone_ms"):
            record["samples" if name == FIGURES[0] else name] = [value for one in rounds for value in one.get(name, [])]
        record.update({name: [one[name] for one in rounds]
                       for name in ("client_cpu_share", "server_cpu_share", "other_cpu_share", "load_average")})
        record["first_token_ms_of_rounds"] = [round(statistics.median(one["first_token_ms"]), 1) for one in rounds]
        record["alone_ms_of_rounds"] = [round(statistics.median(one["alone_ms"]), 1) for one in rounds if "alone_ms" in one]
        record["first_token_ms_median"] = round(statistics.median(record["samples"]), 1)
        record["total_ms_median"] = round(statistics.median(record["total_ms"]), 1)
    return records, sum(map(len, texts.values()))


def ratio_of_rounds(ours, theirs):
    """The median over rounds of the ratio of two medians over users; and all ratios."""
    ratios = [round(a / b, 3) for a, b in zip(ours, theirs, strict=True)]
    return dict(ratio=statistics.median(ratios), of_rounds=ratios)


def ratios_of(records):
    """Of medians of first tokens and of whole answers; above 1 heddle is ahead."""
    turns = sorted(turn for server, turn in records if server == HEDDLE and isinstance(turn, int))
    ratios = []
    for what in (ALONE, COMPUTED):
        ours, theirs = (records[HEDDLE, turn]["first_token_ms_of_rounds"] for turn in (turns[-1], what))
        ratios.append(dict(of=f"heddle's first token of turn {turns[-1]}", to=what, **ratio_of_rounds(ours, theirs),
                           at_most=RATIO_WANTED if what == ALONE else None))
    for turn in turns[1:]:
        record = records[HEDDLE, turn]
        ratios.append(dict(of=f"heddle's first token of turn {turn}", to="its new tokens alone",
                           **ratio_of_rounds(record["first_token_ms_of_rounds"], record["alone_ms_of_rounds"])))
    for (server, turn), record in records.items():
        if server in (WITHOUT, LLAMA) and isinstance(turn, int):
            ours = records[HEDDLE, turn]
            ratios.append(dict(of=f"{server}, turn {turn}", to="heddle",
                               **{f"{name}_ratio": round(record[f"{name}_median"] / ours[f"{name}_median"], 2)
                                  for name in ("first_token_ms", "total_ms")},
                               at_least=1.0 if server == LLAMA and turn > 1 else None))
    return ratios


def join(args):
    parts = [json.loads(path.read_text()) for path in args.parts]
    records, num_equal = joined(parts)
    what = "Conversations with heddle's server and llama.cpp's. " + " ".join(__doc__.partition("or llama.cpp. ")[2].split())
    versions = {"llama.cpp": (args.peers / "llama-version").read_text().strip()}
    head = dict(what=what, commit=args.commit or summarize.commit_of_tree(), date=datetime.date.today().isoformat(),
                machine=summarize.machine_facts(max(part["threads"] for part in parts)), users=max(part["users"] for part in parts),
                besides=args.besides, load_before=[part["load_before"] for part in parts], versions=versions,
                commands={name: command for part in parts for name, command in part["commands"].items()},
                equal_answers=num_equal, ratios=ratios_of(records))
    lines = ",\n".join("  " + json.dumps(record) for record in records.values())  # one a line, so that differences can be read
    args.out.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "records": [\n{lines}\n ]\n}}\n')
    for ratio in head["ratios"]:
        print(ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one, all_parts = server_cpu.add_commands(commands, (HEDDLE, WITHOUT, LLAMA), measure, join)
    one.add_argument("--users", type=int, default=USERS)
    one.add_argument("--turns", type=int, default=TURNS)
    one.add_argument("--wait", type=float, default=0, help="seconds, at most, for a load average below 1")
    all_parts.add_argument("--besides", default="nothing that is known of", help="what else ran on the machine")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the server ends too
    args.run(args)


if __name__ == "__main__":
    main()
