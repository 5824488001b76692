"""The page at / in Debian's chromium: what a person does, and what they see and hear of it. Nothing is downloaded."""
import re
import shutil
import sys

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

from serve_case import ADMIN_KEY, Case, main

ROLES = {"send": "button", "stop": "button", "clear": "button", "prompt": "textbox", "left-model": "combobox", "right-model": "combobox",
         "left": "log", "right": "log", "error": "alert", "load-result": "status", "adapters": "rowgroup", "speed-plot": "image"}


def luminance(colour):
    """Relative luminance of "rgb(1, 2, 3)" (WCAG 2.2)."""
    channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class Page(Case):
    options = ("--served-model-name", "tiny")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.browser.get(f"http://127.0.0.1:{self.server.port}/")
        self.wait(lambda: len(Select(self.find("left-model")).options) >= 5)

    def find(self, name):
        return self.browser.find_element(By.ID, name)

    def wait(self, is_true, seconds=20):
        WebDriverWait(self.browser, seconds, 0.05).until(lambda _: is_true())

    def send(self, text, most_tokens=8, **models):
        self.prepare(text, most_tokens, **models)
        self.find("send").click()

    def prepare(self, text, most_tokens, **models):
        for side, model in models.items():
            Select(self.find(f"{side}-model")).select_by_value(model)
        self.find("max-tokens").clear()
        self.find("max-tokens").send_keys(str(most_tokens))
        self.find("prompt").send_keys(text)

    def answers(self, side):
        return [p.get_property("textContent") for p in self.find(side).find_elements(By.CLASS_NAME, "answer")]

    def is_idle(self):
        return self.find("send").is_enabled()

    def test_two_adapters_beside_each_other(self):
        self.send("hello", left="a1", right="a2")
        self.wait(lambda: self.is_idle() and self.answers("left")[0] and self.answers("right")[0])
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
        for side, name in (("left", "a1"), ("right", "a2")):
            wanted = self.server.post("/v1/chat/completions", {**body, "model": name})[1]["choices"][0]["message"]["content"]
            self.assertEqual(self.answers(side), [wanted])
        self.wait(lambda: re.search(r"a1\s+yes", self.find("adapters").text))
        self.find("clear").click()
        self.assertEqual(self.answers("left"), [])

    def test_stop(self):
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1900, "temperature": 0}
        long = next(name for name in ("tiny", "a0", "a1", "a2", "a3")
                    if self.server.post("/v1/chat/completions", {**body, "model": name})[1]["usage"]["completion_tokens"] > 1000)
        self.prepare("hello", most_tokens=1900, left=long, right="")
        self.browser.execute_script("""
            const left = document.getElementById('left');
            const stop = () => { if (left.querySelector('.answer')?.textContent) document.getElementById('stop').click(); };
            new MutationObserver(stop).observe(left, {childList: true, subtree: true, characterData: true});
            document.getElementById('send').click();""")
        self.wait(self.is_idle)
        self.assertTrue(self.answers("left")[0].endswith("(stopped)"))
        self.wait(lambda: self.server.metric("vllm:num_requests_running") == 0)

    def test_what_the_prefix_cache_has(self):
        self.wait(lambda: self.find("cached-share").text)
        for _ in range(2):
            self.server.post("/v1/completions", {"prompt": "the loom weaves, warp and weft, over and under", "max_tokens": 1})
        self.wait(lambda: re.fullmatch(r"[1-9]\d?\.\d %", self.find("cached-share").text))
        self.assertGreaterEqual(int(self.find("cached-pages").text), 2)
        self.assertEqual(self.find("parked").text, "0")
        self.assertRegex(self.find("stored-pages").text, r"^\d+, 0$")

    def test_errors_are_shown(self):
        self.send("x" * 3000, left="tiny", right="")
        self.wait(lambda: "tokens" in self.find("error").text)
        self.assertTrue(self.is_idle())

    def test_load_and_unload(self):
        for name, value in (("lora-name", "mine"), ("lora-path", "a3"), ("admin-key", "wrong")):
            self.find(name).send_keys(value)
        self.find("load").click()
        self.wait(lambda: "admin key" in self.find("error").text)
        self.find("admin-key").clear()
        self.find("admin-key").send_keys(ADMIN_KEY)
        self.find("load").click()
        self.wait(lambda: self.find("load-result").text == "mine was loaded.")
        self.wait(lambda: "mine" in [o.text for o in Select(self.find("left-model")).options])
        self.find("unload").click()
        self.wait(lambda: self.find("load-result").text == "mine was unloaded.")

    def test_text_of_models_is_text(self):
        """Markup in an answer stays what it is: here the base answers with it, through a stream that the page reads as any other."""
        hostile = "<img src=x onerror='document.title=\"taken\"'><script>document.title='taken'</script>"
        self.browser.execute_script("""
            const bytes = new TextEncoder().encode('data: ' + JSON.stringify({choices: [{delta: {content: arguments[0]}}]}) + '\\n\\n');
            window.fetch = async () => new Response(new Blob([bytes]).stream(), {status: 200});""", hostile)
        self.send("hello", left="tiny", right="")
        self.wait(lambda: self.answers("left") == [hostile])
        self.assertEqual(self.browser.title, "heddle")
        self.assertEqual(self.find("left").find_elements(By.CSS_SELECTOR, "img, script"), [])
        self.browser.execute_script("const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s);")
        self.assertEqual(self.browser.title, "heddle", "the policy runs no script within the page")

    def test_keyboard(self):
        self.find("prompt").send_keys("hello", Keys.ENTER)
        self.wait(lambda: self.is_idle() and self.answers("left"))
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "prompt")
        reached = []
        self.find("api-key").click()
        for _ in range(16):
            reached.append(self.browser.switch_to.active_element.get_attribute("id"))
            self.browser.switch_to.active_element.send_keys(Keys.TAB)
        wanted = ["api-key", "left-model", "left", "right-model", "right", "prompt", "temperature", "max-tokens", "send", "clear", "lora-name",
                  "lora-path", "admin-key", "load", "unload"]
        self.assertEqual([name for name in reached if name in wanted][:len(wanted)], wanted)

    def test_roles_and_names(self):
        for name, role in ROLES.items():
            self.assertEqual(self.find(name).aria_role, role, name)
        for element in self.browser.find_elements(By.CSS_SELECTOR, "input, select, textarea, button, [role=log], svg"):
            self.assertTrue(element.accessible_name, element.get_attribute("id"))

    def test_contrast_in_light_and_dark(self):
        for scheme in ("light", "dark"):
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            colours = self.browser.execute_script("""
                document.getElementById('error').textContent = 'x';
                const back = getComputedStyle(document.body).backgroundColor;
                return [...document.querySelectorAll('h1, h2, p, label, dt, dd, th, caption, figcaption, input, select, button, #error')]
                  .map(e => [e.id || e.tagName, getComputedStyle(e).color,
                             ['INPUT', 'SELECT', 'BUTTON'].includes(e.tagName) ? getComputedStyle(e).backgroundColor : back]);""")
            self.assertGreater(len(colours), 20)
            for name, text, back in colours:
                self.assertGreaterEqual(contrast(text, back), 4.5, (scheme, name, text, back))
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def test_nothing_comes_from_elsewhere(self):
        sources = self.browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        self.assertTrue(sources)
        self.assertTrue(all(s.startswith(f"http://127.0.0.1:{self.server.port}/") for s in sources), sources)
        faults = [line for line in self.browser.get_log("browser") if "Content Security Policy" in line["message"] and "favicon" not in line["message"]]
        self.assertEqual([f for f in faults if "inline" not in f["message"]], [])


if __name__ == "__main__":
    main()
