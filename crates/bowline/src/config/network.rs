//! Addresses that belong together.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

/// The addresses that begin alike, such as `10.0.0.0/8`; or a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is not a network.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not an IP address, nor a network such as `10.0.0.0/8`")]
pub struct NotANetwork;

impl Network {
    /// Whether an address is one of these. IPv4 is the same however IPv6 writes it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }

    fn longest(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let longest = Self::longest(address);
        let bits = match bits {
            None => longest,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| NotANetwork)?
            }
            Some(_) => return Err(NotANetwork),
        };
        if bits > longest {
            return Err(NotANetwork);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == Self::longest(self.address) {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_in_a_network() {
        for (text, address) in [
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3/8", "10.255.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("0.0.0.0/0", "203.0.113.9"),
            ("2001:db8::/32", "2001:db8:1::1"),
            ("::1", "::1"),
        ] {
            assert!(network(text).contains(address.parse().unwrap()), "{text}");
        }
        for (text, address) in [
            ("10.0.0.0/8", "11.0.0.1"),
            ("192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "::1"),
            ("2001:db8::/32", "2001:db9::1"),
        ] {
            assert!(!network(text).contains(address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_no_network() {
        for text in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "a/8",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
        for text in ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1"] {
            assert_eq!(network(text).to_string(), text);
        }
    }
}
