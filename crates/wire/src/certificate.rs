//! When a certificate is valid: the two dates of X.509 (RFC 5280, 4.1.2.5), read from its DER.
//!
//! For the listener's own certificate and for those of clients. Names, keys and signatures are rustls' business,
//! which does not tell these dates.

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

/// The tags of the values on the way to the dates.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

impl Validity {
    /// That of a certificate; `None` if it is none.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (mut certificate, _) = expect(certificate, SEQUENCE)?;
        let mut signed = take(&mut certificate, SEQUENCE)?;
        if let Some((_, rest)) = expect(signed, VERSION) {
            signed = rest;
        }
        take(&mut signed, INTEGER)?; // the serial number
        take(&mut signed, SEQUENCE)?; // the algorithm
        take(&mut signed, SEQUENCE)?; // the issuer
        let mut dates = take(&mut signed, SEQUENCE)?;
        Some(Self {
            not_before: date(&mut dates)?,
            not_after: date(&mut dates)?,
        })
    }
}

/// The contents of the next value, if it has this tag.
fn take<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (contents, rest) = expect(from, tag)?;
    *from = rest;
    Some(contents)
}

/// The contents of the first value, if it has this tag, and what comes after it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        // No certificate has more than 16 MiB.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let add = |sum, digit: &u8| sum << 8 | usize::from(*digit);
            (digits.iter().fold(0, add), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length).filter(|_| found == tag)
}

/// The next date, `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn date(from: &mut &[u8]) -> Option<i64> {
    let (year, text) = match take(from, UTC_TIME) {
        Some(text) => {
            let (year, text) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text)
        }
        None => {
            let (year, text) = take(from, GENERALIZED_TIME)?.split_at_checked(4)?;
            (number(year)?, text)
        }
    };
    let (digits, [b'Z']) = text.split_at_checked(10)? else {
        return None;
    };
    let mut parts = digits.chunks_exact(2).map(number);
    let mut within = |from, to| parts.next()?.filter(|part| (from..=to).contains(part));
    let (month, day) = (within(1, 12)?, within(1, 31)?);
    let (hour, minute, second) = (within(0, 23)?, within(0, 59)?, within(0, 59)?);
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(sum * 10 + i64::from(digit))
    })
}

/// The days from 1970 to a date. Years are counted from March, so that a leap day is the last day of one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value of DER.
    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len();
        let mut value = match u8::try_from(length) {
            Ok(short @ ..=0x7f) => vec![tag, short],
            Ok(long) => vec![tag, 0x81, long],
            Err(_) => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        value.extend_from_slice(contents);
        value
    }

    /// The part of a certificate before what follows the dates.
    fn certificate(dates: &[(u8, &str)], issuer: usize) -> Vec<u8> {
        let dates: Vec<u8> = dates
            .iter()
            .flat_map(|(tag, text)| der(*tag, text.as_bytes()))
            .collect();
        let parts = [
            der(VERSION, &[2, 1, 2]),
            der(INTEGER, &[7]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &vec![0; issuer]),
            der(SEQUENCE, &dates),
            der(SEQUENCE, &[]),
        ];
        der(SEQUENCE, &der(SEQUENCE, &parts.concat()))
    }

    #[test]
    fn dates_are_read_in_both_forms() {
        let dates = [
            (UTC_TIME, "700101000000Z"),
            (GENERALIZED_TIME, "20991231235959Z"),
        ];
        for issuer in [0, 100, 200, 3000] {
            let validity = Validity::of(&certificate(&dates, issuer));
            let (not_before, not_after) = (0, 4_102_444_799);
            assert_eq!(
                validity,
                Some(Validity {
                    not_before,
                    not_after
                })
            );
        }
        for (text, seconds) in [
            ("240229120000Z", 1_709_208_000),
            ("491231235959Z", 2_524_607_999),
            ("500101000000Z", -631_152_000),
            ("000301000000Z", 951_868_800),
        ] {
            let validity = Validity::of(&certificate(&[(UTC_TIME, text); 2], 9)).unwrap();
            assert_eq!(validity.not_after, seconds, "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "Z",
            "2402291200Z",
            "240229120000",
            "240229120000+0100",
            "241329120000Z",
            "240200120000Z",
            "24022912a000Z",
            "240229250000Z",
        ] {
            let certificate = certificate(&[(UTC_TIME, text); 2], 9);
            assert_eq!(Validity::of(&certificate), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(cut in 0usize..200, at in 0usize..200, byte: u8) {
            let dates = [(UTC_TIME, "240229120000Z"); 2];
            let mut bytes = certificate(&dates, 60);
            let whole = Validity::of(&bytes);
            if let Some(spoiled) = bytes.get_mut(at) {
                *spoiled = byte;
            }
            bytes.truncate(cut.max(1));
            let read = Validity::of(&bytes);
            prop_assert!(read.is_none() || whole.is_some());
        }
    }
}
