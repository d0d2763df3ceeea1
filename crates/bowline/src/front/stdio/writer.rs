//! The one writer of a client: whole lines, one message each, never interleaved.

use bowline_wire::line::framed;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::front::client::outgoing::Messages;

/// What writes a client's messages until the last. It cancels `left` if the client cannot be written to.
pub(super) async fn write_all(
    output: impl AsyncWrite + Unpin + Send + 'static,
    messages: Messages,
    left: CancellationToken,
) {
    if let Err(error) = write(output, messages).await {
        tracing::info!(%error, "cannot write to the client");
        left.cancel();
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut messages: Messages) -> std::io::Result<()> {
    while let Some(Some(waiting)) = messages.0.recv().await {
        output.write_all(&framed(&waiting.message)).await?;
        output.flush().await?;
    }
    output.shutdown().await
}
