//! Reasons that travel: short, and fit to be shown.

/// The longest reason, in bytes.
const LONGEST: usize = 512;

/// As much of a text as travels. Bounded by bytes, cut between characters.
pub(super) fn bounded(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What a peer gave as its reason. It goes to logs and terminals, so nothing in it may move a cursor or begin a line,
/// and its length is bounded again: the peer may be anybody.
pub(super) fn received(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]);
    text.chars()
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect()
}

/// Neither a control character nor one that changes the direction of writing or the line.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let text = format!("{}é", "x".repeat(LONGEST - 1));
        assert_eq!(bounded(&text), "x".repeat(LONGEST - 1));
        assert_eq!(bounded("short"), "short");
    }

    #[test]
    fn a_received_reason_is_one_plain_line() {
        assert_eq!(received(b"no\x1b[2J\nmemory"), "no?[2J?memory");
        assert_eq!(received("a\u{202e}b\u{2028}".as_bytes()), "a?b?");
        assert_eq!(received(&[b'x'; 4000]), "x".repeat(LONGEST));
        assert_eq!(received(b"\xff"), "\u{fffd}");
    }
}
