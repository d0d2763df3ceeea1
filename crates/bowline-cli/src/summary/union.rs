//! What `bowline check` prints about unions, and about servers in them.

use std::fmt;

use bowline::config::{Config, Server, ServerName, Union};

use super::{duration, key, string, strings};

/// The unions, if there are several servers or a union was written.
pub(super) fn unions(f: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    let whole = config.whole_union();
    if config.servers.len() > 1 {
        writeln!(f, "\n# /mcp\n[union]")?;
        union(f, &whole)?;
    }
    for (name, one) in &config.unions {
        writeln!(f, "\n[unions.{}]", key(name.as_ref()))?;
        union(f, one)?;
    }
    Ok(())
}

fn union(f: &mut fmt::Formatter<'_>, union: &Union) -> fmt::Result {
    writeln!(f, "servers = [{}]", names(&union.servers))?;
    writeln!(f, "names = \"{}\"", union.names.name())?;
    writeln!(f, "separator = {}", string(&union.separator))
}

/// Names of servers, as in a list.
pub(super) fn names(servers: &[ServerName]) -> String {
    let names: Vec<_> = servers.iter().map(ToString::to_string).collect();
    strings(&names)
}

/// What a server is in a union, if it can be in one, and which of its tools may be used.
pub(super) fn member(
    f: &mut fmt::Formatter<'_>,
    config: &Config,
    name: &ServerName,
    server: &Server,
) -> fmt::Result {
    if config.servers.len() > 1 || !config.unions.is_empty() {
        writeln!(f, "prefix = {}", string(server.prefix(name)))?;
        writeln!(f, "required = {}", server.required)?;
        writeln!(f, "list_timeout = {}", duration(server.list_timeout))?;
    }
    let Some(tools) = &server.tools else {
        return Ok(());
    };
    let allow = tools.allow.as_ref();
    let allow = allow.map(|globs| format!("allow = [{}], ", strings(globs)));
    let (allow, deny) = (allow.unwrap_or_default(), strings(&tools.deny));
    writeln!(f, "tools = {{ {allow}deny = [{deny}] }}")
}
