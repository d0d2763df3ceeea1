//! What Bowline is tested against. Development only; nothing here ships.

/// The "everything" MCP server on rmcp, as a library and as the program `fixture-server`.
pub mod everything;
