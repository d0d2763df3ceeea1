"""The ways that are measured: a server, and what stands before it."""

import os

from .processes import Process, scratch
from .tools import need

THREADS = 2

NGINX = """\
daemon off;
{user}
worker_processes {threads};
worker_rlimit_nofile {files};
pid {directory}/nginx-{port}.pid;
error_log stderr error;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  client_body_temp_path {directory}/nginx-body;
  proxy_temp_path {directory}/nginx-proxy;
  fastcgi_temp_path {directory}/nginx-fastcgi;
  uwsgi_temp_path {directory}/nginx-uwsgi;
  scgi_temp_path {directory}/nginx-scgi;
  keepalive_requests 100000000;
  upstream servers {{
    server 127.0.0.1:{upstream};
    keepalive 256;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    tcp_nodelay on;
    location / {{
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 10m;
    }}
  }}
}}
"""

HAPROXY = """\
global
  nbthread {threads}
  maxconn {connections}
defaults
  mode http
  timeout connect 5s
  timeout client 10m
  timeout server 10m
  option http-no-delay
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend servers
backend servers
  stick-table type string len 64 size 200k expire 30m
  stick match req.hdr(mcp-session-id)
  stick store-response res.hdr(mcp-session-id)
{servers}
"""

# What HAProxy has against the death of a server: another gets the request.
REDISPATCH = """\
  retries 3
  option redispatch 1
"""


class Path:
    """One way to a server. `start` gives an own instance of what stands before it."""

    def __init__(self, key, title, start):
        self.key, self.title, self.start = key, title, start


def _configuration(template, name, port, files, **more):
    path = scratch() / f"{name}-{port}.conf"
    # A proxied connection is two files.
    values = dict(threads=THREADS, files=files, connections=(files - 200) // 2)
    values.update(directory=scratch(), port=port, **more)
    values["user"] = "user root;" if os.getuid() == 0 else ""
    path.write_text(template.format(**values))
    return path


def upstream(release):
    bench = release / "bowline-bench"
    return Process("upstream", lambda port: [bench, "upstream", "--listen", f"127.0.0.1:{port}"])


def nginx(server, files):
    program = need("nginx")
    make = lambda port: [program, "-p", scratch(), "-e", "stderr", "-c",
                         _configuration(NGINX, "nginx", port, files, upstream=server.port)]
    return Process("nginx", make)


def haproxy(servers, files):
    """HAProxy before one server, or before several of which another takes a dead one's requests."""
    program = need("haproxy")
    lines = [f"  server s{server.port} 127.0.0.1:{server.port}" for server in servers]
    if len(servers) > 1:
        lines = [REDISPATCH, *(f"{line} check" for line in lines)]
    make = lambda port: [program, "-db", "-f",
                         _configuration(HAPROXY, "haproxy", port, files, servers="\n".join(lines))]
    return Process("haproxy", make)


def bowline(program, servers, copies=1, extra=()):
    """Bowline before one server of one or more replicas, configured `copies` times."""
    urls = ",".join(f"http://127.0.0.1:{server.port}/mcp" for server in servers)
    named = [word for number in range(copies) for word in ("--server", f"s{number}={urls}")]
    make = lambda port: [program, "serve", "--listen", f"127.0.0.1:{port}",
                         "--admin", "off", *named, *extra]
    return Process("bowline", make)


STORED = """\
listen = "127.0.0.1:{port}"
admin = "off"
[store]
kind = "{kind}"
{more}
[servers.s]
url = "http://127.0.0.1:{upstream}/mcp"
"""

# Any 32 bytes; nothing here is secret.
os.environ["BOWLINE_SEAL_KEYS"] = "A" * 43 + "="


def bowline_on(release, server, kind, more=""):
    """Bowline that keeps its sessions in a store of this kind."""
    def make(port):
        path = scratch() / f"bowline-{port}.toml"
        state = scratch() / f"state-{port}"
        here = f'path = "{state}"' if kind == "file" else ""
        path.write_text(STORED.format(
            port=port, kind=kind, more="\n".join((here, more)), upstream=server.port))
        return [release / "bowline", "serve", "-c", path]
    return Process(f"bowline-{kind}", make)


def redis():
    """A Redis that keeps nothing on the disk."""
    program = need("redis-server")
    return Process("redis", lambda port: [
        program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
