"""The page at / in Debian's chromium: what a person does, and what they see and hear of it. Nothing is downloaded."""
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import threading

from page_case import CHAT, WIDTHS, Browser, user
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from serve_case import ADMIN_KEY, main

MOST_BYTES = 150_000  # of all files of the page
MARKED = "b9e8e00ef41cc4e81a114479a34a885a18a63c3ed83fa6d39d67e6d77feb0d05"  # docs/dependencies.md
FILES = pathlib.Path(__file__).parents[2] / "apps/heddle-serve/page"
ROLES = {"send": "button", "stop": "button", "prompt": "textbox", "picker": "group", "error": "alert", "status": "status", "lanes": "list",
         "speed-plot": "image"}
EXAMPLES = [{"prompt": f"example {i}", "answer": str(i)} for i in range(5)]
# What an answer may try; {base} is the page's own address.
HOSTILE = """<img src=x onerror='document.title="taken"'><script>document.title='taken'</script>

[a link](javascript:document.title='taken') [another](data:text/html,<script>1</script>) [third](JaVaScRiPt&colon;alert(1)) <javascript:alert(1)>
![picture](https://elsewhere.example/x.png "t") [good](https://example.org/?a=1&b=2) [odd](https://x.example/" onmouseover="document.title='taken')

<iframe src="{base}"></iframe><svg onload="document.title='taken'"><a xlink:href="javascript:1">x</a></svg>
```"><img src=x onerror=alert(1)>
<b>code</b>
```
| <i>a</i> | b |
|---|---|
| `<u>` | [t](vbscript:1) |
"""
# The colours of an element's text and of what is under it, as [r, g, b] of 0 to 255.
COLOURS = """
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const seen = (...layers) => {
      canvas.clearRect(0, 0, 1, 1);
      for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
      return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const under = (element) => {
      const layers = [];
      for (let e = element; e; e = e.parentElement) layers.unshift(getComputedStyle(e).backgroundColor);
      return layers;
    };
    document.getElementById('error').textContent = 'x';
    document.getElementById('details').open = true;
    return [...document.querySelectorAll('h1, h2, h3, p, label, dt, dd, th, td, caption, .hint, .chip, button:enabled, .phase, .count, .name, #error')]
      .filter((e) => e.checkVisibility({opacityProperty: true}))
      .map((e) => [e.id || e.className || e.tagName, seen(...under(e), getComputedStyle(e).color), seen(...under(e))]);"""


