//! The one writer of a client: whole lines, one message each, never interleaved.

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
        output.write_all(&one_line(message)).await?;
        output.write_all(b"\n").await?;
        output.flush().await?;
    }
    output.shutdown().await
}

/// The same JSON without line breaks. They can only be between its tokens: in a string they are escaped.
fn one_line(message: Bytes) -> Bytes {
    if !message.contains(&b'\n') && !message.contains(&b'\r') {
        return message;
    }
    let spaced = message.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    });
    spaced.collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let spread = Bytes::from_static(b"{\r\n  \"text\": \"a\\nb\"\n}");
        assert_eq!(&one_line(spread)[..], b"{    \"text\": \"a\\nb\" }");
    }
}
