"""An installation of the tests' own, and Debian's Chromium to look at its dashboard."""

import hashlib
import io
import os
import pathlib
import sys
import tarfile
import tempfile
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "native"))

import installation as installations  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

AXE = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
CHROMIUM = "/usr/bin/chromium"
PATIENCE_MILLIS = 60_000


@pytest.fixture(scope="session")
def atoll():
    with installations.installation(build_allow=installations.mirrors_of_this_network()) as running:
        yield running


@pytest.fixture(scope="session")
def client(atoll):
    client = atoll.client()
    yield client
    client.close()


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core, from npm once and from the cache afterwards."""
    cache = pathlib.Path(os.environ.get("ATOLL_CACHE", "/var/cache/atoll")) / "browser"
    kept = cache / (hashlib.sha256(AXE.encode()).hexdigest()[:16] + ".js")
    if not kept.exists():
        with urllib.request.urlopen(AXE, timeout=120) as answer, tarfile.open(fileobj=io.BytesIO(answer.read())) as archive:
            text = archive.extractfile("package/axe.min.js").read()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as new:
            new.write(text)
        os.replace(new.name, kept)
    return kept.read_text()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory):
    """ATOLL_SCREENSHOTS, if somebody wants to see them."""
    folder = pathlib.Path(os.environ.get("ATOLL_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Watched:
    """A page, and what its browser complained of. `expected`: words of complaints that a test causes itself."""

    def __init__(self, page):
        self.page, self.complaints, self.expected = page, [], []
        page.set_default_timeout(PATIENCE_MILLIS)
        # Violations of the policy are told as errors of the console.
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog):
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def quiet(self):
        left = [text for text in self.complaints if not any(words in text for words in self.expected)]
        assert not left, left


def login_with_link(atoll, context):
    link = atoll.launcher("login-link").strip().splitlines()[-1]
    page = context.new_page()
    page.goto(link)
    page.wait_for_url(f"{atoll.url}/ui/")
    page.close()


def login_with_key(atoll, context, key):
    page = context.new_page()
    page.goto(f"{atoll.url}/ui/login")
    page.fill('[name="key"]', key)
    page.click("button")
    page.wait_for_url(f"{atoll.url}/ui/")
    page.close()


@pytest.fixture(scope="session")
def operator(atoll, chromium):
    """A browser's memory, logged in by the one-time link."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    login_with_link(atoll, context)
    yield context.storage_state()
    context.close()


@pytest.fixture
def open_page(atoll, chromium, operator):
    """open_page(path, width=1280, scheme="light", state=None) -> a page; afterwards none of them may have complained."""
    contexts, watched = [], []

    def go(path, width=1280, scheme="light", state=operator, expected=()):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, storage_state=state)
        contexts.append(context)
        seen = Watched(context.new_page())
        seen.expected += expected
        watched.append(seen)
        seen.page.goto(atoll.url + path)
        return seen.page

    yield go
    try:
        for seen in watched:
            seen.quiet()
    finally:
        for context in contexts:
            context.close()
