//! Messages of Protocol Buffers, written field by field. Each format is a dozen messages of numbers and names, for which
//! a generated library of types would weigh more than all this crate.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// The message's bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// A whole number; zero is what a field that is missing is.
    pub fn int(mut self, field: u32, n: u64) -> Message {
        if n != 0 {
            self.tag(field, 0);
            self.varint(n);
        }
        self
    }

    /// A whole number in eight bytes.
    pub fn fixed64(mut self, field: u32, n: u64) -> Message {
        self.tag(field, 1);
        self.0.extend(n.to_le_bytes());
        self
    }

    /// A fraction.
    pub fn double(self, field: u32, n: f64) -> Message {
        self.fixed64(field, n.to_bits())
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Text, empty too, as terminals may have it: `go tool pprof` prints names as they are.
    pub fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, ncpu_table::safe::line(text).as_bytes())
    }

    /// A message in it.
    pub fn message(self, field: u32, inner: Message) -> Message {
        self.bytes(field, &inner.0)
    }

    /// Whole numbers, packed.
    pub fn ints(self, field: u32, numbers: impl IntoIterator<Item = u64>) -> Message {
        let mut inner = Message::default();
        numbers.into_iter().for_each(|n| inner.varint(n));
        self.bytes(field, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn as_the_documentation_of_protocol_buffers_has_it() {
        // https://protobuf.dev/programming-guides/encoding/
        assert_eq!(Message::default().int(1, 150).finish(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").finish(), b"\x12\x07testing");
        let inner = Message::default().int(1, 150);
        assert_eq!(Message::default().message(3, inner).finish(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let packed = Message::default().ints(6, [3, 270, 86942]).finish();
        assert_eq!(packed, [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        assert_eq!(Message::default().double(1, 1.0).finish(), [9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert!(Message::default().int(1, 0).finish().is_empty());
    }
}
