//! Which addresses may be dialled for a URL from an untrusted source.
//!
//! A server names its authorization server, that one names its endpoints, and any of them may
//! redirect. The author of those URLs must not be able to make the gateway send requests to places that only
//! it can reach (SSRF). So addresses are checked, not names: every address, after it is resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;

use super::Origin;

/// What may be dialled on behalf of one server: public addresses, the loopback interface for a
/// server on it, the private network for a server whose URL has an address in it, and everything where
/// the operator says so.
#[derive(Debug, Clone)]
pub struct Reach {
    server: Origin,
    allow_private: bool,
}

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Public,
    Loopback,
    Private,
    /// Link-local (including cloud metadata services), carrier-grade NAT, reserved, documentation,
    /// multicast, or an address that embeds another.
    Closed,
}

// === impl Reach ===

impl Reach {
    /// What may be dialled for the server at this URL; with `allow_private`, everything.
    pub fn new(server: &Uri, allow_private: bool) -> Self {
        Self {
            server: Origin::of(server),
            allow_private,
        }
    }

    /// The server's own origin.
    pub(super) fn server(&self) -> &Origin {
        &self.server
    }

    /// Whether unencrypted requests are allowed at all: not for a server that is reached by https,
    /// unless the operator allows private addresses.
    pub(super) fn allows_plain(&self) -> bool {
        !self.server.https || self.allow_private
    }

    /// Whether an unencrypted request to these addresses is allowed: to public ones, only for a server
    /// that is itself reached without encryption.
    pub(super) fn allows_plain_to(&self, addresses: &[SocketAddr]) -> bool {
        let is_near = |address: &SocketAddr| Class::of(address.ip()) != Class::Public;
        !self.server.https || (self.allow_private && addresses.iter().all(is_near))
    }

    /// The first of these addresses that must not be dialled.
    pub(super) fn refused(&self, addresses: &[SocketAddr]) -> Option<IpAddr> {
        if self.allow_private {
            return None;
        }
        let near = self.server_class();
        let is_refused = |address: &IpAddr| match Class::of(*address) {
            Class::Public => false,
            Class::Closed => true,
            class @ (Class::Loopback | Class::Private) => class != near,
        };
        addresses.iter().map(SocketAddr::ip).find(is_refused)
    }

    /// Where the server is, according to the configuration alone: the owner of a name decides what it
    /// resolves to, and must not get access to this machine's services or its network.
    fn server_class(&self) -> Class {
        let host = self.server.host();
        if let Ok(address) = host.parse() {
            return Class::of(address);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match host == "localhost" || host.ends_with(".localhost") {
            true => Class::Loopback,
            false => Class::Public,
        }
    }
}

// === impl Class ===

impl Class {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [127, ..] => Self::Loopback,
            _ if address.is_private() => Self::Private,
            // "This network", carrier-grade NAT, link-local, IETF protocol assignments, benchmarks, and
            // everything from multicast on.
            [0, ..] | [100, 64..=127, ..] | [169, 254, ..] | [192, 0, 0, _] => Self::Closed,
            [198, 18..=19, ..] | [224..=255, ..] => Self::Closed,
            // Azure's host service, reachable from every virtual machine.
            [168, 63, 129, 16] => Self::Closed,
            _ if address.is_documentation() => Self::Closed,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if address == Ipv6Addr::LOCALHOST {
            return Self::Loopback;
        }
        match address.segments() {
            // In an IPv6-only network, every IPv4 address looks like this (RFC 6052).
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                match Self::of_v4(Ipv4Addr::new(a, b, c, d)) {
                    Self::Public => Self::Public,
                    _ => Self::Closed,
                }
            }
            // The metadata services of AWS and Google Cloud.
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
                Self::Closed
            }
            [0xfc00..=0xfdff, ..] => Self::Private,
            // Teredo and other protocols, documentation, and 6to4, which embeds an IPv4 address.
            [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Closed,
            [0x2002, ..] => Self::Closed,
            [0x2000..=0x3fff, ..] => Self::Public,
            // Nothing else is a global unicast address: embedded IPv4, link-local, site-local,
            // multicast, unspecified.
            _ => Self::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str, addresses: &[&str]) -> bool {
        let reach = Reach::new(&server.parse().unwrap(), false);
        is_refused(&reach, addresses)
    }

