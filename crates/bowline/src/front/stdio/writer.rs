//! The one writer of a client: whole lines, one message each, never interleaved.

use bowline_wire::line::framed;
use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many messages wait for a client that does not read. After that, whoever sends one waits.
const MAX_WAITING: usize = 16;

/// Where tasks send messages for the client.
#[derive(Debug, Clone)]
pub(super) struct Writer(mpsc::Sender<Option<Bytes>>);

impl Writer {
    /// A writer, and the task that writes. The task cancels `left` if the client cannot be written to.
    pub(super) fn start(
        output: impl AsyncWrite + Unpin + Send + 'static,
        left: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let writing = async move {
            if let Err(error) = write(output, messages).await {
                tracing::info!(%error, "cannot write to the client");
                left.cancel();
            }
        };
        (Self(sender), writing)
    }

    /// Sends one message, or a batch of them. If the client has left, it is dropped.
    pub(super) async fn send(&self, message: Bytes) {
        drop(self.0.send(Some(message)).await);
    }

    /// Ends the writer after what was sent before.
    pub(super) async fn finish(&self) {
        let finishing = self.0.send(None);
        // A client that does not read any more does not get to this.
        drop(tokio::time::timeout(super::LAST_REQUESTS_AFTER_STOP, finishing).await);
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