def luminance(colour):
    """Relative luminance (WCAG 2.2)."""
    channels = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class Page(Browser):
    def test_all_adapters_answer_at_once(self):
        for width in WIDTHS:
            with self.subTest(width=width):
                self.open(width)
                self.assertEqual(self.texts(".card h2"), ["a0", "a1", "a2", "a3"])
                self.run_script("performance.clearResourceTimings()")
                self.send("hello")
                self.wait_for_answers()
                wanted = [self.shown(self.alone(f"a{i}", [user("hello")])) for i in range(4)]
                self.assertEqual(len(set(wanted)), 4)
                self.assertEqual(list(map(self.shown, self.answers())), wanted)
                asked = self.run_script("return performance.getEntriesByType('resource').filter((e) => e.name.endsWith(arguments[0])).length", CHAT)
                self.assertEqual(asked, 1, "one request for all")
                self.assertEqual(self.find("status").text, "4 answers complete")

    def test_some_and_the_base_model(self):
        self.pick("a2", "base model")
        self.assertEqual(self.texts(".card h2"), ["a2", "tiny"])
        self.send("hello")
        self.wait_for_answers()
        self.assertEqual(list(map(self.shown, self.answers())), [self.shown(self.alone(name, [user("hello")])) for name in ("a2", "tiny")])
        self.pick("a1")
        self.send("hello")
        self.wait_for_answers()
        self.assertEqual(list(map(self.shown, self.answers())), [self.shown(self.alone("a1", [user("hello")]))])
        self.find("pick-none").click()
        self.send("hello")
        self.assertEqual(self.find("error").text, "Pick at least one adapter.")
        self.find("pick-all").click()
        self.assertEqual(len(self.all(".card")), 4)

    def test_examples_of_folders(self):
        folder = self.server.folder / "adapters/a1"
        for name, text in (("eval.jsonl", "\n".join(map(json.dumps, EXAMPLES))), ("README.md", "# a1\n\nWeaves <b>all</b> that it gets.\n")):
            (folder / name).write_text(text)
            self.addCleanup((folder / name).unlink)
        for width in WIDTHS:
            self.open(width)
            self.wait(lambda: len(self.all(".example")) == 3)
            self.assertIn("Weaves <b>all</b> that it gets.", self.texts(".about"))
            self.all(".example")[1].click()
            self.assertEqual(self.find("prompt").get_property("value"), "example 1")

    def test_stop(self):
        """As soon as there is text of an answer: a person is slower, and the tiny model fast."""
        for act in ("document.getElementById('stop').click()",
                    "document.getElementById('prompt').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))"):
            with self.subTest(act=act):
                self.open()
                self.run_script("""new MutationObserver((_, observer) => {
                    if (![...document.querySelectorAll('.answer')].some((answer) => answer.textContent)) return;
                    observer.disconnect();
                    %s;
                }).observe(document.body, {childList: true, subtree: true, characterData: true})""" % act)
                self.send("hello", most_tokens=1900)
                self.wait(lambda: self.is_idle() and self.find("status").text)
                self.assertEqual(self.find("status").text, "Stopped")
                self.assertIn("stopped", " ".join(self.texts(".foot")))
                self.wait(lambda: self.server.metric("vllm:num_requests_running") == 0)

    def test_conversations_and_history(self):
        self.send("hello")
        self.wait_for_answers()
        first = [self.alone(f"a{i}", [user("hello")]) for i in range(4)]
        self.send("and then")
        self.wait(lambda: self.is_idle() and len(self.all(".turn")) == 8 and not self.all(".growing"))
        for i, answer in enumerate(self.answers()):
            messages = [user("hello"), {"role": "assistant", "content": first[i]}, user("and then")]
            self.assertEqual(self.shown(answer), self.shown(self.alone(f"a{i}", messages)), "each goes on with its own answer")
        before = self.answers()
        self.find("new").click()
        self.assertEqual(self.all(".turn"), [])
        self.open()
        self.find("open-history").click()
        self.assertEqual(self.texts("#conversations .open"), ["hello"])
        self.all("#conversations .open")[0].click()
        self.assertEqual(self.answers(), before)
        self.find("open-history").click()
        self.find("forget-all").click()
        self.assertEqual(self.texts("#conversations li"), ["There are none yet."])

    def test_copies_run(self):
        prompt = "it's \"so\" $HOME `id` \\ \n\u00e9\U0001f9f5"
        self.keep_copies()
        self.send(prompt)
        self.wait_for_answers()
        wanted = [self.alone(f"a{i}", [user(prompt)]) for i in range(4)]
        for turn in ("first", "second"):
            with self.subTest(turn=turn):
                curl = self.run_text("bash", "-c", self.copied(self.find("copy-curl")))
                self.assertEqual([choice["message"]["content"] for choice in json.loads(curl)["choices"]], wanted)
                told = self.run_text(sys.executable, "-X", "utf8", "-c", self.copied(self.find("copy-python")))
                self.assertEqual(told, "".join(f"a{i}: {text}\n" for i, text in enumerate(wanted)))
            if turn == "second":
                continue
            self.send("more")
            self.wait(lambda: self.is_idle() and len(self.all(".turn")) == 8 and not self.all(".growing"))
            wanted = [self.alone(f"a{i}", [user(prompt), {"role": "assistant", "content": wanted[i]}, user("more")]) for i in range(4)]
        one = json.loads(self.run_text("bash", "-c", self.copied(self.all(".card .tools button")[1])))
        self.assertEqual([choice["message"]["content"] for choice in one["choices"]], wanted[:1])

    def run_text(self, *command):
        """What a command prints, with its line ends as they are."""
        ran = subprocess.run(command, capture_output=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.decode()

    def give(self, text, finish="stop"):
        """Has the next answer of one card be this text, in a stream that the page reads as any other."""
        self.pick("a0")
        choices = [{"index": 0, "delta": {"content": piece}} for piece in (text[:40], text[40:])] + [{"index": 0, "delta": {}, "finish_reason": finish}]
        self.run_script("""
            const real = window.fetch;
            const bytes = new TextEncoder().encode(arguments[0].map((c) => 'data: ' + JSON.stringify({choices: [c]}) + '\\n\\n').join(''));
            window.fetch = async (path, options) => path.endsWith('/completions')
              ? new Response(new Blob([bytes]).stream(), {status: 200}) : real(path, options);""", choices)
        self.send("hello")
        self.wait_for_answers()

    def test_markdown_is_safe(self):
        base = f"http://127.0.0.1:{self.server.port}/"
        self.give(HOSTILE.replace("{base}", base))
        self.assertEqual(self.browser.title, "heddle")
        self.assertEqual(self.all(".answer :is(img, script, iframe, svg, i, u, b)"), [])
        links = self.run_script("return [...document.querySelectorAll('.answer a')].map((a) => [a.textContent, a.href, a.rel])")
        self.assertTrue(links)
        self.assertIn(["good", "https://example.org/?a=1&b=2", "noopener noreferrer"], links)
        for _, href, _ in links:
            self.assertTrue(href.startswith("https://"), links)
        attributes = self.run_script("return [...document.querySelectorAll('.answer *')].flatMap((e) => e.getAttributeNames())")
        self.assertLessEqual(set(attributes), {"href", "target", "rel", "class", "tabindex"})
        self.assertIn("<img src=x onerror=", self.answers()[0], "tags are shown as they are written")
        self.run_script("const s = document.createElement('script'); try { s.textContent = 'document.title = 1'; } catch {} document.body.append(s);")
        self.assertEqual(self.browser.title, "heddle", "the policy runs no script within the page")
        refused = self.run_script("try { document.body.innerHTML = '<b>x</b>'; return false; } catch (error) { return error instanceof TypeError; }")
        self.assertTrue(refused, "the policy lets no text become markup")

    def test_markdown(self):
        self.give("# One\n\nIt is **so** and *thus*, ~~not~~ `x < 1 && y`, a &lt; b & c.\nline\n\n1. one\n   - in\n2. two\n\n> said\n\n```sql\nSELECT 1;\n```\n\n"
                  "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n\n---\nhttps://example.org/x")
        self.assertEqual(self.texts(".answer :is(h3, strong, em, del, blockquote, pre, th, td)"),
                         ["One", "so", "thus", "not", "said", "SELECT 1;", "a", "b", "1", "2"])
        self.assertIn("x < 1 && y", self.texts(".answer code"))
        self.assertIn("a < b & c.", self.answers()[0])
        self.assertEqual(self.texts(".answer ol > li > ul > li"), ["in"])
        self.assertEqual(len(self.all(".answer hr")), 1)
        self.assertEqual(self.texts(".answer a"), ["https://example.org/x"])

    def test_markdown_of_any_depth_and_length(self):
        for text in (">" * 5000 + " deep", "- " * 3000 + "deep", "[" * 5000, "*a" * 20_000, "x" * 150_000):
            with self.subTest(text=text[:8]):
                self.open()
                self.give(text)
                self.assertGreater(len(self.answers()[0]), 0)

    def test_no_sideways_scroll(self):
        wide = "w" * 300 + " `" + "c" * 300 + "`\n\n```\n" + "p" * 300 + "\n```\n\n|" + "h" * 80 + "|b|\n|---|---|\n|" + "d" * 200 + "|2|\n"
        for width in WIDTHS:
            with self.subTest(width=width):
                self.open(width)
                self.assert_no_sideways_scroll(width)
                self.give(wide)
                self.run_script("document.getElementById('details').open = true; document.getElementById('error').textContent = 'e'.repeat(400)")
                self.assert_no_sideways_scroll(width)
                self.find("open-settings").click()
                self.assert_no_sideways_scroll(width)

    def assert_no_sideways_scroll(self, width):
        scrolled, seen = self.run_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
        self.assertLessEqual(scrolled, seen)
        self.assertGreater(seen, width - 20, "but for a bar to scroll by")

    def test_the_strip_has_a_lane_for_each_request(self):
        body = {"messages": [user("warp " * 250)], "each_adapter": ["a3", None], "max_tokens": 600, "temperature": 0, "ignore_eos": True}
        is_seen = threading.Event()

        def ask():  # again and again, since the model is so small that a second is long
            while not is_seen.is_set():
                self.server.post(CHAT, body)

        self.run_script("""
            window.seen = {};
            const note = () => {
              for (const lane of document.querySelectorAll('#lanes [data-phase]')) {
                const name = lane.querySelector('.name').textContent;
                (window.seen[name] ??= []).push([lane.dataset.phase, lane.getAttribute('aria-label'), lane.style.getPropertyValue('--hue')]);
              }
            };
            new MutationObserver(note).observe(document.getElementById('lanes'), {childList: true, subtree: true, attributes: true});""")
        other = threading.Thread(target=ask)
        other.start()
        try:
            self.wait(lambda: "decode" in str(self.run_script("return window.seen.a3")))
        finally:
            is_seen.set()
            other.join()
        self.wait(lambda: set(self.texts("#lanes .phase")) == {"done"})
        seen = self.run_script("return window.seen")
        self.assertEqual(set(seen), {"a3", "base model"}, "requests of other clients have lanes, too")
        self.assertIn("decode", {phase for phase, _, _ in seen["a3"]})
        self.assertLessEqual({phase for phase, _, _ in seen["a3"]}, {"waiting", "prefill", "decode", "done"})
        self.assertTrue(any(re.fullmatch(r"a3: decode, 1,\d{3} prompt tokens, \d+ answer tokens?", label) for _, label, _ in seen["a3"]), seen["a3"][-1])
        chip = self.run_script("return [...document.querySelectorAll('.chip')].find((c) => c.textContent === 'a3').style.getPropertyValue('--hue')")
        self.assertEqual({hue for _, _, hue in seen["a3"]}, {chip}, "a lane has its adapter's colour")
        widths = self.run_script("return [...document.querySelectorAll('#lanes .bar')].map((bar) => [...bar.children].map((i) => i.offsetWidth))")
        for cached, prefill, decode in widths:
            self.assertGreater(cached + prefill, 2 * decode, "the prompt is the longer part")
            self.assertGreater(decode, 0)
        self.assertNotEqual(self.find("speed-plot").find_elements(By.TAG_NAME, "polyline"), [])
        self.assertRegex(self.find("memory").text, r"^\d+(\.\d)? [kMG]?B of \d+(\.\d)? [kMG]B$")

    def test_what_the_prefix_cache_has(self):
        self.wait(lambda: self.find("cached-share").text)
        self.run_script("document.getElementById('details').open = true")
        for _ in range(2):
            self.server.post("/v1/completions", {"prompt": "the loom weaves, warp and weft, over and under", "max_tokens": 1})
        self.wait(lambda: re.fullmatch(r"[1-9]\d?\.\d %", self.find("cached-share").text))
        self.assertGreaterEqual(int(self.find("cached-pages").text), 2)
        self.assertEqual((self.find("parked").text, self.find("waiting").text), ("0", "0"))
        self.assertRegex(self.find("stored-pages").text, r"^\d+, 0$")
        self.wait(lambda: [row[:2] for row in self.texts("#adapters tr")] == ["a0", "a1", "a2", "a3"])

    def test_errors_are_shown(self):
        self.pick("a1")
        self.send("x" * 3000)
        self.wait(lambda: "tokens" in self.find("error").text)
        self.assertTrue(self.is_idle())
        self.find("pick-all").click()
        self.send("x" * 3000)
        self.wait(lambda: self.is_idle() and len(self.all(".card .failed")) == 4)

    def test_load_and_unload(self):
        self.find("open-settings").click()
        for name, value in (("lora-name", "mine"), ("lora-path", "a3"), ("admin-key", "wrong")):
            self.find(name).send_keys(value)
        self.find("load").click()
        self.wait(lambda: "admin key" in self.find("load-result").text)
        self.find("admin-key").clear()
        self.find("admin-key").send_keys(ADMIN_KEY)
        self.find("load").click()
        self.wait(lambda: self.find("load-result").text == "mine was loaded.")
        self.assertIn("mine", self.texts(".chip"))
        self.find("unload").click()
        self.wait(lambda: self.find("load-result").text == "mine was unloaded.")
        self.assertNotIn("mine", self.texts(".chip"))

    def test_keyboard(self):
        self.find("prompt").send_keys("one", Keys.ENTER, "two", Keys.CONTROL, Keys.ENTER)
        self.wait_for_answers()
        self.assertEqual(self.texts(".user"), ["one\ntwo"] * 4)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "prompt")
        reached = []
        self.run_script("document.activeElement.blur(); window.scrollTo(0, 0)")
        self.find("new").send_keys("")
        for _ in range(30):
            reached.append(self.run_script("const e = document.activeElement; return e.id || e.className || e.textContent"))
            self.browser.switch_to.active_element.send_keys(Keys.TAB)
        wanted = ["new", "open-history", "open-settings", "theme", "pick-all", "pick-none", "prompt", "chip", "send", "copy-curl", "copy-python", "log"]
        self.assertEqual([name for name in dict.fromkeys(reached) if name in wanted], wanted)
        self.find("open-settings").send_keys(Keys.ENTER)
        self.wait(lambda: self.find("settings").is_displayed())
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.wait(lambda: not self.find("settings").is_displayed())

    def test_focus_is_seen(self):
        for name in ("prompt", "send", "theme"):
            self.run_script("document.activeElement.blur()")
            self.find("new").send_keys(Keys.SHIFT)  # so that what has the focus next was reached by keys
            outline = self.run_script("const e = document.getElementById(arguments[0]); e.focus(); return getComputedStyle(e).outlineStyle", name)
            self.assertEqual(outline, "solid", name)

    def test_roles_and_names(self):
        for name, role in ROLES.items():
            self.assertEqual(self.find(name).aria_role, role, name)
        for element in self.all("input, select, textarea, button, [role=log], [role=region], svg, section, dialog, nav, article"):
            if element.is_displayed():
                self.assertTrue(element.accessible_name, element.get_attribute("outerHTML")[:80])
        self.assertEqual(self.run_script("const ids = [...document.querySelectorAll('[id]')].map((e) => e.id); return ids.length - new Set(ids).size"), 0)

    def test_themes(self):
        self.send("hello")
        self.wait_for_answers()
        backs = {}
        for scheme in ("light", "dark"):
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            colours = self.run_script(COLOURS)
            backs[scheme] = self.run_script("return getComputedStyle(document.body).backgroundColor")
            self.assertGreater(len(colours), 40)
            for name, text, back in colours:
                self.assertGreaterEqual(contrast(text, back), 4.5, (scheme, name, text, back))
        self.assertNotEqual(backs["light"], backs["dark"])
        for wanted in ("light", "dark"):  # whatever the system has, here dark
            self.find("theme").click()
            self.assertEqual(self.run_script("return getComputedStyle(document.body).backgroundColor"), backs[wanted])
            self.assertEqual(self.find("theme").accessible_name, f"Theme: {wanted.capitalize()}")
        self.open()
        self.assertEqual(self.run_script("return getComputedStyle(document.body).backgroundColor"), backs["dark"], "it is remembered")

    def test_nothing_comes_from_elsewhere(self):
        self.send("hello")
        self.wait_for_answers()
        sources = self.run_script("return performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertGreater(len(sources), 10)
        self.assertTrue(all(s.startswith(f"http://127.0.0.1:{self.server.port}/") for s in sources), sources)
        faults = [line["message"] for line in self.browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        own = [line for line in faults if "Content Security Policy" in line or "TypeError" in line or "ReferenceError" in line]
        self.assertEqual([line for line in own if "TrustedHTML" not in line and "innerHTML" not in line and "inline" not in line], [])

    def test_size(self):
        """All that a browser loads; nothing is built."""
        served = 0
        for file in sorted(FILES.rglob("*.*")):
            status, headers, text = self.server.request("GET", f"/page/{file.relative_to(FILES)}")
            self.assertEqual((status, text), (200, file.read_text()), file)
            self.assertIn("trusted-types 'none'", headers["Content-Security-Policy"])
            served += file.stat().st_size
            if "vendor" not in file.parts:
                self.assertLessEqual(len(text.splitlines()), 500, file)
        self.assertLess(served, MOST_BYTES)
        self.assertEqual(hashlib.sha256((FILES / "vendor/marked.js").read_bytes()).hexdigest(), MARKED, "the library is the one that is pinned")


class WithKeys(Browser):
    keys = "mine a-key-of-the-page\n"
    options = (*Browser.options, "--fairness", "key")
    has_adapters = False

    def test_a_key_opens_the_page(self):
        self.wait(lambda: "API key" in self.find("error").text)
        self.assertEqual(self.all(".chip"), [])
        self.find("open-settings").click()
        self.find("api-key").send_keys("a-key-of-the-page", Keys.TAB)
        self.wait(lambda: len(self.all(".chip")) == 5 and self.find("error").text == "")
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.send("hello")
        self.wait_for_answers()
        self.run_script("document.getElementById('details').open = true")
        self.wait(lambda: any(row.startswith("mine1") for row in self.texts("#tenants tr")))
        self.keep_copies()
        for name in ("copy-curl", "copy-python"):
            text = self.copied(self.find(name))
            self.assertNotIn("a-key-of-the-page", text)
            self.assertIn("HEDDLE_API_KEY", text)
        self.assertEqual(self.run_script("return JSON.stringify({...localStorage, ...sessionStorage}).includes('a-key-of-the-page')"), False)


if __name__ == "__main__":
    main()
