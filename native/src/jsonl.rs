//! The quick way through JSON Lines: the text of each plain line, and no opinion on the others.
//!
//! A line is plain when it is valid UTF-8 and a JSON object by the letter of RFC 8259, no deeper than `DEPTH`, whose
//! wanted fields each stand there once at the top, the text as a non-empty string without lone surrogates. Whatever
//! else a line may be (also what other parsers accept, such as NaN or raw control characters) is left to the caller's
//! careful parser, so that the rules for odd lines are written down once.

const DEPTH: usize = 64;
/// Bytes of a string that are looked at together.
const STRIDE: usize = 32;

/// Puts the text of a plain line behind `out`, and returns the raw JSON of the other fields asked for; None when the
/// line takes a careful look: then `out` may hold a part of it.
pub fn plain<'a>(
    line: &'a str,
    field: &str,
    others: &[String],
    out: &mut String,
) -> Option<Vec<&'a str>> {
    let mut scan = Scan {
        text: line,
        bytes: line.as_bytes(),
        at: 0,
    };
    let begin = out.len();
    let mut seen = false;
    let mut found = vec![None; others.len()];
    scan.object(0, &mut |scan, key| {
        if key == field {
            if seen {
                return None;
            }
            seen = true;
            return scan.text_into(out);
        }
        let start = scan.at;
        scan.value(1)?;
        match others.iter().position(|other| other == key) {
            Some(at) => found[at]
                .replace(&scan.text[start..scan.at])
                .is_none()
                .then_some(()),
            None => Some(()),
        }
    })?;
    scan.space();
    (out.len() > begin && scan.at == line.len()).then_some(())?;
    found.into_iter().collect()
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// Takes the value of a field of the outermost object.
type Field<'a, 'f> = &'f mut dyn FnMut(&mut Scan<'a>, &'a str) -> Option<()>;

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// An object; `field` takes the value of each key.
    fn object(&mut self, depth: usize, field: Field<'a, '_>) -> Option<()> {
        self.space();
        self.take(b'{')?;
        self.space();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            self.space();
            let start = self.at;
            self.string()?;
            let key = &self.text[start + 1..self.at - 1];
            if depth == 0 && key.contains('\\') {
                return None;
            }
            self.space();
            self.take(b':')?;
            self.space();
            field(self, key)?;
            self.space();
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take(b'[')?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.space();
            self.value(depth + 1)?;
            self.space();
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        match self.peek()? {
            b'"' => self.string(),
            b'{' => self.object(depth, &mut |scan, _| scan.value(depth + 1)),
            b'[' => self.array(depth),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.bytes[self.at..]
            .starts_with(word.as_bytes())
            .then(|| self.at += word.len())
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            self.at = stop(self.bytes, self.at)?;
            self.at += 1;
            match self.bytes[self.at - 1] {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    /// A string whose text goes behind `out`; a lone surrogate ends it.
    fn text_into(&mut self, out: &mut String) -> Option<()> {
        self.take(b'"')?;
        loop {
            let start = self.at;
            self.at = stop(self.bytes, start)?;
            out.push_str(&self.text[start..self.at]);
            self.at += 1;
            match self.bytes[self.at - 1] {
                b'"' => return Some(()),
                b'\\' => {
                    let (escaped, used) = escape(&self.text[self.at..])?;
                    out.push(escaped);
                    self.at += used;
                }
                _ => return None,
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Option<()> {
        let digits = match self.peek()? {
            b'u' => 4,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 0,
            _ => return None,
        };
        let hex = self.bytes.get(self.at + 1..self.at + 1 + digits)?;
        if !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.at += 1 + digits;
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if self.take(b'e').is_some() || self.take(b'E').is_some() {
            let _ = self.take(b'+').or_else(|| self.take(b'-'));
            self.digits()?;
        }
        Some(())
    }
}

/// Where the next quote, backslash or control character is.
fn stop(bytes: &[u8], mut at: usize) -> Option<usize> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    // Without a branch a byte, so that the compiler looks at a vector of them at once.
    while let Some(stride) = bytes.get(at..).and_then(<[u8]>::first_chunk::<STRIDE>) {
        let is_stop =
            |&byte: &u8| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
        if stride.iter().map(is_stop).fold(0, |any, one| any | one) != 0 {
            break;
        }
        at += STRIDE;
    }
    while let Some(word) = word(at) {
        let stops = stops(word);
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let is_stop = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    Some(at + bytes.get(at..)?.iter().position(is_stop)?)
}

/// The high bit of each byte of a word that is a quote, a backslash or a control character; bits above the lowest of
/// them may be wrong.
fn stops(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & (ONES << 7);
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    below(quote, 1) | below(backslash, 1) | below(word, 0x20)
}

/// The character of an escape after its backslash, and the bytes it takes.
fn escape(rest: &str) -> Option<(char, usize)> {
    let hex = |at: usize| {
        let digits = rest.get(at..at + 4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
    };
    Some(match rest.as_bytes().first()? {
        b'b' => ('\u{8}', 1),
        b'f' => ('\u{c}', 1),
        b'n' => ('\n', 1),
        b'r' => ('\r', 1),
        b't' => ('\t', 1),
        b'u' => match hex(1)? {
            high @ 0xd800..=0xdbff if rest.get(5..7)? == "\\u" => {
                let low = hex(7).filter(|low| (0xdc00..=0xdfff).contains(low))?;
                (
                    char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?,
                    11,
                )
            }
            unit => (char::from_u32(unit)?, 5),
        },
        &other if b"\"\\/".contains(&other) => (char::from(other), 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Option<String> {
        let mut out = "before".to_owned();
        plain(line, "text", &[], &mut out).map(|_| out.split_off(6))
    }

    #[test]
    fn plain_lines() {
        assert_eq!(
            text(r#"{"text": "a\n\u00e9\ud83d\ude00\/\"", "x": [1, -0.5e+3, {"text": null}]}"#)
                .unwrap(),
            "a\n\u{e9}\u{1f600}/\""
        );
        assert_eq!(text(" {\"a\":true,\"text\":\"x\"} \r").unwrap(), "x");
        let others = ["lang".to_owned(), "n".to_owned()];
        let mut out = String::new();
        let line = r#"{"n": 1.5, "text": "x", "lang": "de"}"#;
        let found = plain(line, "text", &others, &mut out).unwrap();
        assert_eq!(found, ["\"de\"", "1.5"]);
        assert!(plain(r#"{"text": "x", "n": 1}"#, "text", &others, &mut out).is_none());
    }

    #[test]
    fn odd_lines_are_left_alone() {
        for line in [
            "",
            "{}",
            "[]",
            "{\"text\": \"\"}",
            "{\"text\": 1}",
            "{\"text\": null}",
            "{\"text\": \"a\"",
            "{\"text\": \"a\"}}",
            "{\"text\": \"a\", \"text\": \"b\"}",
            "{\"text\": \"\\ud800\"}",
            "{\"text\": \"\\ud800\\u0041\"}",
            "{\"text\": \"\\udc00\"}",
            "{\"text\": \"a\tb\"}",
            "{\"text\": \"a\", \"x\": NaN}",
            "{\"text\": \"a\", \"x\": 01}",
            "{\"text\": \"a\", \"x\": 1.}",
            "{\"text\": \"a\",}",
            "{\"t\\u0065xt\": \"a\"}",
            "{\"text\": \"\\x\"}",
            "{\"text\": \"\\u+041\"}",
            "{\"text\": \"\\u00\"}",
            "{\"text\": \"a\\",
            "{'text': 'a'}",
        ] {
            assert_eq!(text(line), None, "{line}");
        }
        let deep = format!(
            "{{\"text\": \"a\", \"x\": {}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(text(&deep), None);
    }
}
