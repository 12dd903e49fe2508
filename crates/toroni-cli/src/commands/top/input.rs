//! Bytes of a terminal as keys: characters, and the sequences of the keys that `top` uses. Does no I/O.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const ESCAPE: u8 = 0x1b;
/// No key that `top` knows has a longer sequence. What is longer is none.
const LONGEST: usize = 16;

/// Makes keys of bytes. A sequence may come in parts.
#[derive(Default)]
pub(super) struct Input {
    held: Vec<u8>,
}

impl Input {
    /// Returns the keys that are complete.
    pub(super) fn keys(&mut self, bytes: &[u8]) -> Vec<KeyEvent> {
        self.held.extend(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        let mut keys = Vec::new();
        while let Some(first) = rest.first() {
            let (key, taken) = match first {
                &ESCAPE => match sequence(rest) {
                    Some(found) => found,
                    None if rest.len() < LONGEST => break,
                    None => (None, rest.len()),
                },
                b'\r' | b'\n' => (plain(KeyCode::Enter), 1),
                0x7f | 0x08 => (plain(KeyCode::Backspace), 1),
                0x01..=0x1a => {
                    let letter = char::from(first + b'a' - 1);
                    (Some(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)), 1)
                }
                _ => match character(rest) {
                    Some((c, taken)) => (c.and_then(|c| plain(KeyCode::Char(c))), taken),
                    None => break,
                },
            };
            keys.extend(key);
            rest = &rest[taken..];
        }
        self.held = rest.to_vec();
        keys
    }
}

fn plain(code: KeyCode) -> Option<KeyEvent> {
    Some(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Returns the key of the sequence at the front and its length. `None` if its end is missing.
fn sequence(bytes: &[u8]) -> Option<(Option<KeyEvent>, usize)> {
    // A terminal sends the bytes of one key at once. So an escape at the end is the key Esc.
    let (is_long, start) = match bytes.get(1) {
        Some(b'[') => (true, 2),
        Some(b'O') => (false, 2),
        _ => return Some((plain(KeyCode::Esc), 1)),
    };
    let length = bytes[start..].iter().position(|byte| !is_long || (0x40..0x7f).contains(byte))?;
    let (parameters, last) = (&bytes[start..start + length], bytes[start + length]);
    let code = match (parameters, last) {
        (_, b'A') => Some(KeyCode::Up),
        (_, b'B') => Some(KeyCode::Down),
        (_, b'H') | (b"1" | b"7", b'~') => Some(KeyCode::Home),
        (_, b'F') | (b"4" | b"8", b'~') => Some(KeyCode::End),
        (b"5", b'~') => Some(KeyCode::PageUp),
        (b"6", b'~') => Some(KeyCode::PageDown),
        _ => None,
    };
    Some((code.and_then(plain), start + length + 1))
}

/// Returns the character at the front, if it is one, and its length. `None` if its end is missing.
fn character(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let front = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(front) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&front[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return error.error_len().map(|length| (None, length)),
    };
    let c = valid.chars().next();
    Some((c, c.map_or(1, char::len_utf8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(input: &mut Input, bytes: &[u8]) -> Vec<KeyCode> {
        input.keys(bytes).into_iter().map(|key| key.code).collect()
    }

    #[test]
    fn keys_are_told_apart() {
        let mut input = Input::default();
        for (bytes, wanted) in [
            (&b"q"[..], KeyCode::Char('q')),
            ("ä".as_bytes(), KeyCode::Char('ä')),
            (b"\r", KeyCode::Enter),
            (b"\x7f", KeyCode::Backspace),
            (b"\x1b", KeyCode::Esc),
            (b"\x1b[A", KeyCode::Up),
            (b"\x1bOB", KeyCode::Down),
            (b"\x1b[5~", KeyCode::PageUp),
            (b"\x1b[6~", KeyCode::PageDown),
            (b"\x1b[H", KeyCode::Home),
            (b"\x1b[4~", KeyCode::End),
        ] {
            assert_eq!(codes(&mut input, bytes), [wanted], "{bytes:?}");
        }
        let control = input.keys(b"\x03");
        assert_eq!(control, [KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)]);
        let many = [KeyCode::Esc, KeyCode::Char('2'), KeyCode::Up, KeyCode::Char('p')];
        assert_eq!(codes(&mut input, b"\x1b2\x1b[Ap"), many);
        // Keys that it does not know, and mice.
        assert_eq!(codes(&mut input, b"\x1b[15~\x1b[<0;1;1Mx"), [KeyCode::Char('x')]);
    }

    #[test]
    fn a_key_may_come_in_parts() {
        let mut input = Input::default();
        assert_eq!(codes(&mut input, b"\x1b["), []);
        assert_eq!(codes(&mut input, b"B"), [KeyCode::Down]);
        assert_eq!(codes(&mut input, "温".as_bytes()[..2].as_ref()), []);
        assert_eq!(codes(&mut input, &"温".as_bytes()[2..]), [KeyCode::Char('温')]);
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut input = Input::default();
        assert_eq!(codes(&mut input, b"\xff\xc3("), [KeyCode::Char('(')]);
        assert_eq!(codes(&mut input, &[b"\x1b[".as_slice(), &[b'0'; 40]].concat()), []);
        assert_eq!(codes(&mut input, b"q"), [KeyCode::Char('q')], "an endless sequence ends");
        let mut random = toroni_testkit::Random::from_environment();
        for _ in 0..10_000 {
            let bytes: Vec<u8> =
                (0..random.below(9)).map(|_| random.number().to_le_bytes()[0]).collect();
            input.keys(&bytes);
            assert!(input.held.len() < LONGEST, "{:?}", input.held);
        }
    }
}
