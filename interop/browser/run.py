"""The official TypeScript client in a web page of another origin, in Chromium: what works directly works
through the gateway, where the page's origin is let in, and nowhere else.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
SECONDS = 60
KEY = "a-key-of-a-page-0123456789"


def page(url, **options):
    """What the page saw."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    with harness.Process("page", [harness.NODE, HERE / "page.mjs", url, *flags]) as browser:
        if browser.wait(SECONDS) != 0:
            raise harness.Failure("the browser failed")
        return json.loads(browser.wait_for_line(r"^\{.*\}$").group())


def saw(url, **options):
    seen = page(url, **options)
    if "failed" in seen:
        raise harness.Failure(f"{options}: {seen}")
    seen.pop("origin")
    return seen


def bowline(server, more=""):
    path = Path(tempfile.mkdtemp()) / "bowline.toml"
    path.write_text(f"""
listen = "127.0.0.1:0"
admin = "off"
{more}
[store]
kind = "memory"
[servers.everything]
url = "{server}"
""")
    return harness.Process("bowline", [harness.binary("bowline"), "serve", "-c", path])


def check(condition, what):
    if not condition:
        raise harness.Failure(f"not so: {what}")
    print(f"  {what}", flush=True)


def run():
    with harness.everything_server() as server:
        direct = harness.url_of(server, "/mcp")
        expected = saw(direct)
        print(f"directly: {expected}", flush=True)
        with bowline(direct) as gateway:
            url = harness.url_of(gateway, "/mcp/everything")
            check(saw(url) == expected, "a page of this machine, through a loopback listener")
            check("failed" in page(url, origin="app.test"), "a page of another site is kept out")
        with bowline(direct, f'[callers.page]\nkey = "{KEY}"') as gateway:
            url = harness.url_of(gateway, "/mcp/everything")
            header = f"Authorization:Bearer {KEY}"
            check(saw(url, header=header) == expected, "a page with a key")
            check("failed" in page(url), "a page without a key is kept out")
        port = harness.free_port()
        with bowline(direct, f'origins = ["http://app.test:{port}"]') as gateway:
            url = harness.url_of(gateway, "/mcp/everything")
            there = {"origin": "app.test", "port": port}
            check(saw(url, **there) == expected, "a page of a site that is configured")
            check("failed" in page(url, origin="app.test"), "another port of that site is kept out")
    return 0


if __name__ == "__main__":
    harness.main(run)
