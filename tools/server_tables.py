"""The table of both servers (bench/peers/server_cpu.py) as Markdown, for readme_figures.py."""

import statistics

from figure_files import bold_below_one, measured_at

SERVERS = "bench/results/server_cpu.json"
HEDDLE, LLAMA = "heddle", "llama.cpp"
HEAD = ["| clients | adapters | tokens/s | llama.cpp | ratio | first token, ms | llama.cpp | ratio | its p99, ms | llama.cpp | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|"]


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


def made_up_servers():
    """A record in which heddle has twice the tokens, and first tokens that come later in one cell."""
    def record(server, apart, clients, tokens, first):
        return dict(server=server, apart=apart, clients=clients, adapters=8, samples=[tokens, tokens],
                    first_token_ms_median=[first, first], first_token_ms_p99=[first, first], client_cpu_share=[0.1, 0.25])
    records = [record(HEDDLE, False, 1, 100.0, 30.0), record(LLAMA, False, 1, 50.0, 60.0),
               record(HEDDLE, True, 8, 400.0, 80.0), record(LLAMA, True, 8, 200.0, 40.0)]
    return dict(commit="0123456", date="2026-01-31", versions={LLAMA: "b1"}, records=records)


def self_test():
    lines = server_part(made_up_servers())
    assert lines.index("| 1 | 8 | 100 | 50 | 2.00 | 30 | 60 | 2.00 | 30 | 60 | 2.00 |") < lines.index(
        "| 8 | 8 | 400 | 200 | 2.00 | 80 | 40 | **0.50** | 80 | 40 | **0.50** |"), lines
    assert "Slower in 2 of 6 figures. Commit 0123456, 2026-01-31; llama.cpp b1." in lines[-1] and "10 to 25 %" in lines[-1], lines
