//! `bowline health`: asks a running gateway how it is, for containers and service managers whose health
//! check is a command. The answer is the gateway's own, of its admin listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use bowline::config::ListenAddress;
use bowline_system::printable::escaped;
use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::args::HealthArguments;
use crate::failure::Failure;
use crate::plan::config_of;
use crate::print;

/// The longest answer that is read: that of a gateway with thousands of servers is shorter.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Prints the gateway's answer. The code is 0 if it is well, or 1.
pub(crate) async fn health(arguments: &HealthArguments) -> Result<ExitCode, Failure> {
    let admin = match &arguments.admin {
        Some(address) => address.clone(),
        None => configured(arguments)?,
    };
    let path = match arguments.ready {
        true => "/ready",
        false => "/health",
    };
    let asked = timeout(arguments.timeout, ask(&admin, path)).await;
    let asked = asked.map_err(|_| anyhow!("no answer within {:?}", arguments.timeout));
    let (status, body) = asked
        .and_then(|answered| answered)
        .with_context(|| format!("the gateway at {admin} is not well"))?;
    // Whoever has the port may have written it.
    let said = String::from_utf8_lossy(&body);
    print(format_args!("{}\n", escaped(said.trim_end())))?;
    Ok(match status.is_success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Where the gateway with this configuration has its admin listener.
fn configured(arguments: &HealthArguments) -> Result<ListenAddress, Failure> {
    let config = config_of(arguments.config.as_deref())?;
    config.admin.ok_or_else(|| {
        Failure::usage(
            "the admin listener is off, and nothing else tells how the gateway is",
            "give `admin` an address in the configuration, such as \"127.0.0.1:6271\"",
        )
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the gateway is on this machine, and this process is none"
)]
async fn ask(admin: &ListenAddress, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    match admin {
        ListenAddress::Tcp(address) => {
            let address = reachable(*address);
            let stream = TcpStream::connect(address).await?;
            get(stream, &address.to_string(), path).await
        }
        ListenAddress::Unix(socket) => {
            let stream = UnixStream::connect(socket).await?;
            get(stream, "localhost", path).await
        }
    }
}

/// Where a listener of this address is reached from the same machine.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[expect(clippy::disallowed_methods, reason = "the body is limited")]
async fn get<S>(stream: S, host: &str, path: &str) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(HOST, host)
        .body(Empty::<Bytes>::new())?;
    let answered = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!(error))?.to_bytes();
        Ok((head.status, body))
    };
    // The connection ends by itself only when nobody has anything to send on it any more.
    tokio::pin!(answered, connection);
    tokio::select! {
        answered = &mut answered => answered,
        ended = &mut connection => {
            ended?;
            answered.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_asked_on_this_machine() {
        let asked = |listener: &str| reachable(listener.parse().unwrap()).to_string();
        assert_eq!(asked("0.0.0.0:6271"), "127.0.0.1:6271");
        assert_eq!(asked("[::]:6271"), "[::1]:6271");
        assert_eq!(asked("10.0.0.1:80"), "10.0.0.1:80");
    }
}
