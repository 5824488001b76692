"""The tables of both servers (bench/peers/server_cpu.py and chats_cpu.py) as Markdown, for readme_figures.py."""

import math
import statistics

from figure_files import bold_above, bold_below_one, measured_at

SERVERS, CHATS = "bench/results/server_cpu.json", "bench/results/chats_cpu.json"
HEDDLE, LLAMA = "heddle", "llama.cpp"
HEAD = ["| clients | adapters | tokens/s | llama.cpp | ratio | first token, ms | llama.cpp | ratio | its p99, ms | llama.cpp | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|"]
WITHOUT = "heddle-no-cache"
ALONE, COMPUTED = "new tokens alone", "computed tokens alone"
CHATS_HEAD = ["| turn | new tokens | computed | first token, ms | its new tokens alone | no cache | llama.cpp | ratio | "
              "answer, ms | no cache | llama.cpp | ratio |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]


def share_line(records):
    """How much of the machine the client took, over all cells."""
    shares = {server: [share for record in records if record["server"] == server for share in record["client_cpu_share"]]
              for server in (HEDDLE, LLAMA)}
    said = {server: f"{100 * min(values):.0f} to {100 * max(values):.0f} %" for server, values in shares.items()}
    return f"The client took {said[HEDDLE]} of the machine with heddle, {said[LLAMA]} with llama.cpp."


def cell_row(ours, peer):
    """(row, lost figures) of a cell; medians of the rounds. A ratio above 1 is heddle's win, for times too."""
    cells, losses = [str(ours["clients"]), str(ours["adapters"])], 0
    for name, is_time in (("samples", False), ("first_token_ms_median", True), ("first_token_ms_p99", True)):
        a, b = statistics.median(ours[name]), statistics.median(peer[name])
        ratio = b / a if is_time else a / b
        losses += ratio < 1
        cells += [f"{a:.0f}", f"{b:.0f}", bold_below_one(ratio)]
    return f"| {' | '.join(cells)} |", losses


def server_part(report):
    """All cells: those of two threads that the client shares, and those of servers that have cores of their own."""
    records = {tuple(record[name] for name in ("apart", "adapters", "clients", "server")): record for record in report["records"]}
    lines, losses = [], []
    for apart in sorted({key[0] for key in records}):
        lines += [*(["", "With one thread, on one core, and the client on the other:", ""] if apart else []), *HEAD]
        for *cell, _ in sorted(key for key in records if key[0] == apart and key[3] == HEDDLE):
            row, lost = cell_row(records[*cell, HEDDLE], records[*cell, LLAMA])
            lines.append(row)
            losses.append(lost)
    count = f"Slower in {sum(losses)} of {3 * len(losses)} figures. {measured_at([report]).capitalize()}; {LLAMA} {report['versions'][LLAMA]}."
    return [*lines, "", f"{count} {share_line(report['records'])}"]


def turn_row(turn, ours, without, peer, new_tokens):
    """(row, lost figures) of a turn; medians over users and rounds. The ratios are of llama.cpp's time to heddle's."""
    computed = statistics.mean(p - c for p, c in zip(ours["prompt_tokens"], ours["cached_tokens"], strict=True))
    cells, losses = [str(turn), f"{new_tokens:.0f}", f"{computed:.0f}"], 0
    for name in ("samples", "total_ms"):
        a, b, c = (statistics.median(record[name]) for record in (ours, without, peer))
        losses += c / a < 1
        alone = [f"{statistics.median(ours['alone_ms']):.0f}" if ours["alone_ms"] else ""] if name == "samples" else []
        cells += [f"{a:.0f}", *alone, f"{b:.0f}", f"{c:.0f}", bold_below_one(c / a)]
    return f"| {' | '.join(cells)} |", losses


def rounds_of(ratio):
    """A ratio of heddle's times: the median of the rounds, bold above its bound, and the least and the most of them."""
    bound = ratio["at_most"] or math.inf
    return f"{bold_above(ratio['ratio'], bound, '{:.2f}'.format)} times ({min(ratio['of_rounds']):.2f} to {max(ratio['of_rounds']):.2f})"


def new_tokens_of(records, turn):
    """Mean over users of what a turn adds to the prompt, of the first all: the answers before it are no part of it."""
    ours, before = records[HEDDLE, turn], records.get((HEDDLE, turn - 1))
    known = zip(before["prompt_tokens"], before["answer_tokens"], strict=True) if before else [(0, 0)] * len(ours["prompt_tokens"])
    return statistics.mean(now - prompt - answer for now, (prompt, answer) in zip(ours["prompt_tokens"], known, strict=True))


def chats_part(report):
    records = {(record["server"], record["turn"]): record for record in report["records"]}
    turns = sorted(turn for server, turn in records if server == HEDDLE and isinstance(turn, int))
    lines, losses = list(CHATS_HEAD), 0
    for turn in turns:
        row, lost = turn_row(turn, *(records[server, turn] for server in (HEDDLE, WITHOUT, LLAMA)), new_tokens_of(records, turn))
        lines.append(row)
        losses += lost if turn > 1 else 0
    alone, computed = report["ratios"][:2]
    others = {server: [share for record in records.values() if record["server"] == server for share in record["other_cpu_share"]]
              for server in (HEDDLE, WITHOUT, LLAMA)}
    busy = ", ".join(f"{statistics.mean(shares):.0%} with {server}".replace("%", " %") for server, shares in others.items())
    lines += ["", f"Slower than llama.cpp in {losses} of {2 * (len(turns) - 1)} figures from the second turn on. heddle's first token of turn "
              f"{turns[-1]} takes {rounds_of(alone)} the time of its new tokens alone, at most {alone['at_most']} are wanted, and "
              f"{rounds_of(computed)} that of as many tokens as it computes: medians of the {len(alone['of_rounds'])} rounds, the least and the "
              f"most. All {report['equal_answers']} answers of heddle are the same in all rounds, with and without the cache. Other programs took "
              f"{busy}, on average. {measured_at([report]).capitalize()}; {LLAMA} {report['versions'][LLAMA]}."]
    return lines


def made_up_servers():
    """A record in which heddle has twice the tokens, and first tokens that come later in one cell."""
    def record(server, apart, clients, tokens, first):
        return dict(server=server, apart=apart, clients=clients, adapters=8, samples=[tokens, tokens],
                    first_token_ms_median=[first, first], first_token_ms_p99=[first, first], client_cpu_share=[0.1, 0.25])
    records = [record(HEDDLE, False, 1, 100.0, 30.0), record(LLAMA, False, 1, 50.0, 60.0),
               record(HEDDLE, True, 8, 400.0, 80.0), record(LLAMA, True, 8, 200.0, 40.0)]
    return dict(commit="0123456", date="2026-01-31", versions={LLAMA: "b1"}, records=records)


def made_up_chats():
    """A record of two turns, in the second of which heddle is slower and above its bound."""
    def record(server, turn, first, prompt, cached):
        return dict(server=server, turn=turn, samples=[first, first], total_ms=[2 * first, 2 * first], prompt_tokens=[prompt, prompt],
                    cached_tokens=[cached, cached], answer_tokens=[30, 30], other_cpu_share=[0.01, 0.25],
                    alone_ms=[40.0, 40.0] if (server, turn) == (HEDDLE, 2) else [])
    records = [record(server, turn, first, prompt, cached if server == HEDDLE else 0)
               for server, firsts in ((HEDDLE, (100.0, 60.0)), (WITHOUT, (110.0, 160.0)), (LLAMA, (200.0, 30.0)))
               for turn, first, prompt, cached in zip((1, 2), firsts, (64, 120), (0, 80), strict=True)]
    records += [record(HEDDLE, ALONE, 40.0, 26, 0), record(HEDDLE, COMPUTED, 50.0, 40, 0)]
    return dict(commit="0123456", date="2026-01-31", versions={LLAMA: "b1"}, equal_answers=4, records=records,
                ratios=[dict(at_most=1.3, ratio=1.5, of_rounds=[1.5, 1.25]), dict(at_most=None, ratio=1.2, of_rounds=[1.2, 1.25])])


def self_test():
    lines = server_part(made_up_servers())
    assert lines.index("| 1 | 8 | 100 | 50 | 2.00 | 30 | 60 | 2.00 | 30 | 60 | 2.00 |") < lines.index(
        "| 8 | 8 | 400 | 200 | 2.00 | 80 | 40 | **0.50** | 80 | 40 | **0.50** |"), lines
    assert "Slower in 2 of 6 figures. Commit 0123456, 2026-01-31; llama.cpp b1." in lines[-1] and "10 to 25 %" in lines[-1], lines
    self_test_chats()


def self_test_chats():
    lines = chats_part(made_up_chats())
    assert "| 1 | 64 | 64 | 100 |  | 110 | 200 | 2.00 | 200 | 220 | 400 | 2.00 |" in lines, lines
    assert "| 2 | 26 | 40 | 60 | 40 | 160 | 30 | **0.50** | 120 | 320 | 60 | **0.50** |" in lines, lines
    assert "in 2 of 2 figures" in lines[-1] and "takes **1.50** times (1.25 to 1.50) the time" in lines[-1], lines
    assert "1.20 times (1.20 to 1.25) that of" in lines[-1] and "13 % with heddle, 13 % with heddle-no-cache" in lines[-1], lines
    assert "on average. Commit 0123456, 2026-01-31; llama.cpp b1." in lines[-1], lines
