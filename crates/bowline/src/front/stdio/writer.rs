//! The one writer of a client: whole lines, one message each, never interleaved.

use bowline_wire::line::framed;
use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What writes a client's messages until the last. It cancels `left` if the client cannot be written to.
pub(super) async fn write_all(
    output: impl AsyncWrite + Unpin + Send + 'static,
    messages: mpsc::Receiver<Option<Bytes>>,
    left: CancellationToken,
) {
    if let Err(error) = write(output, messages).await {
        tracing::info!(%error, "cannot write to the client");
        left.cancel();
    }
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Option<Bytes>>,
) -> std::io::Result<()> {
    while let Some(Some(message)) = messages.recv().await {
        output.write_all(&framed(&message)).await?;
        output.flush().await?;
    }
    output.shutdown().await
}
