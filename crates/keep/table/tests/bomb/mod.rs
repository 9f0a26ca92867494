//! Builds Parquet files byte by byte, with any number of rows in one run or with false headers.

/// A file of one column without nulls.
pub struct Bomb {
    pub rows: i64,
    /// Physical type: 2 for integers, 5 for floats, 6 for texts.
    pub physical: i64,
    /// The bytes of every row's value.
    pub word: Vec<u8>,
    /// Number of entries and length of the dictionary, as its header claims.
    pub entries: i64,
    pub uncompressed: Option<i64>,
    /// Encoding of the data page: 8 for a dictionary's, 6 for lengths and then texts.
    pub encoding: i64,
    /// The data page, instead of one run.
    pub page: Option<Vec<u8>>,
    /// Nesting depth of the column.
    pub depth: usize,
}

impl Bomb {
    pub fn floats(rows: i64) -> Bomb {
        let word = 1f64.to_le_bytes().to_vec();
        Bomb { rows, physical: 5, word, entries: 1, uncompressed: None, encoding: 8, page: None, depth: 0 }
    }

    pub fn texts(rows: i64, length: usize) -> Bomb {
        let mut word = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        word.resize(4 + length, b'x');
        Bomb { physical: 6, word, ..Bomb::floats(rows) }
    }

    /// The file; `name` is the name of its column.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let mut out = b"PAR1".to_vec();
        let length = self.word.len() as i64;
        let dictionary = Struct::default().int(1, self.entries).int(2, 0);
        let header = Struct::default().int(1, 2).int(2, self.uncompressed.unwrap_or(length)).int(3, length);
        out.extend(header.inner(7, dictionary).end());
        out.extend(&self.word);
        let data_at = out.len() as i64;
        let mut run = vec![1];
        run.extend(varint(self.rows.cast_unsigned() << 1));
        run.push(0);
        let page = self.page.as_ref().unwrap_or(&run);
        let data = Struct::default().int(1, self.rows).int(2, self.encoding).int(3, 3).int(4, 3);
        let header = Struct::default().int(1, 0).int(2, page.len() as i64).int(3, page.len() as i64);
        out.extend(header.inner(5, data).end());
        out.extend(page);
        let size = out.len() as i64 - 4;
        let path: Vec<Vec<u8>> = (0..=self.depth).map(|_| text(name)).collect();
        let column = Struct::default()
            .int(1, self.physical)
            .list(2, 5, &[zigzag(0), zigzag(8)])
            .list(3, 8, &path)
            .int(4, 0)
            .long(5, self.rows)
            .long(6, size)
            .long(7, size)
            .long(9, data_at)
            .long(11, 4);
        let chunk = Struct::default().long(2, 4).inner(3, column);
        let group = Struct::default().list(1, 12, &[chunk.end()]).long(2, size).long(3, self.rows);
        let mut schema = vec![Struct::default().field(4, 8, &text("schema")).int(5, 1).end()];
        let inner = || Struct::default().int(3, 0).field(4, 8, &text(name)).int(5, 1).end();
        schema.extend((0..self.depth).map(|_| inner()));
        let leaf = Struct::default().int(1, self.physical).int(3, 0).field(4, 8, &text(name));
        schema.push(if self.physical == 6 { leaf.int(6, 0).end() } else { leaf.end() });
        let meta = Struct::default().int(1, 1).list(2, 12, &schema).long(3, self.rows);
        let meta = meta.list(4, 12, &[group.end()]).end();
        out.extend(&meta);
        out.extend(u32::try_from(meta.len()).unwrap().to_le_bytes());
        out.extend(b"PAR1");
        out
    }
}

/// A structure in Thrift's compact protocol.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn field(mut self, id: u8, ty: u8, value: &[u8]) -> Struct {
        self.bytes.push((id - self.last) << 4 | ty);
        self.bytes.extend(value);
        Struct { last: id, ..self }
    }

    fn int(self, id: u8, value: i64) -> Struct {
        self.field(id, 5, &zigzag(value))
    }

    fn long(self, id: u8, value: i64) -> Struct {
        self.field(id, 6, &zigzag(value))
    }

    fn inner(self, id: u8, value: Struct) -> Struct {
        self.field(id, 12, &value.end())
    }

    fn list(self, id: u8, ty: u8, values: &[Vec<u8>]) -> Struct {
        let mut bytes = vec![0xf0 | ty];
        bytes.extend(varint(values.len() as u64));
        bytes.extend(values.concat());
        self.field(id, 9, &bytes)
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

pub fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n > 0x7f {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn zigzag(n: i64) -> Vec<u8> {
    varint((n << 1 ^ n >> 63).cast_unsigned())
}

fn text(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}
