"""The built pages in Chromium: links, pictures, formulas, widths and the console.

"make docs-test" builds the pages, with MathJax beside them, and runs this file. LGT_DOCS_HTML names
pages that lie elsewhere, and CHROMIUM a browser that is not on PATH."""

import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

ROOT = Path(__file__).parents[1]
PAGES = Path(os.environ.get('LGT_DOCS_HTML', ROOT / 'docs' / '_build' / 'html'))
NAMES = sorted(
    str(page.relative_to(PAGES))
    for page in PAGES.rglob('*.html')
    if page.relative_to(PAGES).parts[0] not in ('_modules', '_static')
)
WIDTHS = 1400, 400
BROWSERS = 'chromium', 'chromium-browser', 'google-chrome', 'chrome'
STATE = """() => ({
    links: [...document.querySelectorAll('a[href]')].map(link => link.href),
    images: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
    formulas: document.querySelectorAll('.math:not(.admonition)').length,
    typeset: document.querySelectorAll('.math mjx-container').length,
    errors: [...document.querySelectorAll('mjx-merror, .math [data-mml-node=merror]')]
        .map(formula => formula.textContent),
})"""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings('default'),  # those of the driver are not ours
    pytest.mark.skipif(not NAMES, reason='there are no built pages: "make docs-test" builds them'),
]


class Handler(SimpleHTTPRequestHandler):
    """Serves the pages. They have no icon, for which a browser asks nevertheless."""

    def do_GET(self) -> None:
        if self.path == '/favicon.ico':
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_) -> None:
        """Nothing is written for a request."""


@pytest.fixture(scope='module')
def browser():
    driver = pytest.importorskip('playwright.sync_api')
    path = os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip('Chromium is missing: install it or set CHROMIUM')
    with driver.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=path, args=['--no-sandbox'])
        yield chromium
        chromium.close()


@pytest.fixture(scope='module')
def address():
    handler = partial(Handler, directory=PAGES)
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()
        thread.join()


@pytest.fixture(scope='module')
def state_of(browser, address):
    """Opens a page once and returns what is on it, what its console said, and its widths."""
    states = {}

    def load(name):
        if name in states:
            return states[name]
        messages = []
        page = browser.new_page(viewport={'width': WIDTHS[0], 'height': 900})
        page.on('console', lambda said: said.type == 'error' and messages.append(said.text))
        page.on('pageerror', lambda error: messages.append(str(error)))
        page.goto(address + name, wait_until='load')
        if page.locator('.math').count():
            page.wait_for_function('() => window.MathJax?.startup?.promise !== undefined')
            page.evaluate('() => MathJax.startup.promise')
        page.evaluate("document.querySelectorAll('img').forEach(img => img.loading = 'eager')")
        page.wait_for_function('() => [...document.images].every(image => image.complete)')
        states[name] = page.evaluate(STATE) | {'messages': messages, 'too wide': []}
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        for width in WIDTHS:
            page.set_viewport_size({'width': width, 'height': 900})
            needed = page.evaluate('document.documentElement.scrollWidth')
            if needed > width:
                states[name]['too wide'].append((width, needed))
        page.close()
        return states[name]

    return load


@pytest.mark.parametrize('name', NAMES)
def test_a_page_in_the_browser(name, state_of):
    state = state_of(name)
    assert state['messages'] == []
    assert state['images'] == []
    assert state['errors'] == []
    assert state['typeset'] == state['formulas']
    assert state['too wide'] == []


@pytest.mark.parametrize('name', NAMES)
def test_links_lead_to_pages_and_their_parts(name, state_of, address):
    """Links to other sites are not followed. No page links an e-mail address: NDCG@20 is none."""
    assert [link for link in state_of(name)['links'] if link.startswith('mailto:')] == []
    missing = []
    for link in {urljoin(address + name, link) for link in state_of(name)['links']}:
        path, part = urldefrag(link)
        if path.startswith(address):
            file = PAGES / (unquote(path.removeprefix(address)) or 'index.html')
            text = file.read_text(encoding='utf-8', errors='ignore') if file.is_file() else None
            if text is None or (part and f'id="{unquote(part)}"' not in text):
                missing.append(link.removeprefix(address))
    assert missing == []
