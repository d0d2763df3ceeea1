//! What the program says of itself.

use snapbox::{assert_data_eq, str};

use crate::running::{bowline, run};

#[test]
fn help() {
    let (code, stdout, stderr) = run(bowline().arg("--help"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_data_eq!(
        stdout,
        str![[r#"
A session-keeping gateway for MCP.

Bowline sits between MCP clients and MCP servers. A client's session keeps working when its server restarts, moves or forgets it.

Usage: bowline <COMMAND>

Commands:
  serve    Run the gateway
  demo     See sessions break, and hold
  check    Check the configuration and print it with its defaults
  connect  Connect an editor to a server: MCP on stdin and stdout
  probe    Examine a server: what it speaks, and what is wrong with it
  health   Ask a running gateway whether it is well
  schema   Print the JSON Schema of the configuration file
  login    Sign in at a server
  logout   Sign out at a server
  auth     Print who is signed in at which server, and when tokens expire
  keygen   Print a new seal key
  help     Print this message or the help of the given subcommand(s)

Options:
  -h, --help
          Print help (see a summary with '-h')

  -V, --version
          Print version

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
      Check the file, and print the configuration with its defaults

"#]]
    );
}

#[test]
fn without_a_command_help_is_shown() {
    let (code, stdout, stderr) = run(&mut bowline());
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("Usage: bowline <COMMAND>"), "{stderr}");
    assert!(stderr.contains("Examples:"), "{stderr}");
}

#[test]
fn help_of_serve() {
    let (code, stdout, stderr) = run(bowline().args(["serve", "--help"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_data_eq!(
        stdout,
        str![[r#"
Run the gateway

Without servers it runs a small built-in demo server and prints what to try.

Usage: bowline serve [OPTIONS]

Options:
  -c, --config <FILE>
          Read the configuration from this file: TOML, or an editor's JSON with `mcpServers`

      --listen <ADDR>
          Serve MCP clients here, or on a Unix socket (`unix:PATH`) [default: 127.0.0.1:6270]

      --admin <ADDR|off>
          Serve health, metrics and the API here; `off` serves them nowhere [default: 127.0.0.1:6271]

      --server <NAME=URL[,URL...]>
          Add an MCP server, or replace the file's server of that name; may be repeated
          
          Several URLs, separated by commas, are replicas of one server: each session stays with one of them.

      --mcp-oauth-redirect-uri <URI>
          Sign callers in at servers (OAuth), with this redirect URI
          
          The program at this URI passes the authorization code on to Bowline, as the answer to an elicitation or with `POST /api/mcp-oauth/callback`. This applies to the servers of `--server`, and to those of the file that have `oauth` without a `redirect_uri` or `flow`.

      --mcp-oauth-flow <FLOW>
          Sign callers in at servers (OAuth), in this flow: `managed`, `client-driven` or `drive`
          
          This applies to the same servers. `drive` needs a redirect URI.

      --mcp-oauth-host <HOST>
          Sign callers in at servers (OAuth), with prompts for the clients of this program: `docker-agent`
          
          The flow is `managed`, or `drive` with a redirect URI; `--mcp-oauth-flow` wins. Clients that sign in by themselves may answer with tokens.

      --mcp-oauth-meta-prefix <PREFIX>
          Begin the keys in a prompt's `_meta` with this [default: what the host knows, or `bowline`]

      --log-format <FORMAT>
          The format of the logs: text for people, json for programs

          Possible values:
          - text: A line of text per event
          - json: A JSON object per event
          
          [default: text]

  -h, --help
          Print help (see a summary with '-h')

Clients find each server at http://ADDR/mcp/NAME.
Logs go to stderr; RUST_LOG sets their level, such as RUST_LOG=debug.
When the file changes, or on SIGHUP, the configuration is reloaded; one with errors is rejected.

Examples:
  bowline serve
  bowline serve --server files=http://127.0.0.1:8000/mcp
  bowline serve --server files=http://127.0.0.1:8000/mcp --server web=https://mcp.example.com/mcp
  bowline serve --server files=http://10.0.0.1:8000/mcp,http://10.0.0.2:8000/mcp
  bowline serve --config bowline.toml --listen 0.0.0.0:6270 --admin off
  bowline serve --config bowline.toml --listen unix:/run/bowline.sock

"#]]
    );
}
