//! Several servers as one MCP server.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the union's lists and calls use it")
)]
pub(crate) mod names;
