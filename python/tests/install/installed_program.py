"""What a wheel with programs must be and do, as a stranger tries it: the demo, the server with its page, man page and completions.

HEDDLE_MODEL names the model, or else the demo fetches it. Needs nothing but the package.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import urllib.request

PREFIX = pathlib.Path(sys.prefix)
HEDDLE = str(PREFIX / "bin/heddle")


def run(*arguments: str) -> str:
    done = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)
    return done.stdout


def ask(port: int, path: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def check_files() -> None:
    """Each command's completions and man page lie where shells and man look for them."""
    for name in (
        "man/man1/heddle.1",
        "bash-completion/completions/heddle",
        "zsh/site-functions/_heddle",
        "fish/vendor_completions.d/heddle.fish",
    ):
        text = (PREFIX / "share" / name).read_text()
        assert "each_adapter" in text or "each-adapter" in text or "generate" in text, name


def check_demo() -> None:
    shown = run("demo")
    assert "the same bits in 8 of 8 answers" in shown, shown
    (command,) = re.findall(r"^  heddle (generate (?:.*\\\n)*.*)$", shown, re.MULTILINE)
    answer = subprocess.run(["sh", "-c", f"'{HEDDLE}' {command}"], capture_output=True, text=True)
    assert "my-first-adapter" in answer.stdout, (command, answer.stderr)


def check_server(examples: pathlib.Path) -> None:
    command = [HEDDLE, "serve", "--lora-root", str(examples / "adapters"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            for line in server.stderr:
                if found := re.search(r"listening on http://\S+:(\d+)", line):
                    break
            else:
                raise AssertionError("the server ended")
            port = int(found[1])
            body = {"model": "sql", "prompt": "SQL: count cars", "max_tokens": 8, "temperature": 0}
            answer = json.loads(ask(port, "/v1/completions", body))
            assert answer["model"] == "sql" and answer["choices"][0]["text"].strip(), answer
            assert "<html" in ask(port, "/")
        finally:
            server.terminate()


def check_python(examples: pathlib.Path) -> None:
    import heddle

    with heddle.LLM(adapters={"sql": examples / "adapters/sql"}) as llm:
        answer = llm.chat("SQL: count cars", adapter="sql", max_tokens=8)
        assert str(answer).strip(), answer


begin = time.monotonic()
package = PREFIX / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
examples = package / "heddle_program/share/heddle/examples"
(name,) = importlib.metadata.packages_distributions()["heddle_program"]
assert run("--version").split(" (commit ")[0] == importlib.metadata.version(name)
check_files()
check_demo()
os.environ.setdefault("HEDDLE_MODEL", str(pathlib.Path.home() / ".cache/heddle/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
check_server(examples)
check_python(examples)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"demo, server, page and Python: {used.ru_utime + used.ru_stime:.1f} CPU s in {time.monotonic() - begin:.1f} s")
