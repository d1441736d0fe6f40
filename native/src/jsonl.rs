//! The quick way through JSON Lines: the text of each plain line, and no opinion on the others.
//!
//! A line is plain when it is valid UTF-8 and a JSON object by the letter of RFC 8259, no deeper than `DEPTH`, whose
//! wanted fields each stand there once at the top, the text as a non-empty string without lone surrogates. Whatever
//! else a line may be (also what other parsers accept, such as NaN or raw control characters) is left to the caller's
//! careful parser, so that the rules for odd lines are written down once.

use memchr::memchr2;

const DEPTH: usize = 64;

/// A plain line: its text, and the raw JSON of the other fields asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    pub text: String,
    pub others: Vec<&'a str>,
}

/// The plain line in `line`, None when it takes a careful look.
pub fn plain<'a>(line: &'a [u8], field: &str, others: &[String]) -> Option<Plain<'a>> {
    let line = std::str::from_utf8(line).ok()?;
    let mut scan = Scan {
        text: line,
        bytes: line.as_bytes(),
        at: 0,
    };
    let mut text = None;
    let mut found = vec![None; others.len()];
    scan.object(0, &mut |key, raw| {
        if key == field {
            let value = raw.strip_prefix('"')?.strip_suffix('"')?;
            text.replace(unescape(value)?).is_none().then_some(())
        } else if let Some(at) = others.iter().position(|other| other == key) {
            found[at].replace(raw).is_none().then_some(())
        } else {
            Some(())
        }
    })?;
    scan.space();
    let text = text.filter(|text| !text.is_empty() && scan.at == line.len())?;
    Some(Plain {
        text,
        others: found.into_iter().collect::<Option<_>>()?,
    })
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

type Field<'a, 'f> = &'f mut dyn FnMut(&str, &'a str) -> Option<()>;

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

    /// An object; calls `field` with each key (unless it has escapes) and the raw value.
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
            let start = self.at;
            self.value(depth + 1)?;
            field(key, &self.text[start..self.at])?;
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
            b'{' => self.object(depth, &mut |_, _| Some(())),
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
            let rest = &self.bytes[self.at..];
            let plain = memchr2(b'"', b'\\', rest)?;
            // Without an early end, so that the compiler looks at many bytes at once.
            if rest[..plain]
                .iter()
                .fold(false, |found, &byte| found | (byte < 0x20))
            {
                return None;
            }
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Some(());
            }
            self.escape()?;
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

/// The text of a JSON string whose escapes are known to be well formed; None for a lone surrogate.
fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (escaped, used) = escape(&rest[at + 1..])?;
        text.push(escaped);
        rest = &rest[at + 1 + used..];
    }
    text.push_str(rest);
    Some(text)
}

/// The character of an escape after its backslash, and the bytes it takes.
fn escape(rest: &str) -> Option<(char, usize)> {
    let hex = |at: usize| u32::from_str_radix(rest.get(at..at + 4)?, 16).ok();
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
        &other => (char::from(other), 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Option<String> {
        plain(line.as_bytes(), "text", &[]).map(|plain| plain.text)
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
        let found = plain(br#"{"n": 1.5, "text": "x", "lang": "de"}"#, "text", &others).unwrap();
        assert_eq!(found.others, ["\"de\"", "1.5"]);
        assert!(plain(br#"{"text": "x", "n": 1}"#, "text", &others).is_none());
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
            "{'text': 'a'}",
        ] {
            assert_eq!(text(line), None, "{line}");
        }
        assert_eq!(plain(b"{\"text\": \"\xff\"}", "text", &[]), None);
        let deep = format!(
            "{{\"text\": \"a\", \"x\": {}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(text(&deep), None);
    }
}
