//! Clients of the stateless revision (2026-07-28) ask first whether a server knows it. Bowline does not
//! yet, and must say so in the one way on which they all go on with a session.

use bowline_testbed::scripted::Scripted;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::gateway;
use crate::kit::replicas::replicas;

/// Status, code and id: 400, -32600 and the id of the question. With 404, 405 or a code of the
/// revision's own, some clients give up and others believe that the server knows it.
#[tokio::test]
async fn a_probe_is_refused_as_a_session_server_would() {
    let server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    for id in [json!(0), json!("server-discover-1")] {
        let probe = json!({"jsonrpc": "2.0", "id": id, "method": "server/discover", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }}});
        let asked = Client::new(&gateway)
            .post(&probe)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "server/discover");
        let answer = sent(asked).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.code(), -32600, "{}", answer.text);
        assert_eq!(answer.json()["id"], id);
    }
    // The server has not heard of it.
    server.finish();
}

#[tokio::test]
async fn the_rust_sdk_goes_on_with_a_session() {
    let behind = replicas(1).await;
    let gateway = gateway(&behind.urls[0]).await;

    let through = format!("http://{}/mcp/s", gateway.listen());
    let mode = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let client = ClientConfig::default()
        .serve_with_lifecycle(StreamableHttpClientTransport::from_uri(through), mode)
        .await
        .unwrap();
    let called = client
        .call_tool(CallToolRequestParams::new("whoami"))
        .await
        .unwrap();
    assert!(format!("{called:?}").contains("r0"), "{called:?}");
    let replica = &behind.replicas[0];
    assert_eq!(replica.observed().initializes(), 1);
    assert_eq!(replica.live_sessions().await, 1);
    client.cancel().await.unwrap();
}
