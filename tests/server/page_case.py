"""What the tests of the page share: Debian's chromium on a server's page, and what a person does there."""
import re
import shutil
import sys

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

from serve_case import Case

CHAT = "/v1/chat/completions"
WIDTHS = (1280, 390)


class Browser(Case):
    """A page, anew for each test."""

    options = ("--served-model-name", "tiny", "--max-batch", "8")
    has_adapters = True  # as soon as it is opened

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.open()
        self.addCleanup(self.run_script, "localStorage.clear()")
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": []})

    def open(self, width=WIDTHS[0]):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
        self.browser.get(f"http://127.0.0.1:{self.server.port}/")
        if self.has_adapters:
            self.wait(lambda: len(self.all(".chip")) == self.num_adapters + 1)

    def run_script(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def find(self, name):
        return self.browser.find_element(By.ID, name)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.run_script("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def wait(self, is_true, seconds=30):
        WebDriverWait(self.browser, seconds, 0.05).until(lambda _: is_true())

    def set_number(self, name, value):
        self.run_script("document.getElementById(arguments[0]).value = arguments[1]", name, str(value))

    def pick(self, *names):
        self.find("pick-none").click()
        for chip in self.all(".chip"):
            if chip.text in names:
                chip.click()

    def send(self, text, most_tokens=8):
        self.set_number("max-tokens", most_tokens)
        self.run_script("document.getElementById('prompt').value = arguments[0]", text)
        self.find("send").click()

    def answers(self):
        """Of all cards, in their order: the text of the last answer."""
        return self.run_script("""return [...document.querySelectorAll('.card')].map((card) =>
            [...card.querySelectorAll('.answer')].at(-1)?.textContent ?? '')""")

    def is_idle(self):
        return self.find("send").is_enabled()

    def wait_for_answers(self):
        self.wait(lambda: self.is_idle() and all(self.answers()) and not self.all(".growing"))

    def alone(self, name, messages, most_tokens=8):
        body = {"messages": messages, "max_tokens": most_tokens, "temperature": 0, "model": name}
        return self.server.post(CHAT, body)[1]["choices"][0]["message"]["content"]

    def shown(self, text):
        """As a card shows it: these answers have no Markdown, but spaces that it leaves out."""
        return re.sub(r"\s+", "", text)

    def keep_copies(self):
        self.run_script("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}})")

    def copied(self, button):
        self.run_script("window.copied = null; arguments[0].click()", button)
        self.wait(lambda: self.run_script("return window.copied") is not None)
        return self.run_script("return window.copied")


def user(text):
    return {"role": "user", "content": text}
