//! What must hold of any bytes that are read as an answer: it does not matter how they were cut, and
//! nothing is made up.
//!
//! The input is the number of cuts, a byte for each cut, and the answer.

use bowline_wire::http1::{Framing, Head, Malformed, take_head};
use bytes::BytesMut;

/// Panics where the input shows a bug.
pub(crate) fn check(input: &[u8]) {
    let [cuts, rest @ ..] = input else {
        return;
    };
    let Some((cuts, answer)) = rest.split_at_checked(usize::from(cuts % 8)) else {
        return;
    };
    let place = |cut: &u8| usize::from(*cut) * (answer.len() + 1) / 256;
    let mut places: Vec<usize> = cuts.iter().map(place).collect();
    places.sort_unstable();
    assert_eq!(
        read(answer, &places),
        read(answer, &[]),
        "cutting changed it"
    );
}

/// What was read: status, body, whether it has ended, what is left.
type Read = (u16, Vec<u8>, bool, Vec<u8>);

fn read(answer: &[u8], cuts: &[usize]) -> Result<Option<Read>, Malformed> {
    let mut input = BytesMut::new();
    let mut head: Option<Head> = None;
    let mut body = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&answer.len()]) {
        input.extend_from_slice(&answer[from..to]);
        from = to;
        if head.is_none() {
            head = take_head(&mut input)?;
        }
        let Some(Head { body: framing, .. }) = &mut head else {
            continue;
        };
        let before = framing.left();
        let length = body.len();
        while let Some(data) = framing.take(&mut input)? {
            assert!(!data.is_empty());
            body.extend_from_slice(&data);
        }
        if let Some(before) = before {
            let taken = (body.len() - length) as u64;
            assert_eq!(framing.left(), Some(before - taken), "counted wrongly");
        }
        assert!(input.is_empty() || !matches!(framing, Framing::Bytes(_) | Framing::UntilClosed));
    }
    assert!(body.len() + input.len() <= answer.len(), "made up");
    Ok(head.map(|head| {
        let has_ended = head.body.has_ended();
        (head.status.as_u16(), body, has_ended, input.to_vec())
    }))
}