    fn is_refused(reach: &Reach, addresses: &[&str]) -> bool {
        let addresses: Vec<SocketAddr> = addresses
            .iter()
            .map(|address| SocketAddr::new(address.parse().unwrap(), 443))
            .collect();
        reach.refused(&addresses).is_some()
    }

    const LOOPBACK: [&str; 3] = ["127.0.0.1", "127.8.8.8", "::1"];
    const PRIVATE: [&str; 4] = ["10.1.2.3", "172.16.0.1", "192.168.9.9", "fd12::1"];
    const CLOSED: [&str; 30] = [
        "0.0.0.0",
        "0.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "169.254.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "::",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2001::1",
        "2001:db8::1",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
    ];

    #[test]
    fn for_a_public_server_only_what_is_public() {
        for server in ["https://mcp.example/mcp", "https://8.8.8.8/"] {
            for address in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1"] {
                assert!(!refused(server, &[address]), "{address}");
            }
            // An IPv4 address as an IPv6-only network shows it.
            assert!(!refused(server, &["64:ff9b::808:808"]));
            for address in LOOPBACK.iter().chain(&PRIVATE).chain(&CLOSED) {
                assert!(refused(server, &[address]), "{address}");
                assert!(refused(server, &["8.8.8.8", address]), "{address}");
            }
        }
    }

    #[test]
    fn for_a_near_server_what_is_as_near() {
        for server in [
            "http://localhost:1/",
            "http://a.LOCALHOST./",
            "http://127.0.0.1/",
            "http://[::1]/",
        ] {
            assert!(!refused(server, &LOOPBACK), "{server}");
            assert!(refused(server, &PRIVATE[..1]), "{server}");
        }
        for server in [
            "http://10.0.0.4/",
            "http://192.168.1.1/",
            "http://[fd12::2]/",
        ] {
            assert!(!refused(server, &PRIVATE), "{server}");
            assert!(refused(server, &LOOPBACK[..1]), "{server}");
        }
        for server in [
            "http://localhost/",
            "http://10.0.0.4/",
            "http://169.254.1.1/",
        ] {
            for address in CLOSED {
                assert!(refused(server, &[address]), "{server} {address}");
            }
        }
    }

    /// The text of the name makes no difference.
    #[test]
    fn a_names_owner_opens_neither_the_gateways_machine_nor_its_network() {
        for server in [
            "http://mcp.corp/",
            "http://localhost.example/",
            "http://10.0.0.4.example/",
        ] {
            assert!(refused(server, &LOOPBACK[..1]), "{server}");
            assert!(refused(server, &PRIVATE[..1]), "{server}");
        }
    }

    #[test]
    fn an_https_servers_business_is_plain_nearby_at_most() {
        let addresses = |text: &[&str]| -> Vec<SocketAddr> {
            let parse = |it: &&str| SocketAddr::new(it.parse().unwrap(), 80);
            text.iter().map(parse).collect()
        };
        let (near, far) = (
            addresses(&["10.0.0.4"]),
            addresses(&["10.0.0.4", "8.8.8.8"]),
        );
        for (server, allow_private, nearby, anywhere) in [
            ("https://mcp.example/", false, false, false),
            ("https://mcp.example/", true, true, false),
            ("http://mcp.example/", false, true, true),
        ] {
            let reach = Reach::new(&server.parse().unwrap(), allow_private);
            assert_eq!(reach.allows_plain(), nearby, "{server}");
            assert_eq!(reach.allows_plain_to(&near), nearby, "{server}");
            assert_eq!(reach.allows_plain_to(&far), anywhere, "{server}");
        }
    }

    #[test]
    fn the_operator_may_allow_everything() {
        let reach = Reach::new(&"https://mcp.example/".parse().unwrap(), true);
        for address in LOOPBACK.iter().chain(&PRIVATE).chain(&CLOSED) {
            assert!(!is_refused(&reach, &[address]), "{address}");
        }
    }
}
