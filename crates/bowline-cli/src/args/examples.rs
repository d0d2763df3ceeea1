//! What `--help` shows at the end of each command.

pub(super) const EXAMPLES: &str = "\
Examples:
  bowline demo
      See what breaks a session, and that it holds
  bowline serve
      Try it: runs a built-in demo server behind the gateway
  bowline serve --server files=http://127.0.0.1:8000/mcp
      Put the gateway in front of one server
  bowline serve --config bowline.toml
      Run with a configuration file
  bowline check --config bowline.toml
      Check the file, and print the configuration with its defaults";

pub(super) const SERVE_EXAMPLES: &str = "\
Clients find each server at http://ADDR/mcp/NAME.
Logs go to stderr; RUST_LOG sets their level, such as RUST_LOG=debug.
When the file changes, or on SIGHUP, the configuration is reloaded; one with errors is rejected.

Examples:
  bowline serve
  bowline serve --server files=http://127.0.0.1:8000/mcp
  bowline serve --server files=http://127.0.0.1:8000/mcp --server web=https://mcp.example.com/mcp
  bowline serve --server files=http://10.0.0.1:8000/mcp,http://10.0.0.2:8000/mcp
  bowline serve --config bowline.toml --listen 0.0.0.0:6270 --admin off
  bowline serve --config bowline.toml --listen unix:/run/bowline.sock";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  bowline check --config bowline.toml
  bowline check --config ~/.cursor/mcp.json";

pub(super) const CONNECT_EXAMPLES: &str = "\
In an editor's MCP configuration:
  {\"mcpServers\": {\"files\": {\"command\": \"bowline\", \"args\": [\"connect\", \"https://mcp.example.com/mcp\"]}}}

stdout carries MCP and nothing else. RUST_LOG sets the level of the logs, such as RUST_LOG=debug.
The session ends when stdin is closed, or on SIGTERM or Ctrl-C.

Examples:
  bowline connect https://mcp.example.com/mcp
  bowline connect https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  bowline connect files --config bowline.toml
  bowline connect --config bowline.toml
  bowline connect -- npx -y @modelcontextprotocol/server-everything";

pub(super) const PROBE_EXAMPLES: &str = "\
Examples:
  bowline probe https://mcp.example.com/mcp
  bowline probe https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  bowline probe files --config bowline.toml
  bowline probe -- npx -y @modelcontextprotocol/server-everything
  bowline probe https://mcp.example.com/mcp --json | jq -r .verdict";

pub(super) const HEALTH_EXAMPLES: &str = "\
Examples:
  bowline health
  bowline health --ready --config bowline.toml
  bowline health unix:/run/bowline/admin.sock";

pub(super) const LOGIN_EXAMPLES: &str = "\
Examples:
  bowline login files --config bowline.toml
  bowline login https://mcp.example.com/mcp";

pub(super) const KEYGEN_EXAMPLES: &str = "\
Put the keys into BOWLINE_SEAL_KEYS, or into the file that `seal_keys_file` names: newest first, separated
by commas or line breaks. The first one encrypts, all decrypt. To rotate keys, add the new one after the
old one on every gateway, then put it first, and remove the old one when the oldest session has ended.

Examples:
  BOWLINE_SEAL_KEYS=\"$(bowline keygen)\" bowline serve --config bowline.toml
  (umask 077 && bowline keygen > seal-keys)";

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  bowline demo
  bowline demo --once
  bowline demo --once --svg demo.svg";
