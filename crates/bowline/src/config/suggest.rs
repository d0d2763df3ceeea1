//! "Did you mean": the known key nearest to an unknown one.

/// The known key that a writer most likely meant, if any is near enough to be worth saying.
pub(super) fn nearest<'k>(unknown: &str, known: &[&'k str]) -> Option<&'k str> {
    // Nothing that long is a slip of the pen, and the distance costs the product of the lengths.
    if unknown.len() > 64 {
        return None;
    }
    let unknown = unknown.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|&key| (distance(&unknown, key), key))
        .filter(|&(distance, key)| distance <= (key.len() / 3).max(1))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, key)| key)
}

/// Levenshtein's distance in characters, a row of the table at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut next = vec![index + 1];
        let mut last = index + 1;
        for (&to, above) in right.iter().zip(row.windows(2)) {
            let &[diagonal, above] = above else { continue };
            last = (diagonal + usize::from(from != to))
                .min(above + 1)
                .min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
