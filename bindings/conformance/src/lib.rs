//! What the programs in Rust and the test across languages share: what a message holds, and its hash. README.md
//! beside this folder's manifest says what the programs of each language take and write.

#![allow(missing_docs, reason = "only this repository uses the crate")]

use toroni::{Lost, Origin, Pattern};

/// What a publisher has to publish.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Its number, of any.
    pub id: u64,
    /// Bytes of the longest, at least 16.
    pub size: u64,
}

impl Messages {
    /// Message `number`.
    #[must_use]
    pub fn message(self, number: u64) -> Vec<u8> {
        let length = 16 + number.wrapping_mul(37) % (self.size - 15);
        let mut bytes = Vec::new();
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        let base = self.id.wrapping_mul(17).wrapping_add(number.wrapping_mul(31));
        bytes.extend((16..length).map(|i| base.wrapping_add(i.wrapping_mul(7)).to_le_bytes()[0]));
        bytes
    }
}

/// FNV-1a of 64 bits.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Origin and number of a message, as the program `subscribe` prints them.
#[must_use]
pub fn from_elsewhere(origin: Option<Origin>, number: Option<u64>) -> String {
    let origin = origin.map_or_else(
        || "-".to_owned(),
        |Origin { source, series, stream, number }| format!("{source}.{series}.{stream}.{number}"),
    );
    format!("{origin}\t{}", number.map_or_else(|| "-".to_owned(), |number| number.to_string()))
}

/// A loss from elsewhere, as the program `subscribe` prints it.
#[must_use]
pub fn gone(lost: &Lost) -> String {
    let Origin { source, series, stream, number } = lost.from;
    let Lost { until, messages, bound, reason, .. } = lost;
    let (bound, reason) = (*bound as u8, *reason as u8);
    let scope: Vec<&str> = lost.scope.iter().map(Pattern::as_str).collect();
    let scope = scope.join(",");
    format!(
        "gone\t{source}.{series}.{stream}.{number}\t{until}\t{messages}\t{bound}\t{reason}\t{scope}"
    )
}

/// Says that the program is ready, and waits for the line that lets it go.
///
/// # Errors
/// If no line comes.
pub fn wait_for_go() -> Result<(), Box<dyn std::error::Error>> {
    println!("ready");
    wait_for_line()
}

/// Waits for a line on stdin.
///
/// # Errors
/// If there is none.
pub fn wait_for_line() -> Result<(), Box<dyn std::error::Error>> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Err("no line on stdin".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the authors' page, http://www.isthe.com/chongo/tech/comp/fnv/.
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
