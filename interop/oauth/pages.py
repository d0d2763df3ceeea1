"""Bowline's pages in Chromium: people who sign in on another origin than the authorization server's own,
and proxies on the same machine, with the Host kept or not, with and without a path.

Usage: pages.py [NAME...]; without names, everything. Wants nginx besides the parts.
"""

import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "tls"))
import parts
import run
from certificates import Authority

import harness

NAME = "gw.test"
KEPT = "proxy_set_header Host $host;"
KEPT_WITH_PORT = "proxy_set_header Host $http_host;"


@contextmanager
def nginx(port, server, path, host, pem=None):
    """nginx on a port, with TLS if there is a certificate; what is under `path` goes to `server`."""
    directory = Path(tempfile.mkdtemp())
    temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    tls = f"ssl_certificate {pem}; ssl_certificate_key {pem};" if pem else ""
    (directory / "nginx.conf").write_text(f"""
daemon off;
master_process off;
pid {directory}/pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  {" ".join(f"{name}_temp_path {directory}/{name};" for name in temporary)}
  server {{
    listen 127.0.0.1:{port} {"ssl" if pem else ""};
    server_name {NAME};
    {tls}
    location {path}/ {{
      proxy_pass {server}/;
      {host}
    }}
  }}
}}
""")
    binary = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if binary is None:
        raise harness.Failure("nginx is not installed; run: scripts/setup")
    command = [binary, "-e", "stderr", "-p", directory, "-c", directory / "nginx.conf"]
    with harness.Process("nginx", command) as process:
        wait_for(port)
        yield process


def wait_for(port):
    deadline = time.monotonic() + harness.START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise harness.Failure(f"nobody listens on port {port}") from None
            time.sleep(0.02)


def sign_in(url, account, **browser):
    """A client signs in by the link that it is told; what Chromium says of the last page."""
    client = run.Client(url)
    client.open()
    told = client.call("sign_in")["result"]["content"][0]["text"]
    link = re.search(r"https?://\S+", told).group()
    page = parts.browse(link, account=account, **browser)
    run.check("You are signed in" in page["text"], page)
    run.check(account in json.dumps(client.call("whoami")["result"]), "not", account)
    return link, page


def another_origin(_):
    """People sign in at pages of another origin than the authorization endpoint's."""
    with parts.authority(PAGES="elsewhere") as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            process, url = run.bowline(run.config(parts.said(protected)["url"]))
            with process:
                sign_in(url, "alice")


def proxied(server, path, host):
    """The pages by https, behind nginx."""
    directory, port = Path(tempfile.mkdtemp()), harness.free_port()
    pem = Authority(directory, "gw").certificate(NAME)
    public = f"https://{NAME}:{port}{path}"
    process, url = run.bowline(run.config(server, extra=f'oauth.public_url = "{public}"'))
    with process, nginx(port, url.split("/mcp/")[0], path, host, pem):
        link, page = sign_in(url, "bob", name=NAME)
        run.check(link.startswith(f"{public}/oauth/start?"), link)
        run.check(page["url"].startswith(f"{public}/oauth/callback?"), "elsewhere")
        (cookie,) = page["cookies"]
        run.check(cookie["name"].startswith("__Host-bowline-sign-in-"), cookie)
        run.check((cookie["path"], cookie["secure"]) == ("/", True), cookie)


def with_nginxs_host(server):
    """nginx in front on the same machine, as it is by default: it says the Host of its own connection."""
    proxied(server, "", "")


def with_the_host_kept(server):
    """nginx in front on the same machine, which keeps the Host, with and without the port."""
    for host in [KEPT, KEPT_WITH_PORT]:
        proxied(server, "", host)


def with_a_path(server):
    """nginx has the gateway under a path, with either Host."""
    for host in ["", KEPT]:
        proxied(server, "/some/bowline", host)


def with_a_path_by_http(server):
    """The same by http on this machine: the cookie is for the pages under that path."""
    port = harness.free_port()
    public = f"http://localhost:{port}/bowline"
    process, url = run.bowline(run.config(server, extra=f'oauth.public_url = "{public}"'))
    with process, nginx(port, url.split("/mcp/")[0], "/bowline", ""):
        _, page = sign_in(url, "carol")
        paths = [cookie["path"] for cookie in page["cookies"]]
        run.check(paths == ["/bowline/oauth"], page["cookies"])


TESTS = [another_origin, with_nginxs_host, with_the_host_kept, with_a_path, with_a_path_by_http]
TESTS = {test.__name__: test for test in TESTS}


def main():
    names = sys.argv[1:] or list(TESTS)
    with parts.authority() as authority:
        with parts.protected_server(parts.said(authority)["issuer"]) as protected:
            server = parts.said(protected)["url"]
            for name in names:
                TESTS[name](server)
                print(f"  {name}: {TESTS[name].__doc__.splitlines()[0]}", flush=True)
    parts.check_logs(run.STARTED, kinds=() if sys.argv[1:] else parts.KINDS)
    print(f"{len(names)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    harness.main(main)
